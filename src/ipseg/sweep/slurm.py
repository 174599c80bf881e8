"""Runs as SLURM jobs, each a shell script in the sweep's folder, submitted by sbatch.

A job has one task per node, which starts torchrun for several processes or nodes. Before the time limit SLURM signals
the script: it lets the run save its state and requeues the job.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ipseg.errors import UserError
from ipseg.files import appending, write_text
from ipseg.sweep.launchers import TrainCommand, child_environment, log_file, python_command, torchrun_options

MAX_REQUEUES = 100
"""By default, of a job that runs out of time. A run that no limit suffices for must not be requeued for ever."""
SIGNAL_SECONDS = 90
"""By default, before the time limit."""
POLL_SECONDS = 5.0
"""Between two questions to SLURM's controller, about all jobs at once."""
GRACE_SECONDS = 5.0
"""Until the exit code of an ended job shows in a shared file system."""
CANCEL_SECONDS = 60.0
"""Until a job that is still there is canceled again. SLURM gives a run 30 seconds to save its state."""
PASSED = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "OMP_NUM_THREADS", "IPSEG_CACHE", "XDG_CACHE_HOME", "TORCH_HOME",
          "HF_HOME")  # fmt: skip
"""Variables that a job needs even with --export=NONE. No others: a script in a folder is no place for secrets."""
OTHER_NAMES = {"timeout_min": "time", "ntasks_per_node": "tasks_per_node"}

SCRIPT = """\
#!/bin/bash
# A run of `ipseg sweep`.
unset SLURM_EXPORT_ENV  # of --export=NONE, which srun would apply to what follows
{environment}
{setup}
cd {folder} || exit 1
{command} &
process=$!
trap 'kill -TERM $process' TERM
trap 'kill -TERM $process; requeue=1' USR1  # the time limit is near
wait $process
while kill -0 $process 2>/dev/null; do wait $process; done  # a trap ends the wait before the process has ended
wait $process
code=$?
if [ "$requeue" ] && [ $code != 0 ] && [ "${{SLURM_RESTART_COUNT:-0}}" -lt {requeues} ]; then
    scontrol requeue "$SLURM_JOB_ID" && exit
fi
echo $code >{exit_file}
exit $code  # SLURM starts no job that depends on one that failed
"""
ON_EACH_NODE = (  # torchrun takes what its command leaves out from PET_...; jobs that share a node need different ports
    "PET_NNODES=$SLURM_JOB_NUM_NODES PET_NODE_RANK=$SLURM_NODEID PET_MASTER_ADDR=$SLURM_LAUNCH_NODE_IPADDR "
    'PET_MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000)) exec "$@"'
)


class SlurmLauncher:
    """Submits `ipseg train`; SLURM decides where and when."""

    def __init__(
        self,
        out: Path,
        options: Mapping[str, Any],
        command: TrainCommand,
        *,
        jobs: int | None = None,
    ) -> None:
        self.out, self.command, self.jobs = out.absolute(), command, jobs
        self.folder = self.out / "slurm"
        self.options, self.processes = one_task_per_node(options)
        self.requeues = self.options.pop("max_requeues", MAX_REQUEUES)
        self.signal_seconds = self.options.pop("signal_delay_s", SIGNAL_SECONDS)
        setup = self.options.pop("setup", "")
        self.setup = setup if isinstance(setup, str) else "\n".join(map(str, setup))
        self.queue = Queue()
        self._jobs: list[SlurmJob] = []
        self._base_steps: dict[str, SlurmJob] = {}
        """Base steps that are jobs of their own, by the run that they belong to."""

    def start(self, name: str, source: str | None, *, ready: bool, shared: bool) -> SlurmJob | None:
        """Submit a run, after its base step if that is shared; or watch the jobs that an earlier sweep submitted.

        Jobs without a node wait in SLURM's queue; here they wait for --jobs alone, and for the base step of a job that
        was submitted before others shared it.
        """
        after = self._base_steps.get(source or name)
        if not ready and (after is None or after.poll() not in (None, 0)):
            return None
        if self.jobs is not None and sum(job.poll() is None for job in self._jobs) >= self.jobs:
            return None
        base_name = f"{name}.base_step"
        job, base = self._submitted_before(name), self._submitted_before(base_name)
        if shared and not job and not base:
            base = self._submit(base_name, name, [*self.command(name, None), "--steps", "1"])
        if base:
            self._base_steps[name] = after = base
        if job is None:
            job = self._submit(name, name, self.command(name, source), after)
        self._jobs.append(job)
        return job

    def _submitted_before(self, name: str) -> SlurmJob | None:
        note = self.folder / f"{name}.job"
        number = note.read_text(encoding="utf-8").strip() if note.is_file() else ""
        return SlurmJob(number, self.folder / f"{name}.exit", self.queue) if number in self.queue else None

    def _submit(self, name: str, run: str, arguments: Sequence[str], after: SlurmJob | None = None) -> SlurmJob:
        script, exit_file = (self.folder / f"{name}.{ending}" for ending in ("sh", "exit"))
        log = log_file(self.out, run)
        appending(log).close()  # SLURM would write through a link
        self.folder.mkdir(exist_ok=True)
        exit_file.unlink(missing_ok=True)
        write_text(script, self._script(arguments, exit_file))
        options = {
            "job_name": f"ipseg-{name}"[:60],
            "output": str(log).replace("%", "%%"),  # %j would be the job's number
            "open_mode": "append",
            "requeue": True,
            "kill_on_invalid_dep": "yes",
            "signal": f"B:USR1@{self.signal_seconds}",
            "dependency": f"afterok:{after.number}" if after and after.poll() is None else None,
        } | self.options
        answer = ask_slurm("sbatch", "--parsable", *sbatch_flags(options), str(script))
        number = answer.partition(";")[0].strip()  # NUMBER;CLUSTER
        self.queue.add(number)
        write_text(self.folder / f"{name}.job", number)
        return SlurmJob(number, exit_file, self.queue, after)

    def _script(self, arguments: Sequence[str], exit_file: Path) -> str:
        passed = {name: os.environ[name] for name in PASSED if name in os.environ} | child_environment()
        if self.options.get("nodes", 1) in (1, "1"):
            command = shlex.join(python_command(arguments, torchrun_options(self.processes)))
        else:
            torchrun = shlex.join(python_command(arguments, [f"--nproc-per-node={self.processes}"]))
            command = (
                f"srun --cpus-per-task=${{SLURM_CPUS_PER_TASK:-1}} bash -c {shlex.quote(ON_EACH_NODE)} - {torchrun}"
            )
        return SCRIPT.format(
            environment="\n".join(f"export {name}={shlex.quote(value)}" for name, value in passed.items()),
            setup=self.setup,
            folder=shlex.quote(str(Path.cwd())),
            command=command,
            requeues=self.requeues,
            exit_file=shlex.quote(str(exit_file)),
        )


def one_task_per_node(options: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """Options of a job whose task starts `tasks_per_node` processes with torchrun, and that number."""
    named = {OTHER_NAMES.get(name := key.replace("-", "_"), name): value for key, value in options.items()}
    if "ntasks" in named:
        raise UserError("--slurm ntasks: name nodes=N and tasks_per_node=M instead.")
    for key, least in {"tasks_per_node": 1, "cpus_per_task": 1, "signal_delay_s": 1, "max_requeues": 0}.items():
        if not isinstance(value := named.get(key, least), int) or value < least:
            raise UserError(f"--slurm {key} is {value!r}; it must be a whole number, at least {least}.")
    processes = named.pop("tasks_per_node", 1)
    if processes > 1:
        named["cpus_per_task"] = processes * named.get("cpus_per_task", 1)
        if "gpus_per_task" in named:
            named["gpus_per_node"] = processes * named.pop("gpus_per_task")
    if "mem_gb" in named:
        named["mem"] = f"{named.pop('mem_gb')}G"
    return named | {"ntasks_per_node": 1}, processes


def sbatch_flags(options: Mapping[str, Any]) -> list[str]:
    """Options as sbatch takes them.

    >>> sbatch_flags({"gpus_per_node": 2, "exclusive": True, "requeue": False, "dependency": None})
    ['--gpus-per-node=2', '--exclusive']
    """
    flags = {f"--{key.replace('_', '-')}": value for key, value in options.items() if value not in (None, False)}
    return [flag if value is True else f"{flag}={value}" for flag, value in flags.items()]


def ask_slurm(*command: str) -> str:
    """Run a command of SLURM and return its output."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603
    except FileNotFoundError as error:
        raise UserError(f"--engine slurm: there is no {command[0]} here. Start the sweep where SLURM is.") from error
    except subprocess.CalledProcessError as error:
        raise UserError(
            f"SLURM refused it: {error.stderr.strip()} The options are `slurm` in the grid and --slurm."
        ) from error


class Queue:
    """The user's jobs that have not ended, by squeue: sacct needs a database that not all clusters have."""

    def __init__(self) -> None:
        self._refresh()

    def _refresh(self) -> None:
        self._asked = time.monotonic()
        self._jobs = set(ask_slurm("squeue", "--me", "--noheader", "--format=%i").split())

    def add(self, number: str) -> None:
        self._jobs.add(number)

    def __contains__(self, number: str) -> bool:
        if time.monotonic() - self._asked >= POLL_SECONDS:
            with suppress(UserError):  # a controller that does not answer now has ended no job
                self._refresh()
        return number in self._jobs


@dataclass
class SlurmJob:
    number: str
    exit_file: Path
    queue: Queue
    after: SlurmJob | None = None
    _gone: float = 0.0
    _canceled: float = 0.0

    def poll(self) -> int | str | None:
        """Its exit code, which the script writes; why there is none if SLURM ended it or never started it."""
        try:
            return int(self.exit_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):  # not written, or not yet visible in a shared file system
            pass
        now = time.monotonic()
        if self.number in self.queue:
            if self._canceled and now - self._canceled > CANCEL_SECONDS:
                self.cancel(kill=False)  # it had just requeued itself, which outlives a scancel
            return None
        self._gone = self._gone or now
        if now - self._gone < GRACE_SECONDS:
            return None
        return "its base step failed" if self.after and self.after.poll() not in (None, 0) else "ended by SLURM"

    def cancel(self, *, kill: bool) -> None:
        """SLURM sends SIGTERM, and kills after a while."""
        self._canceled = time.monotonic()
        with suppress(UserError):  # they may have ended meanwhile
            ask_slurm("scancel", *(job.number for job in (self, self.after) if job))
