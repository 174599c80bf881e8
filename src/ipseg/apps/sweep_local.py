"""Runs of a sweep as processes of this machine, each with its log, its share of the cores and its GPU."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from ipseg import own_code
from ipseg.apps.sweep_schedule import AGAIN, Process
from ipseg.errors import UserError
from ipseg.files import appending

Command = Callable[[str, str | None], list[str]]
"""What to call for a run and the run whose base step it takes; the recipe that it names has been written."""


@dataclass
class Slot:
    """Room for one run."""

    gpu: str | None
    """As CUDA_VISIBLE_DEVICES names it; none: the CPU."""
    process: Process | None = field(default=None, repr=False)


def make_slots(gpus: Sequence[str], jobs: int | None, jobs_per_gpu: int) -> list[Slot]:
    """One after the other on different GPUs, so that few runs do not crowd on the first."""
    if not gpus:
        return [Slot(None) for _ in range(jobs or 1)]
    slots = [Slot(gpu) for _ in range(jobs_per_gpu) for gpu in gpus]
    return slots[:jobs]


def fewer_than_asked(gpus: Sequence[str], jobs: int | None, jobs_per_gpu: int) -> str:
    """What a person should know who asked for more runs at the same time than there is room for.

    >>> fewer_than_asked(["0"], 4, 1)
    '1 run at the same time, not 4: --jobs-per-gpu lets more share a GPU.'
    """
    if not gpus:
        return "--jobs-per-gpu does nothing where runs use no GPU; --jobs does." if jobs_per_gpu > 1 else ""
    room = len(gpus) * jobs_per_gpu
    if jobs is None or jobs <= room:
        return ""
    runs = "1 run" if room == 1 else f"{room} runs"
    return f"{runs} at the same time, not {jobs}: --jobs-per-gpu lets more share a GPU."


def visible_gpus() -> list[str]:
    """The GPUs that runs may use: those that CUDA_VISIBLE_DEVICES leaves, or all."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [name.strip() for name in named.split(",") if name.strip()] if named else map(str, range(1 << 8))
    return [name for name, _ in zip(names, range(torch.cuda.device_count()), strict=False)]


class LocalLauncher:
    """Starts `ipseg train` in processes of their own."""

    def __init__(self, slots: Sequence[Slot], command: Command, log: Callable[[str], Path]) -> None:
        self.slots, self.command, self.log = slots, command, log
        self.threads = max(1, (os.cpu_count() or 1) // len(slots))

    def room(self) -> bool:
        """Whether a slot is free."""
        return any(_free(slot) for slot in self.slots)

    def start(self, name: str, init: str | None) -> Process:
        """Start in a free slot. A run that another sweep has under way is waited for there instead."""
        slot = next(slot for slot in self.slots if _free(slot))
        path = self.log(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        file = appending(path)
        if not _lock(file):
            slot.process = ElsewhereProcess(file)
            return slot.process
        environment = {"OMP_NUM_THREADS": str(self.threads)} | os.environ | own_code.environment()
        environment |= {} if slot.gpu is None else {"CUDA_VISIBLE_DEVICES": slot.gpu}
        with file:
            # In a session of its own: Ctrl-C in the terminal is for the sweep, which asks its runs to stop.
            started = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                self.command(name, init),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        slot.process = LocalProcess(started)
        return slot.process


class LocalProcess:
    """A run in a process of this machine. Its log is locked as long as it lives, whatever becomes of the sweep."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def poll(self) -> int | None:
        """Its exit code."""
        return self.process.poll()

    def stop(self, *, now: bool) -> None:
        """SIGTERM: the iteration ends and a checkpoint is written."""
        self.process.send_signal(signal.SIGKILL if now else signal.SIGTERM)


class ElsewhereProcess:
    """A run whose log is locked: another sweep, or one that was killed, has left it under way."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.given_up = False

    def poll(self) -> str | None:
        """To be tried again once the lock is gone."""
        if not (self.file.closed or self.given_up or _lock(self.file)):
            return None
        self.file.close()
        return AGAIN

    def stop(self, *, now: bool) -> None:
        """It is not ours to stop; only the waiting ends."""
        self.given_up = True


def command_for(recipe: Path, run: Path) -> list[str]:
    """How a run is begun or gone on with."""
    # -P: not from the working directory, where a typer.py may lie.
    return [sys.executable, "-P", "-m", "ipseg", "train", str(recipe), "--out", str(run), "--resume"]


def _free(slot: Slot) -> bool:
    return slot.process is None or slot.process.poll() is not None


def _lock(file: IO[bytes]) -> bool:
    """A child inherits the lock with its output, so it is held until the last of them has ended."""
    try:
        import fcntl
    except ImportError as error:  # Windows; what else uses this module must be able to start there
        file.close()
        raise UserError(
            "a sweep locks the logs of its runs, which this system cannot (it has no fcntl). On Windows, use WSL; "
            "`ipseg train` runs each recipe alone."
        ) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: two sweeps in one folder are the user's own care there
        return True
    return True
