"""The same work on many files, on all cores, with a progress bar once it takes long enough to be worth one."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import platform
import signal
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from ipseg.errors import UserError
from ipseg.progress import Meter

T = TypeVar("T")
R = TypeVar("R")

FEW = 64  # starting processes costs about as much as reading this many files
CHUNK = 16
PATIENCE = 2.0
FORKS = platform.system() == "Linux"  # elsewhere a forked process may crash in the system's own libraries


def parallel_map(work: Callable[[T], R], items: Sequence[T], title: str, *, workers: int | None = None) -> list[R]:
    """The result of each item, in their order. `work` must not raise for what it can report instead.

    Forked processes where that is safe: they start in no time, and `work` need not be sent to them, nor a user's script
    guard its main part against being run again. They take none of the locks that torch's threads could hold: they
    decode files and count. Elsewhere threads, as decoding releases Python's lock.
    """
    if workers is None:  # those that this process may use: in a container often fewer than the machine has
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found: list[R] = []
    with Meter(title, len(items), patience=PATIENCE) as meter:
        if workers < 2 or len(items) < FEW or multiprocessing.current_process().daemon:  # a daemon may have no children
            for item in items:
                found.append(work(item))
                meter.advance(1)
            return found
        pool: Executor = ThreadPoolExecutor(workers)
        if FORKS:
            pool = ProcessPoolExecutor(workers, multiprocessing.get_context("fork"), _prepare, (work,))
        try:
            with warnings.catch_warnings():  # Python 3.12 and later warn of a fork beside threads
                warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
                results = pool.map(_work if FORKS else work, items, chunksize=CHUNK)
            for result in results:
                found.append(result)
                meter.advance(1)
        except BrokenProcessPool as error:
            raise UserError(
                f"{title}: a process that read files was killed, as a system does that runs out of memory. Try again "
                "with more memory free."
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)
    return found


_job: Callable[[Any], Any]


def _prepare(work: Callable[[Any], Any]) -> None:
    """Set up a new process: what to do, and when to end."""
    global _job  # noqa: PLW0603 (of this process alone)
    _job = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    when_parent_ends(lambda: os._exit(1))


def _work(item: Any) -> Any:
    return _job(item)


def when_parent_ends(do: Callable[[], None]) -> None:
    """In a child: a parent that is killed cannot tell its children, and they would go on or wait for ever."""
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            multiprocessing.connection.wait([parent.sentinel])
            do()

    threading.Thread(target=wait, daemon=True).start()
