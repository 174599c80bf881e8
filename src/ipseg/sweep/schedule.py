"""Starts runs as there is room for them. A base step that several runs share is trained by one of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ipseg.errors import STOPPED
from ipseg.sweep.launchers import AGAIN, Launcher, Process
from ipseg.sweep.progress import Progress, read_progress

State = Literal["waiting", "running", "finished", "failed", "stopped"]


@dataclass
class Job:
    name: str
    base: str
    """Jobs of the same value share a base step."""
    steps: int
    folder: Path
    log: Path
    state: State = "waiting"
    progress: Progress = field(default_factory=Progress)
    process: Process | None = None
    started: float = 0.0
    seconds: float = 0.0
    reason: str = ""
    """Why it waits, or how it failed."""

    @property
    def done(self) -> bool:
        return self.progress.finished >= self.steps


class Scheduler:
    """Keeps the launcher busy until no job is left to start."""

    def __init__(self, jobs: Sequence[Job], launcher: Launcher) -> None:
        self.jobs, self.launcher = list(jobs), launcher
        for job in self.jobs:
            job.progress = read_progress(job.folder)
            if job.done:
                job.state = "finished"

    def run(self, update: Callable[[Sequence[Job]], None], pause: float = 0.5) -> None:
        """Run all jobs to their end. Ctrl-C asks them to save their state and stop; a second one kills them."""
        try:
            while self.turn():
                update(self.jobs)
                time.sleep(pause)
        except BaseException as error:
            self.stop(update, pause)
            if not isinstance(error, KeyboardInterrupt):
                raise
        update(self.jobs)

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
        return [job for job in self.jobs if job.state == "running"]

    def stop(self, update: Callable[[Sequence[Job]], None], pause: float) -> None:
        """Let every run save its state and end."""
        self._cancel(kill=False)
        try:
            while self.running():
                for job in self.running():
                    self._update(job, stopping=True)
                update(self.jobs)
                time.sleep(pause)
        except KeyboardInterrupt:
            self._cancel(kill=True)
            for job in self.running():
                job.state = "stopped"

    def _cancel(self, *, kill: bool) -> None:
        for job in self.running():
            if job.process:
                job.process.cancel(kill=kill)

    def _update(self, job: Job, *, stopping: bool = False) -> None:
        end = job.process.poll() if job.process else AGAIN
        job.progress, job.seconds = read_progress(job.folder), time.monotonic() - job.started
        if end is None:
            return
        job.process = None
        if job.done and end in (0, AGAIN):
            job.state = "finished"
        elif stopping or end == STOPPED:
            job.state = "stopped"
        elif end == AGAIN:
            job.state = "waiting"
        else:
            job.state = "failed"
            job.reason = end if isinstance(end, str) else f"ended by signal {-end}" if end < 0 else f"exit code {end}"

    def _start(self, job: Job) -> None:
        """Start a job, unless there is no room or it has to wait for the base step of another one."""
        group = [other for other in self.jobs if other.base == job.base and other is not job]
        trained = next((other for other in group if other.progress.finished), None)
        producer = trained or next((other for other in group if other.state == "running"), None)
        source = None if job.progress.begun else producer
        ready = source is trained or source is None
        shared = not source and not job.progress.finished and any(other.state == "waiting" for other in group)
        job.process = self.launcher.start(job.name, source.name if source else None, ready=ready, shared=shared)
        if job.process:
            job.state, job.reason, job.started = "running", "", time.monotonic()
        else:
            job.reason = f"for {source.name}" if source and not ready else ""
