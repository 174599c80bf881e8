"""`ipseg WORDS` in a forked process: what is imported once serves thousands of commands.

The parent must not run any operation of torch: threads do not survive a fork. Whatever a case needs is made in a child.
"""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

import ipseg.cli
from ipseg.models._torchvision import ensure_torchvision


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    """The exit code; negative: the signal that ended it."""
    text: str
    """stdout and stderr."""
    seconds: float
    """By the clock."""
    worked: float
    """Seconds of the processor, which do not count what else the machine does."""
    peak: int
    """Bytes of memory at most, the program's own included."""


def import_all() -> None:
    """What commands import when they are called."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for module in pkgutil.walk_packages(ipseg.__path__, "ipseg."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    ensure_torchvision()
    importlib.import_module("timm")
    importlib.import_module("matplotlib.figure")
    gc.freeze()  # what a child does not collect it need not copy


def start(words: Sequence[object], log: Path, *, memory: int | None = None) -> int:
    """Begin a command; its process leads a group of its own. memory: bytes it may take beside the program itself."""

    def command() -> None:
        sys.argv = ["ipseg", *map(str, words)]
        ipseg.cli.main()

    return fork(command, log, memory=memory)


def fork(work: Callable[[], object], log: Path, *, memory: int | None = None) -> int:
    """The process that does this work; what it says goes to the log."""
    sys.stdout.flush()
    if pid := os.fork():
        return pid
    code = 1
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # `make ... &` starts processes that ignore it
        file = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(file, 1)
        os.dup2(file, 2)
        torch.set_num_threads(1)
        if memory is not None:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            limit = pages * os.sysconf("SC_PAGE_SIZE") + memory
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        work()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def finish(pid: int, log: Path, began: float, seconds: float, polite: float | None = None) -> Outcome:
    """Wait for a command. After `polite` seconds it gets Ctrl-C, after `seconds` it is killed."""
    while True:
        done, status, usage = os.wait4(pid, os.WNOHANG)
        passed = time.monotonic() - began
        if done:
            text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
            return Outcome(os.waitstatus_to_exitcode(status), text, passed, usage.ru_utime + usage.ru_stime,
                           usage.ru_maxrss * 1024)  # fmt: skip
        if passed > seconds:
            kill(pid)
        elif polite is not None and passed > polite:
            os.kill(pid, signal.SIGINT)
            polite = None
        time.sleep(0.002)


def kill(pid: int) -> None:
    """SIGKILL for a process and its group."""
    for send in (os.killpg, os.kill):
        with suppress(ProcessLookupError):
            send(pid, signal.SIGKILL)


def call(
    words: Sequence[object], log: Path, *, seconds: float = 600, memory: int | None = None, polite: float | None = None
) -> Outcome:
    """A command from beginning to end."""
    began = time.monotonic()
    log.unlink(missing_ok=True)
    return finish(start(words, log, memory=memory), log, began, seconds, polite)
