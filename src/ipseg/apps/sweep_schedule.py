"""Which run starts when: as many as there is room for, and a base step that several need is learned by one of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from ipseg.errors import STOPPED

State = Literal["waiting", "running", "finished", "failed", "stopped"]
AGAIN = "again"
"""What `poll` says of a run that another sweep had under way, and no longer has."""
TAIL = 6
"""Lines of a failed run's log that are shown."""


class Process(Protocol):
    """A run under way."""

    def poll(self) -> int | str | None:
        """Its exit code once it has ended."""
        ...

    def stop(self, *, now: bool) -> None:
        """Ask it to save its state and end; or end it."""
        ...


class Launcher(Protocol):
    """What runs are started on."""

    def room(self) -> bool:
        """Whether one more can start."""
        ...

    def start(self, name: str, init: str | None) -> Process:
        """Start or go on with a run; `init` is another run whose base step it takes."""
        ...


@dataclass(frozen=True)
class Progress:
    """How far a run is, by its folder."""

    begun: bool = False
    finished: int = 0
    """Steps."""
    share: float = 0.0
    """Of the step under way."""
    miou: float | None = None
    """After the last finished step, over all classes."""


@dataclass
class Job:
    """One run, as the schedule sees it."""

    name: str
    base: str
    steps: int
    log: Path
    state: State = "waiting"
    progress: Progress = Progress()
    process: Process | None = None
    began: float = 0.0
    seconds: float = 0.0
    why: str = ""
    """Why it waits, or how it failed."""

    @property
    def done(self) -> bool:
        """Every step is finished."""
        return self.progress.finished >= self.steps


def last_words(job: Job) -> list[str]:
    """The last lines of a run's log."""
    if not job.log.is_file():
        return []
    text = job.log.read_text(encoding="utf-8", errors="replace")
    return [line for line in text.splitlines() if line.strip()][-TAIL:]


class Schedule:
    """Keeps the launcher busy until nothing is left to start. `look` reads a run's progress from its folder."""

    def __init__(self, jobs: Sequence[Job], launcher: Launcher, look: Callable[[Job], Progress]) -> None:
        self.jobs, self.launcher, self.look = list(jobs), launcher, look
        for job in self.jobs:
            job.progress = look(job)
            if job.done:
                job.state = "finished"

    def run(self, tell: Callable[[Sequence[Job]], None], pause: float = 0.5) -> None:
        """Until all have ended. Ctrl-C asks them to save and end; a second one ends them."""
        try:
            while self.turn():
                tell(self.jobs)
                time.sleep(pause)
        except BaseException as error:
            self.stop(tell, pause)
            if not isinstance(error, KeyboardInterrupt):
                raise
        tell(self.jobs)

    def turn(self) -> bool:
        """Notice what has ended, start what can start. False: nothing is under way any more."""
        for job in self.running():
            self._notice(job)
        # What was cut goes on first: others may wait for its base step.
        for job in sorted(self.jobs, key=lambda job: not job.progress.begun):
            if job.state == "waiting":
                self._start(job)
        return bool(self.running())

    def running(self) -> list[Job]:
        """Runs under way."""
        return [job for job in self.jobs if job.state == "running"]

    def stop(self, tell: Callable[[Sequence[Job]], None], pause: float) -> None:
        """Every run saves its state and ends."""
        for job in self.running():
            _process(job).stop(now=False)
        try:
            while self.running():
                for job in self.running():
                    self._notice(job, stopping=True)
                tell(self.jobs)
                time.sleep(pause)
        except KeyboardInterrupt:
            for job in self.running():
                _process(job).stop(now=True)
                job.state = "stopped"

    def _notice(self, job: Job, *, stopping: bool = False) -> None:
        code = _process(job).poll()
        job.progress, job.seconds = self.look(job), time.monotonic() - job.began
        if code is None:
            return
        job.process = None
        if job.done and code in (0, AGAIN):
            job.state = "finished"
        elif stopping or code == STOPPED:
            job.state = "stopped"
        elif code == AGAIN:
            job.state = "waiting"
        else:
            job.state, job.why = "failed", _say_code(code)

    def _start(self, job: Job) -> None:
        """Unless there is no room, or another run is about to finish the base step that this one needs too."""
        alike = [other for other in self.jobs if other.base == job.base and other is not job]
        giver = next((other for other in alike if other.progress.finished), None)
        learner = next((other for other in alike if other.state == "running"), None)
        if not job.progress.begun and giver is None and learner is not None:
            job.why = f"for {learner.name}"
            return
        job.why = ""
        if self.launcher.room():
            job.process = self.launcher.start(job.name, None if job.progress.begun or giver is None else giver.name)
            job.state, job.began = "running", time.monotonic()


def _process(job: Job) -> Process:
    assert job.process is not None
    return job.process


def _say_code(code: int | str) -> str:
    return f"ended by signal {-code}" if isinstance(code, int) and code < 0 else f"exit code {code}"
