"""Runs as SLURM jobs, by submitit (the extra `slurm`).

A job has one task per node. With several processes per node, or several nodes, that task starts torchrun. Before its
time limit, SLURM sends a signal; the run saves its state, and the job requeues itself (submitit's `checkpoint`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

from ipseg.errors import UserError, require_at_least
from ipseg.files import appending, write_text
from ipseg.sweep.launchers import RETRY, Handle, TrainArguments, child_environment, python_command

GENERAL = ("timeout_min", "mem_gb", "nodes", "cpus_per_task", "gpus_per_node", "tasks_per_node")
"""Options that submitit names alike for every cluster; others are SLURM's own and need a prefix."""
MAX_REQUEUES = 100
"""By default, of a job that runs out of time. A run that no limit suffices for must not be requeued for ever."""
POLL_SECONDS = 5.0
"""Between two questions to SLURM's controller, about all jobs at once."""
GRACE_SECONDS = 5.0
"""Until the result of an ended job shows in a shared file system."""
CANCEL_SECONDS = 60.0
"""Until a job that is still there is canceled again. SLURM gives a run 30 seconds to save its state."""


@dataclass
class TrainingTask:
    """What a job executes on each of its nodes."""

    arguments: Sequence[str]
    log: Path
    folder: Path
    """Where the exit code is written."""
    processes: int
    """Per node."""
    environment: Mapping[str, str]
    _process: int = field(default=0, init=False)

    def __call__(self) -> None:
        """Train until the end. The job fails if the run does, so that SLURM does not start jobs that depend on it."""
        import submitit

        job = submitit.JobEnvironment()
        # SLURM may send the signal before a time limit to all processes of a job; it is meant for this one alone.
        before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGUSR1, signal.SIGUSR2)}
        with appending(self.log) as file:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                python_command(self.arguments, self._torchrun(job)),
                stdout=file,
                stderr=subprocess.STDOUT,
                env=os.environ | self.environment,
            )
        self._process = process.pid
        signal.signal(signal.SIGTERM, self._terminate)  # with cgroups, scancel signals this process alone
        for number, handler in before.items():
            signal.signal(number, handler)
        code = process.wait()
        if job.global_rank == 0:  # alone: some clusters end a job with its first failed task
            write_text(_exit_file(self.folder, job.job_id), str(code))
            sys.exit(code)

    def checkpoint(self) -> Any:
        """Before the time limit: let the run save its state, and requeue the job with the same task."""
        import submitit

        with suppress(ProcessLookupError, ChildProcessError):
            self._terminate()
            os.waitid(os.P_PID, self._process, os.WEXITED | os.WNOWAIT)  # `wait` in __call__ reaps it
        return submitit.helpers.DelayedSubmission(replace(self))

    def _terminate(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGTERM)

    def _torchrun(self, job: Any) -> list[str]:
        if job.num_nodes == 1:
            return ["--standalone", f"--nproc-per-node={self.processes}"] if self.processes > 1 else []
        return [
            f"--nnodes={job.num_nodes}",
            f"--node-rank={job.node}",
            f"--nproc-per-node={self.processes}",
            f"--master-addr={os.environ.get('SLURM_LAUNCH_NODE_IPADDR') or job.hostnames[0]}",
            f"--master-port={20000 + int(job.raw_job_id) % 10000}",  # jobs that share a node need different ones
        ]


class SlurmLauncher:
    """Submits `ipseg train`; SLURM decides where and when."""

    dependencies = True

    def __init__(
        self,
        folder: Path,
        options: Mapping[str, Any],
        arguments: TrainArguments,
        log: Callable[[str], Path],
        *,
        jobs: int | None = None,
        cluster: str = "slurm",
    ) -> None:
        try:
            import submitit
        except ImportError as error:
            raise UserError("--engine slurm needs the extra `slurm`: pip install ipseg[slurm]") from error
        self.folder, self.arguments, self.log, self.jobs, self.cluster = folder, arguments, log, jobs, cluster
        named, self.processes = one_task_per_node(options)
        requeues = named.pop("max_requeues", MAX_REQUEUES)
        more = {"requeue": True, "kill-on-invalid-dep": "yes"} | dict(named.pop("additional_parameters", {}))
        try:
            self.executor = submitit.AutoExecutor(
                folder=folder,
                cluster=cluster,
                slurm_max_num_timeout=requeues,
                slurm_python=f"'{sys.executable}' -P",  # as `python_command`
            )
            self.executor.update_parameters(
                slurm_additional_parameters=more,
                **{key if key in GENERAL else f"slurm_{key}": value for key, value in named.items()},
            )
        except (NameError, RuntimeError, TypeError, ValueError, AssertionError) as error:
            raise UserError(
                f"SLURM cannot be used so: {error} The options are `slurm` in the grid and --slurm."
            ) from error
        self._queue, self._started = _Queue(), time.monotonic()
        self._submitted: list[SlurmJob] = []

    def has_slot(self) -> bool:
        """By --jobs alone: jobs without a node wait in SLURM's queue."""
        self._submitted = [job for job in self._submitted if job.poll() is None]
        return self.jobs is None or len(self._submitted) < self.jobs

    def submit(
        self, name: str, source: str | None, *, base_step: bool = False, after: Handle | None = None
    ) -> SlurmJob:
        """Submit a run. A job that an earlier sweep has submitted, and that has not ended, is watched instead."""
        note = self.folder / (f"{name}.base_step.job" if base_step else f"{name}.job")
        job = self._submitted_before(note)
        if job is None:
            arguments = self.arguments(name, source)
            self.log(name).parent.mkdir(parents=True, exist_ok=True)
            task = TrainingTask(
                arguments + (["--steps", "1"] if base_step else []),
                self.log(name).absolute(),
                self.folder.absolute(),
                self.processes,
                child_environment(),
            )
            dependency = f"afterok:{after.job.job_id}" if isinstance(after, SlurmJob) else None
            self.executor.update_parameters(name=f"ipseg-{name}"[:60], slurm_dependency=dependency)
            submitted = self._submit(task)
            self.folder.mkdir(parents=True, exist_ok=True)
            write_text(note, submitted.job_id)
            job = self._job(submitted, after)
        if not base_step:
            self._submitted.append(job)
        return job

    def _submit(self, task: TrainingTask) -> Any:
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        try:
            return self.executor.submit(task)
        except (FailedJobError, FailedSubmissionError) as error:
            raise UserError(
                f"SLURM refused a job: {str(error).strip()} The options are `slurm` in the grid and --slurm."
            ) from error

    def _submitted_before(self, note: Path) -> SlurmJob | None:
        if self.cluster != "slurm" or not note.is_file():
            return None
        import submitit

        number = note.read_text(encoding="utf-8").strip()
        job = self._job(submitit.SlurmJob(self.folder, number))
        job.since = self._started  # one question to SLURM answers for all of them
        return job if job.poll() is None else None

    def _job(self, submitted: Any, after: Handle | None = None) -> SlurmJob:
        queue = self._queue if self.cluster == "slurm" else None
        return SlurmJob(submitted, _exit_file(self.folder, submitted.job_id), queue, after)


def _exit_file(folder: Path, number: str) -> Path:
    return folder / f"{number}.exit"


def one_task_per_node(options: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """Options of a job whose task starts `tasks_per_node` processes with torchrun, and that number."""
    named = dict(options)
    if "ntasks" in named:
        raise UserError("--slurm ntasks: name nodes=N and tasks_per_node=M instead.")
    processes = named.pop("tasks_per_node", named.pop("ntasks_per_node", 1))
    for key, value in {"tasks_per_node": processes, "cpus_per_task": named.get("cpus_per_task", 1)}.items():
        if not isinstance(value, int):
            raise UserError(f"--slurm {key} is {value!r}; it must be a whole number.")
        require_at_least(f"--slurm {key}", value, 1)
    if processes > 1:
        named["cpus_per_task"] = processes * named.get("cpus_per_task", 1)
        if "gpus_per_task" in named:
            named["gpus_per_node"] = processes * named.pop("gpus_per_task")
    return named | {"tasks_per_node": 1}, processes


class _Queue:
    """The user's jobs that have not ended.

    squeue lists them; sacct, which submitit asks, needs a database that not all clusters have.
    """

    def __init__(self) -> None:
        self._asked = self._answered = -POLL_SECONDS
        self._active: set[str] = set()

    def ended(self, number: str, since: float) -> bool:
        """Whether a job that existed at that time has ended. An unreachable controller does not mean so."""
        now = time.monotonic()
        if now - self._asked >= POLL_SECONDS:
            self._asked = now
            command = ["squeue", "--me", "--noheader", "--format=%i"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
            if done.returncode == 0:
                self._answered, self._active = now, set(done.stdout.split())
        return self._answered >= since and number not in self._active


@dataclass
class SlurmJob:
    """A run as a job."""

    job: Any
    exit_file: Path
    queue: _Queue | None
    after: Handle | None = None
    since: float = field(default_factory=time.monotonic)
    _code: int | str | None = None
    _ended: float = 0.0
    _canceled: float = 0.0

    def poll(self) -> int | str | None:
        """Its exit code; 1 if SLURM ended it; RETRY if it never started because the job before it failed."""
        if self._code is None:
            self._code = self._poll()
        return self._code

    def _poll(self) -> int | str | None:
        try:
            return int(self.exit_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):  # not written, or not yet visible in a shared file system
            pass
        if not (self.queue.ended(self.job.job_id, self.since) if self.queue else self.job.done()):
            if self._canceled and time.monotonic() - self._canceled > CANCEL_SECONDS:
                self.cancel(kill=False)  # it had just requeued itself, which outlives a scancel
            return None
        self._ended = self._ended or time.monotonic()
        if time.monotonic() - self._ended < GRACE_SECONDS:
            return None
        return RETRY if self.after and self.after.poll() not in (None, 0) else 1

    def cancel(self, *, kill: bool) -> None:
        """SLURM sends SIGTERM, and kills after a while."""
        self._canceled = time.monotonic()
        self.job.cancel(check=False)  # it may have ended meanwhile
