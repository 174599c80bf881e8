"""Processes and jobs that are started for runs, with commands that take no time."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ipseg.errors import UserError
from ipseg.sweep import slurm
from ipseg.sweep.launchers import AGAIN, ForeignJob, LocalPool, make_slots
from ipseg.sweep.slurm import SlurmLauncher, one_task_per_node

SAY = "import os; print(os.environ['OMP_NUM_THREADS'], os.environ.get('CUDA_VISIBLE_DEVICES'), flush=True); "


def end_of(process) -> int | str:
    for _ in range(400):
        if (end := process.poll()) is not None:
            return end
        time.sleep(0.02)
    raise AssertionError("it does not end")


def start(launcher, name: str = "one", source: str | None = None, *, ready: bool = True, shared: bool = False):
    return launcher.start(name, source, ready=ready, shared=shared)


# ---- this machine ---------------------------------------------------------------------------------------------------


@pytest.fixture
def pool(tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 8)

    def make(code: str, *slots: list[str]) -> LocalPool:
        return LocalPool(tmp_path, slots, lambda _name, _source: ["-c", SAY + code])

    return make


def test_a_run_gets_its_gpu_its_share_of_the_cores_and_its_log(pool, tmp_path):
    machine = pool("raise SystemExit(3)", ["5"], [])
    first, second = start(machine), start(machine, "two")
    assert (end_of(first), end_of(second)) == (3, 3)
    assert (tmp_path / "logs" / "one.log").read_text() == "4 5\n"
    assert (tmp_path / "logs" / "two.log").read_text().startswith("4 ")


def test_a_run_that_a_dead_sweep_left_running_is_not_started_twice(pool):
    machine = pool("import time; time.sleep(60)", [], [], [])
    left, again, other = start(machine), start(machine), start(machine)
    assert isinstance(again, ForeignJob)
    assert again.poll() is None
    assert start(machine, "two") is None  # those that are waited for take up cores and GPUs as if they were ours
    other.cancel(kill=True)
    assert other.poll() == AGAIN  # no longer waited for
    assert left.poll() is None  # and not touched
    left.cancel(kill=False)
    assert end_of(left) == -15
    assert end_of(again) == AGAIN


def test_a_slot_is_free_when_its_run_has_ended_and_for_runs_that_have_their_base_step(pool):
    machine = pool("import time; time.sleep(60)", [])
    assert start(machine, "two", "one", ready=False) is None
    process = start(machine)
    assert start(machine, "two") is None
    process.cancel(kill=True)
    assert end_of(process) == -9
    (last := start(machine, "two")).cancel(kill=True)
    end_of(last)


def test_where_logs_cannot_be_locked_a_sweep_says_so(pool, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as on Windows
    with pytest.raises(UserError, match=r"no fcntl.*use WSL"):
        start(pool("", []))


def test_on_a_file_system_without_locks_runs_start_all_the_same(pool, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", flock)
    assert end_of(start(pool("", []))) == 0


def test_the_demo_starts_where_logs_cannot_be_locked():
    code = "import sys; sys.modules['fcntl'] = None; import ipseg.apps.demo"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_slots_are_dealt_out_over_the_gpus():
    assert make_slots(["0", "3"], None, 2) == [["0"], ["3"], ["0"], ["3"]]
    assert make_slots(["0", "3"], 3, 2) == [["0"], ["3"], ["0"]]
    assert make_slots([], 2, 4) == [(), ()]
    assert len(make_slots([], None, 4)) == 1
    assert make_slots(list("01234"), None, processes=2) == [["0", "1"], ["2", "3"]]
    with pytest.raises(UserError, match="--processes-per-run 4 needs as many GPUs; visible are 2"):
        make_slots(["0", "1"], None, processes=4)


def test_the_gpus_of_a_run_are_handed_to_torchrun(pool, monkeypatch):
    commands = []

    class Popen:
        def __init__(self, command, env, **_):
            commands.append((command, env["CUDA_VISIBLE_DEVICES"], env["OMP_NUM_THREADS"], env["PYTHONSAFEPATH"]))
            self.signals: list[int] = []

        def send_signal(self, number: int) -> None:
            self.signals.append(number)

    monkeypatch.setattr("subprocess.Popen", Popen)
    machine = pool("", ["2", "5"])
    machine.processes = 2
    job = start(machine)
    ((command, *environment),) = commands
    assert command[:6] == [sys.executable, "-P", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    assert environment == ["2,5", "8", "1"]
    job.cancel(kill=False)
    job.cancel(kill=True)  # torchrun kills its processes itself; without it they would go on
    assert job.process.signals == [signal.SIGTERM]


# ---- SLURM, with commands that pretend; tests/slurm has a real one ---------------------------------------------------

SBATCH = """\
number=$(($(cat "$DIR/number" 2>/dev/null || echo 40) + 1))
echo $number >"$DIR/number"
for last; do :; done
echo "$@" >"$DIR/$number.options"
echo "$number;cluster"
touch "$DIR/queue/$number"
{
    env -i SLURM_JOB_ID=$number SLURM_EXPORT_ENV=NONE /bin/bash "$last"
    rm "$DIR/queue/$number"
} >"$DIR/$number.log" 2>&1 &
"""


@pytest.fixture
def cluster(tmp_path, monkeypatch) -> Path:
    """A SLURM that starts every job at once, with --export=NONE: its variables are those of its script."""
    commands = {
        "sbatch": SBATCH,
        "squeue": '#!/bin/sh\nls "$DIR/queue"\n',
        "scancel": '#!/bin/sh\necho "$@" >>"$DIR/canceled"\n',
    }
    folder = tmp_path / "cluster"
    (folder / "queue").mkdir(parents=True)
    for name, text in commands.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("DIR", str(folder))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    for name in ("POLL_SECONDS", "GRACE_SECONDS"):
        monkeypatch.setattr(slurm, name, 0.1)
    return folder


def slurm_launcher(tmp_path: Path, code: str = "", *, options: dict | None = None, jobs: int | None = None):
    command = lambda name, _source: ["-c", f"import os; name = '{name}'; {code}"]  # noqa: E731
    return SlurmLauncher(tmp_path / "out", options or {}, command, jobs=jobs)


def test_jobs_are_submitted_and_their_exit_codes_come_back(cluster, tmp_path):
    options = {"timeout_min": 5, "exclusive": True}
    wait = f"exec(\"import time\\nwhile not os.path.exists('{tmp_path}/go'): time.sleep(0.02)\")"
    machine = slurm_launcher(tmp_path, f"{wait}; raise SystemExit(len(name))", options=options, jobs=2)
    jobs = [start(machine, "a"), start(machine, "four")]
    assert start(machine, "third") is None
    (tmp_path / "go").touch()
    assert [end_of(job) for job in jobs] == [1, 4]
    assert end_of(start(machine, "third")) == 5
    options = (cluster / "42.options").read_text()
    assert "--job-name=ipseg-four" in options
    assert f"--output={tmp_path}/out/logs/four.log" in options
    assert "--time=5 --exclusive" in options
    assert "--dependency" not in options


def test_a_job_has_its_variables_without_those_of_the_shell_that_submitted_it(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/some where")
    monkeypatch.setenv("MY_TOKEN", "secret")
    names = "('PYTHONPATH', 'PYTHONSAFEPATH', 'SLURM_EXPORT_ENV', 'MY_TOKEN', 'MODULE')"
    machine = slurm_launcher(
        tmp_path, f"print([os.environ.get(key) for key in {names}])", options={"setup": ["export MODULE=loaded"]}
    )
    assert end_of(start(machine)) == 0
    assert (cluster / "41.log").read_text() == "['/some where', '1', None, None, 'loaded']\n"
    assert "secret" not in (tmp_path / "out" / "slurm" / "one.sh").read_text()


def test_a_shared_base_step_is_a_job_of_its_own_on_which_the_others_depend(cluster, tmp_path):
    machine = slurm_launcher(tmp_path, "import time; time.sleep(1)")
    job, other = start(machine, shared=True), start(machine, "two", "one", ready=False)
    assert [(cluster / f"{number}.options").read_text().count("afterok:41 ") for number in (41, 42, 43)] == [0, 1, 1]
    assert "--steps 1" in (tmp_path / "out" / "slurm" / "one.base_step.sh").read_text()
    job.cancel(kill=False)
    assert (cluster / "canceled").read_text() == "42 41\n"
    assert (end_of(job), end_of(other)) == (0, 0)


def test_slurm_where_there_is_none_is_explained(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="--engine slurm: there is no squeue here"):
        slurm_launcher(tmp_path)


def test_the_processes_of_a_run_on_one_node_are_the_tasks_that_were_asked_for():
    options = {"nodes": 2, "tasks_per_node": 4, "cpus_per_task": 6, "gpus-per-task": 1, "mem_gb": 8}
    assert one_task_per_node(options) == (
        {"nodes": 2, "ntasks_per_node": 1, "cpus_per_task": 24, "gpus_per_node": 4, "mem": "8G"},
        4,
    )
    assert one_task_per_node({"ntasks_per_node": 2}) == ({"ntasks_per_node": 1, "cpus_per_task": 2}, 2)
    assert one_task_per_node({"cpus_per_task": 6}) == ({"ntasks_per_node": 1, "cpus_per_task": 6}, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks_per_node": 0}, "tasks_per_node is 0; it must be a whole number, at least 1"),
        ({"cpus_per_task": "two"}, "cpus_per_task is 'two'; it must be a whole number"),
        ({"max_requeues": -1}, "max_requeues is -1; it must be a whole number, at least 0"),
        ({"ntasks": 2}, "name nodes=N and tasks_per_node=M instead"),
    ],
)
def test_options_that_no_job_can_have_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        one_task_per_node(options)
