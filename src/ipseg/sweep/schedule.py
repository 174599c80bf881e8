"""Starts runs as slots become free. A base step that several runs share is trained by one of them, the producer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ipseg.errors import STOPPED
from ipseg.sweep.launchers import RETRY, Handle, Launcher
from ipseg.sweep.progress import Progress

State = Literal["waiting", "running", "finished", "failed", "stopped"]
TAIL = 6
"""Lines of a failed run's log that are shown."""


@dataclass
class Job:
    """One run and its state."""

    name: str
    base: str
    """Jobs of the same value share a base step."""
    steps: int
    log: Path
    state: State = "waiting"
    progress: Progress = field(default_factory=Progress)
    handle: Handle | None = None
    started: float = 0.0
    seconds: float = 0.0
    reason: str = ""
    """Why it waits, or how it failed."""

    @property
    def done(self) -> bool:
        """Every step is finished."""
        return self.progress.finished >= self.steps

    def log_tail(self) -> list[str]:
        """The last lines of its log, from its last error message on if it ends with one (torchrun adds a summary)."""
        if not self.log.is_file():
            return []
        text = self.log.read_text(encoding="utf-8", errors="replace")
        lines = [line for line in text.splitlines() if line.strip()][-60:]
        errors = [index for index, line in enumerate(lines) if line.startswith("ipseg: ")]
        return lines[errors[-1] :][:TAIL] if errors else lines[-TAIL:]


class Scheduler:
    """Keeps the launcher busy until no job is left to start. `look` reads a job's progress from its folder."""

    def __init__(self, jobs: Sequence[Job], launcher: Launcher, look: Callable[[Job], Progress]) -> None:
        self.jobs, self.launcher, self.look = list(jobs), launcher, look
        self._base_steps: dict[str, tuple[Job, Handle]] = {}
        """Producers whose base step is a job of its own, which others depend on."""
        for job in self.jobs:
            job.progress = look(job)
            if job.done:
                job.state = "finished"

    def run(self, show: Callable[[Sequence[Job]], None], pause: float = 0.5) -> None:
        """Run all jobs to their end. Ctrl-C asks them to save their state and stop; a second one kills them."""
        try:
            while self.turn():
                show(self.jobs)
                time.sleep(pause)
        except BaseException as error:
            self.stop(show, pause)
            if not isinstance(error, KeyboardInterrupt):
                raise
        show(self.jobs)

    def turn(self) -> bool:
        """Update running jobs and start waiting ones. False: no job is running any more."""
        for job in self.running():
            self._update(job)
        # Interrupted runs first: others may wait for their base step.
        for job in sorted(self.jobs, key=lambda job: not job.progress.begun):
            if job.state == "waiting":
                self._start(job)
        return bool(self.running())

    def running(self) -> list[Job]:
        """Jobs that were submitted and have not ended."""
        return [job for job in self.jobs if job.state == "running"]

    def stop(self, show: Callable[[Sequence[Job]], None], pause: float) -> None:
        """Every run saves its state and ends."""
        for _, handle in self._base_steps.values():
            handle.cancel(kill=False)
        for job in self.running():
            _handle(job).cancel(kill=False)
        try:
            while self.running():
                for job in self.running():
                    self._update(job, stopping=True)
                show(self.jobs)
                time.sleep(pause)
        except KeyboardInterrupt:
            for job in self.running():
                _handle(job).cancel(kill=True)
                job.state = "stopped"

    def _update(self, job: Job, *, stopping: bool = False) -> None:
        code = _handle(job).poll()
        job.progress, job.seconds = self.look(job), time.monotonic() - job.started
        if code is None:
            return
        job.handle = None
        if job.done and code in (0, RETRY):
            job.state = "finished"
        elif stopping or code == STOPPED:
            job.state = "stopped"
        elif code == RETRY and not (job.base in self._base_steps and self._base_steps[job.base][0] is job):
            job.state = "waiting"
        else:
            job.state, job.reason = "failed", _describe(code)

    def _producer(self, base: str) -> Job | None:
        """The job whose base step is a job of its own; none once that has failed."""
        producer, handle = self._base_steps.get(base, (None, None))
        return producer if handle and handle.poll() in (None, 0) else None

    def _start(self, job: Job) -> None:
        """Submit a job, unless there is no free slot or it has to wait for the base step of another one."""
        group = [other for other in self.jobs if other.base == job.base and other is not job]
        source, after = None, None
        if not job.progress.begun:
            source = next((other for other in group if other.progress.finished), None)
            running = next((other for other in group if other.state == "running"), None)
            if source is None and running is not None:
                source = self._producer(job.base)
                if source is None:
                    job.reason = f"for {running.name}"
                    return
                after = self._base_steps[job.base][1]
        job.reason = ""
        if not self.launcher.has_slot():
            return
        shared = source is None and not job.progress.finished and any(other.state == "waiting" for other in group)
        if shared and self.launcher.dependencies:
            after = self.launcher.submit(job.name, None, base_step=True)
            self._base_steps[job.base] = job, after
        job.handle = self.launcher.submit(job.name, source.name if source else None, after=after)
        job.state, job.started = "running", time.monotonic()


def _handle(job: Job) -> Handle:
    assert job.handle is not None
    return job.handle


def _describe(code: int | str) -> str:
    if code == RETRY:
        return "its base step failed"
    return f"ended by signal {-code}" if isinstance(code, int) and code < 0 else f"exit code {code}"
