"""Where runs are trained: the interface of a launcher, and a pool of GPUs or CPU cores on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from ipseg import own_code
from ipseg.errors import UserError
from ipseg.files import appending, require_no_link

AGAIN = "again"
"""The end of another sweep's process: its run is started again unless it is finished."""
TrainCommand = Callable[[str, str | None], list[str]]
"""Writes the recipe of a run, given the run whose base step it takes, and returns how python trains it."""


class Process(Protocol):
    """A started run."""

    def poll(self) -> int | str | None:
        """None while it waits or runs; then its exit code, AGAIN, or why it has none."""

    def cancel(self, *, kill: bool) -> None:
        """Ask it to save its state and end; or kill it."""


class Launcher(Protocol):
    """Starts runs."""

    def start(self, name: str, source: str | None, *, ready: bool, shared: bool) -> Process | None:
        """Start or resume a run; None if it has to wait.

        source: the run whose base step it takes; ready: that step is trained; shared: others are to take its own.
        """


def log_file(out: Path, name: str) -> Path:
    folder = out / "logs"
    require_no_link(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.log"


def python_command(arguments: Sequence[str], torchrun: Sequence[str] = ()) -> list[str]:
    """The command of a module in a process of its own, or in several started by torchrun with these options."""
    # -P: not from the working directory, where a typer.py may be. torchrun's children have it from the environment.
    launcher = ["-m", "torch.distributed.run", *torchrun] if torchrun else []
    return [sys.executable, "-P", *launcher, *arguments]


def torchrun_options(processes: int) -> list[str]:
    return ["--standalone", f"--nproc-per-node={processes}"] if processes > 1 else []


def child_environment() -> dict[str, str]:
    return {"PYTHONSAFEPATH": "1"} | own_code.environment()


# ---- this machine ---------------------------------------------------------------------------------------------------


def visible_gpus() -> list[str]:
    """The GPUs that runs may use: those in CUDA_VISIBLE_DEVICES, or all."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [name.strip() for name in named.split(",") if name.strip()] if named else map(str, range(1 << 8))
    return [name for name, _ in zip(names, range(torch.cuda.device_count()), strict=False)]


def make_slots(gpus: Sequence[str], jobs: int | None, per_gpu: int = 1, processes: int = 1) -> list[Sequence[str]]:
    """The GPUs of each concurrent run, none on a CPU. Neighbors have different ones: few runs do not share the first.

    >>> make_slots(["0", "3"], 3, per_gpu=2)
    [['0'], ['3'], ['0']]
    """
    if not gpus:
        return [()] * (jobs or 1)
    if len(gpus) < processes:
        raise UserError(f"--processes-per-run {processes} needs as many GPUs; visible are {len(gpus)}.")
    groups = [gpus[first : first + processes] for first in range(0, len(gpus) - processes + 1, processes)]
    return (groups * per_gpu)[:jobs]


class LocalPool:
    """Runs as processes of this machine, each with its log, its share of the cores and its GPUs."""

    def __init__(self, out: Path, slots: Sequence[Sequence[str]], command: TrainCommand, *, processes: int = 1) -> None:
        self.out, self.slots, self.command, self.processes = out, slots, command, processes
        self.threads = max(1, (os.cpu_count() or 1) // (len(slots) * processes))
        self._started: dict[int, Process] = {}

    def start(self, name: str, source: str | None, *, ready: bool, shared: bool) -> Process | None:
        """Start in a free slot. A run that another sweep is training is waited for in that slot."""
        for index, gpus in enumerate(self.slots):
            process = self._started.get(index)
            if ready and (process is None or process.poll() is not None):
                self._started[index] = self._start(name, source, gpus)
                return self._started[index]
        return None

    def _start(self, name: str, source: str | None, gpus: Sequence[str]) -> Process:
        log = appending(log_file(self.out, name))
        if not _lock(log):
            return ForeignJob(log)
        environment = {"OMP_NUM_THREADS": str(self.threads)} | os.environ | child_environment()
        environment |= {"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}
        with log:
            # In a session of its own: Ctrl-C in the terminal is for the sweep, which asks its runs to stop.
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                python_command(self.command(name, source), torchrun_options(self.processes)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        return LocalJob(process, distributed=self.processes > 1)


@dataclass
class LocalJob:
    """A run in a process of this machine. Its log is locked as long as it lives, even if the sweep is killed."""

    process: subprocess.Popen[bytes]
    distributed: bool

    def poll(self) -> int | None:
        return self.process.poll()

    def cancel(self, *, kill: bool) -> None:
        """SIGTERM: the iteration ends and a checkpoint is written."""
        if kill and self.distributed:
            return  # killing torchrun would leave its processes behind; it kills them itself, 30 s after SIGTERM
        self.process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)


@dataclass
class ForeignJob:
    """A run whose log is locked: another sweep, or one that was killed, has started it."""

    log: IO[bytes]
    canceled: bool = False

    def poll(self) -> str | None:
        """AGAIN once the lock is gone."""
        if not (self.log.closed or self.canceled or _lock(self.log)):
            return None
        self.log.close()
        return AGAIN

    def cancel(self, *, kill: bool) -> None:
        """Another sweep's run is not stopped; only the waiting ends."""
        self.canceled = True


def _lock(file: IO[bytes]) -> bool:
    """A child inherits the lock with its output, so it is held until the last of them has ended."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except ImportError as error:  # Windows; other users of this module must be able to start there
        file.close()
        raise UserError(
            "a sweep locks the logs of its runs, which this system cannot (it has no fcntl). On Windows, use WSL; "
            "`ipseg train` runs each recipe alone."
        ) from error
    except OSError:  # a file system without locks: two sweeps in one folder are not noticed there
        pass
    return True
