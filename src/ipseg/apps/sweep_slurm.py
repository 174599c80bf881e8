"""Runs of a sweep as jobs of SLURM, through submitit (the extra `slurm`)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ipseg.apps.sweep_local import Command
from ipseg.errors import UserError
from ipseg.files import appending, write_text
from ipseg.own_code import environment

GENERAL = ("timeout_min", "mem_gb", "nodes", "cpus_per_task", "gpus_per_node", "tasks_per_node")
"""Options that submitit knows for every engine; others are SLURM's own and get its prefix."""


def run_command(command: list[str], log: str, environment: Mapping[str, str]) -> int:
    """What a job does, on the machine that SLURM chose."""
    with appending(Path(log)) as file:
        ended = subprocess.run(  # noqa: S603 - our own interpreter and module
            command, stdout=file, stderr=subprocess.STDOUT, check=False, env=os.environ | environment
        )
    return ended.returncode


class SlurmLauncher:
    """Submits `ipseg train`; SLURM decides where and when."""

    def __init__(
        self,
        folder: Path,
        options: Mapping[str, Any],
        command: Command,
        log: Callable[[str], Path],
        *,
        jobs: int | None = None,
        cluster: str = "slurm",
    ) -> None:
        try:
            import submitit
        except ImportError as error:
            raise UserError("--engine slurm needs the extra `slurm`: pip install ipseg[slurm]") from error
        self.folder, self.command, self.log, self.jobs, self.cluster = folder, command, log, jobs, cluster
        try:
            self.executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
            named = {key if key in GENERAL else f"slurm_{key}": value for key, value in options.items()}
            self.executor.update_parameters(**named)
        except (NameError, RuntimeError, TypeError, AssertionError) as error:
            raise UserError(
                f"SLURM cannot be used so: {error} The options are `slurm` in the grid and --slurm."
            ) from error
        self._under_way: list[SlurmProcess] = []

    def room(self) -> bool:
        """As many as wanted: what has no room waits in SLURM's queue."""
        self._under_way = [process for process in self._under_way if process.poll() is None]
        return self.jobs is None or len(self._under_way) < self.jobs

    def start(self, name: str, init: str | None) -> SlurmProcess:
        """Submit a run; one that an earlier sweep has submitted, and that still waits or runs, is waited for."""
        process = self._submitted_before(name)
        if process is None:
            log = self.log(name)
            log.parent.mkdir(parents=True, exist_ok=True)
            self.executor.update_parameters(name=f"ipseg-{name}"[:60])
            job = self.executor.submit(run_command, self.command(name, init), str(log), environment())
            self.folder.mkdir(parents=True, exist_ok=True)
            write_text(self._note(name), job.job_id)
            process = SlurmProcess(job)
        self._under_way.append(process)
        return process

    def _submitted_before(self, name: str) -> SlurmProcess | None:
        if self.cluster != "slurm" or not self._note(name).is_file():
            return None
        import submitit

        number = self._note(name).read_text(encoding="utf-8").strip()
        process = SlurmProcess(submitit.SlurmJob(self.folder, number))
        return process if process.poll() is None else None

    def _note(self, name: str) -> Path:
        return self.folder / f"{name}.job"


class SlurmProcess:
    """A run as a job."""

    def __init__(self, job: Any) -> None:
        self.job = job

    def poll(self) -> int | None:
        """Its exit code; 1 if SLURM ended it."""
        import submitit

        if not self.job.done():
            return None
        try:
            return int(self.job.result())
        except (submitit.core.utils.UncompletedJobError, submitit.core.utils.FailedJobError):
            return 1

    def stop(self, *, now: bool) -> None:
        """SLURM sends SIGTERM, and kills after a while."""
        self.job.cancel()
