"""Where runs are trained: the interface of a launcher, and processes on the CPU slots or GPUs of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

from ipseg import own_code
from ipseg.errors import UserError
from ipseg.files import appending

RETRY = "retry"
"""A poll's result for a job that ended without being ours, or without having started: look again, or start it again."""
TrainArguments = Callable[[str, str | None], list[str]]
"""Writes the recipe of a run, given the run whose base step it takes, and returns how python trains it."""


class Handle(Protocol):
    """A submitted run."""

    def poll(self) -> int | str | None:
        """Its exit code, RETRY, or None while it waits or runs."""
        ...

    def cancel(self, *, kill: bool) -> None:
        """Ask it to save its state and end; or kill it."""
        ...


class Launcher(Protocol):
    """Starts runs."""

    dependencies: bool
    """Whether a job may be submitted before the one that it depends on has ended."""

    def has_slot(self) -> bool:
        """Whether one more run can be submitted."""
        ...

    def submit(self, name: str, source: str | None, *, base_step: bool = False, after: Handle | None = None) -> Handle:
        """Start or resume a run; `source` is the run whose base step it takes. base_step: train that step alone."""
        ...


def python_command(arguments: Sequence[str], torchrun: Sequence[str] = ()) -> list[str]:
    """A module in a process of its own, or in several started by torchrun with these options."""
    # -P: not from the working directory, where a typer.py may lie. torchrun's children have it from the environment.
    launcher = ["-m", "torch.distributed.run", *torchrun] if torchrun else []
    return [sys.executable, "-P", *launcher, *arguments]


def child_environment() -> dict[str, str]:
    """Variables that training processes need in addition to their machine's."""
    return {"PYTHONSAFEPATH": "1"} | own_code.environment()


# ---- this machine ---------------------------------------------------------------------------------------------------


@dataclass
class Slot:
    """Resources for one run."""

    gpus: Sequence[str] = ()
    """As CUDA_VISIBLE_DEVICES names them; none: the CPU."""
    handle: Handle | None = field(default=None, repr=False)

    @property
    def free(self) -> bool:
        """Whether no run is there."""
        return self.handle is None or self.handle.poll() is not None


def visible_gpus() -> list[str]:
    """The GPUs that runs may use: those in CUDA_VISIBLE_DEVICES, or all."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [name.strip() for name in named.split(",") if name.strip()] if named else map(str, range(1 << 8))
    return [name for name, _ in zip(names, range(torch.cuda.device_count()), strict=False)]


def make_slots(gpus: Sequence[str], jobs: int | None, per_gpu: int = 1, processes: int = 1) -> list[Slot]:
    """Consecutive slots are on different GPUs, so that few runs do not share the first one."""
    if not gpus:
        return [Slot() for _ in range(jobs or 1)]
    if len(gpus) < processes:
        raise UserError(f"--processes-per-run {processes} needs as many GPUs; visible are {len(gpus)}.")
    groups = [gpus[first : first + processes] for first in range(0, len(gpus) - processes + 1, processes)]
    return [Slot(group) for _ in range(per_gpu) for group in groups][:jobs]


def slots_note(gpus: Sequence[str], jobs: int | None, per_gpu: int = 1, processes: int = 1) -> str:
    """A note for users who asked for more concurrent runs than there are slots.

    >>> slots_note(["0"], 4)
    '1 run at the same time, not 4: --jobs-per-gpu lets more share a GPU.'
    """
    if not gpus:
        return "--jobs-per-gpu does nothing where runs use no GPU; --jobs does." if per_gpu > 1 else ""
    slots = len(gpus) // processes * per_gpu
    if jobs is None or jobs <= slots:
        return ""
    advice = "--jobs-per-gpu lets more share a GPU" if processes == 1 else f"each has {processes} GPUs"
    return f"{slots} run{'s' if slots > 1 else ''} at the same time, not {jobs}: {advice}."


class LocalPool:
    """Runs as processes of this machine, each with its log, its share of the cores and its GPUs."""

    dependencies = False

    def __init__(
        self, slots: Sequence[Slot], arguments: TrainArguments, log: Callable[[str], Path], *, processes: int = 1
    ) -> None:
        self.slots, self.arguments, self.log, self.processes = slots, arguments, log, processes
        self.threads = max(1, (os.cpu_count() or 1) // (len(slots) * processes))

    def has_slot(self) -> bool:
        """Whether a slot is free."""
        return any(slot.free for slot in self.slots)

    def submit(self, name: str, source: str | None, *, base_step: bool = False, after: Handle | None = None) -> Handle:
        """Start in a free slot. A run that another sweep is training is waited for in that slot."""
        assert not base_step
        assert after is None
        slot = next(slot for slot in self.slots if slot.free)
        path = self.log(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        file = appending(path)
        if not _lock(file):
            slot.handle = ForeignJob(file)
            return slot.handle
        environment = {"OMP_NUM_THREADS": str(self.threads)} | os.environ | child_environment()
        environment |= {"CUDA_VISIBLE_DEVICES": ",".join(slot.gpus)} if slot.gpus else {}
        torchrun = ["--standalone", f"--nproc-per-node={self.processes}"] if self.processes > 1 else []
        with file:
            # In a session of its own: Ctrl-C in the terminal is for the sweep, which asks its runs to stop.
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                python_command(self.arguments(name, source), torchrun),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        slot.handle = LocalJob(process, distributed=self.processes > 1)
        return slot.handle


@dataclass
class LocalJob:
    """A run in a process of this machine. Its log is locked as long as it lives, even if the sweep is killed."""

    process: subprocess.Popen[bytes]
    distributed: bool = False

    def poll(self) -> int | None:
        """Its exit code."""
        return self.process.poll()

    def cancel(self, *, kill: bool) -> None:
        """SIGTERM: the iteration ends and a checkpoint is written."""
        if kill and self.distributed:
            return  # killing torchrun would leave its processes behind; it kills them itself, 30 s after SIGTERM
        self.process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)


@dataclass
class ForeignJob:
    """A run whose log is locked: another sweep, or one that was killed, has started it."""

    file: IO[bytes]
    canceled: bool = False

    def poll(self) -> str | None:
        """RETRY once the lock is gone."""
        if not (self.file.closed or self.canceled or _lock(self.file)):
            return None
        self.file.close()
        return RETRY

    def cancel(self, *, kill: bool) -> None:
        """It is not ours to stop; only the waiting ends."""
        self.canceled = True


def _lock(file: IO[bytes]) -> bool:
    """A child inherits the lock with its output, so it is held until the last of them has ended."""
    try:
        import fcntl
    except ImportError as error:  # Windows; other users of this module must be able to start there
        file.close()
        raise UserError(
            "a sweep locks the logs of its runs, which this system cannot (it has no fcntl). On Windows, use WSL; "
            "`ipseg train` runs each recipe alone."
        ) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: two sweeps in one folder are not noticed there
        return True
    return True
