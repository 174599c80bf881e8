"""Processes and jobs that are started for runs, with commands that take no time."""

from __future__ import annotations

import errno
import importlib.util
import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from ipseg.apps.sweep import Resources
from ipseg.errors import UserError
from ipseg.sweep.launchers import ForeignJob, LocalPool, Slot
from ipseg.sweep.progress import Progress, ProgressView, jobs_table, read_progress
from ipseg.sweep.schedule import RETRY, TAIL, Job
from ipseg.sweep.slurm import SlurmLauncher, one_task_per_node

SAY = "import os; print(os.environ['OMP_NUM_THREADS'], os.environ.get('CUDA_VISIBLE_DEVICES'), flush=True); "


def end_of(process) -> int | str:
    for _ in range(400):
        if (code := process.poll()) is not None:
            return code
        time.sleep(0.02)
    raise AssertionError("it does not end")


@pytest.fixture
def launcher(tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 8)

    def make(code: str, *slots: Slot) -> LocalPool:
        return LocalPool(
            slots, lambda _name, _source: ["-c", SAY + code], lambda name: tmp_path / "logs" / f"{name}.log"
        )

    return make


def test_a_run_gets_its_gpu_its_share_of_the_cores_and_its_log(launcher, tmp_path):
    machine = launcher("raise SystemExit(3)", Slot(["5"]), Slot())
    first, second = machine.submit("one", None), machine.submit("two", None)
    assert (end_of(first), end_of(second)) == (3, 3)
    assert (tmp_path / "logs" / "one.log").read_text() == "4 5\n"
    assert (tmp_path / "logs" / "two.log").read_text().startswith("4 ")


def test_a_run_that_a_dead_sweep_left_under_way_is_not_started_twice(launcher):
    machine = launcher("import time; time.sleep(60)", Slot(), Slot(), Slot())
    left = machine.submit("one", None)
    again = machine.submit("one", None)
    assert isinstance(again, ForeignJob)
    assert again.poll() is None
    other = machine.submit("one", None)
    assert not machine.has_slot()  # it takes up cores and GPU as if it were ours
    other.cancel(kill=True)
    assert other.poll() == RETRY  # no longer waited for
    assert left.poll() is None  # and not touched
    left.cancel(kill=False)
    assert end_of(left) == -15
    assert end_of(again) == RETRY
    assert machine.has_slot()


def test_a_slot_is_free_when_its_run_has_ended(launcher):
    machine = launcher("import time; time.sleep(60)", Slot())
    assert machine.has_slot()
    process = machine.submit("one", None)
    assert not machine.has_slot()
    process.cancel(kill=True)
    end_of(process)
    assert machine.has_slot()


def test_where_logs_cannot_be_locked_a_sweep_says_so(launcher, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as on Windows
    with pytest.raises(UserError, match=r"no fcntl.*use WSL"):
        launcher("", Slot()).submit("one", None)


def test_on_a_file_system_without_locks_runs_start_all_the_same(launcher, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", flock)
    assert end_of(launcher("", Slot()).submit("one", None)) == 0


def test_the_demo_starts_where_logs_cannot_be_locked():
    code = "import sys; sys.modules['fcntl'] = None; import ipseg.apps.demo"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(importlib.util.find_spec("submitit") is None, reason="the extra `slurm` is not installed")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")  # of submitit
def test_jobs_are_submitted_and_their_exit_codes_come_back(tmp_path):
    def command(name: str, _source: str | None) -> list[str]:
        return ["-c", f"print('{name}'); raise SystemExit({len(name) - 1})"]

    options = {"timeout_min": 5, "partition": "gpu"}
    machine = SlurmLauncher(
        tmp_path / "slurm", options, command, lambda name: tmp_path / f"{name}.log", jobs=2, cluster="local"
    )
    processes = {name: machine.submit(name, None) for name in ("a", "four")}
    assert {name: end_of(process) for name, process in processes.items()} == {"a": 0, "four": 3}
    assert (tmp_path / "four.log").read_text() == "four\n"
    assert machine.has_slot()


def test_the_processes_of_a_run_on_one_node_are_the_tasks_that_were_asked_for():
    options = {"nodes": 2, "tasks_per_node": 4, "cpus_per_task": 6, "gpus_per_task": 1, "partition": "gpu"}
    assert one_task_per_node(options) == (
        {"nodes": 2, "tasks_per_node": 1, "cpus_per_task": 24, "gpus_per_node": 4, "partition": "gpu"},
        4,
    )
    assert one_task_per_node({"ntasks_per_node": 2}) == ({"tasks_per_node": 1, "cpus_per_task": 2}, 2)
    assert one_task_per_node({"cpus_per_task": 6}) == ({"tasks_per_node": 1, "cpus_per_task": 6}, 1)
    with pytest.raises(UserError, match="tasks_per_node is 0; it must be at least 1"):
        one_task_per_node({"tasks_per_node": 0})
    with pytest.raises(UserError, match="cpus_per_task is 'two'; it must be a whole number"):
        one_task_per_node({"cpus_per_task": "two"})
    with pytest.raises(UserError, match="name nodes=N and tasks_per_node=M instead"):
        one_task_per_node({"ntasks": 2})


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"jobs": 0}, "--jobs is 0"),
        ({"processes_per_run": 0}, "--processes-per-run is 0"),
        ({"jobs_per_gpu": 2, "processes_per_run": 2}, "several runs share a GPU, or one has several"),
        ({"engine": "slurm", "processes_per_run": 2}, "with SLURM use --slurm tasks_per_node=N"),
        ({"detach": True}, "--detach submits all jobs at once"),
        ({"detach": True, "engine": "slurm", "jobs": 2}, "no --jobs"),
    ],
)
def test_options_that_contradict_each_other_are_refused(wanted, message):
    with pytest.raises(UserError, match=message):
        Resources(**wanted)


def test_the_gpus_of_a_run_are_handed_to_torchrun(launcher, tmp_path, monkeypatch):
    commands = []

    class Popen:
        def __init__(self, command, env, **_):
            commands.append((command, env["CUDA_VISIBLE_DEVICES"], env["OMP_NUM_THREADS"], env["PYTHONSAFEPATH"]))
            self.signals: list[int] = []

        def send_signal(self, number: int) -> None:
            self.signals.append(number)

    monkeypatch.setattr("subprocess.Popen", Popen)
    machine = launcher("", Slot(["2", "5"]))
    machine.processes = 2
    job = machine.submit("one", None)
    ((command, *environment),) = commands
    assert command[:6] == [sys.executable, "-P", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    assert environment == ["2,5", "8", "1"]
    job.cancel(kill=False)
    job.cancel(kill=True)  # torchrun kills its processes itself; without it they would go on
    assert job.process.signals == [signal.SIGTERM]


def test_slurm_where_there_is_none_is_explained(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match=r"SLURM cannot be used so|needs the extra `slurm`"):
        SlurmLauncher(tmp_path, {}, lambda _name, _source: [], lambda name: tmp_path / name)


# ---- what is seen ---------------------------------------------------------------------------------------------------


def test_how_far_a_run_is_stands_in_its_folder(tmp_path, tiny_run):
    assert read_progress(tmp_path) == Progress()
    assert (read_progress(tiny_run).begun, read_progress(tiny_run).finished) == (True, 3)
    assert read_progress(tiny_run).miou == json.loads((tiny_run / "results.json").read_text())["final"]["miou"]["all"]
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "log.jsonl").write_text('{"step": 0, "iteration": 30, "of": 40}\n{"step": 0, "itera')
    assert read_progress(tmp_path) == Progress(begun=True, share=0.75)


def test_the_last_words_of_a_run_are_the_last_lines_of_its_log(tmp_path):
    job = Job("one", "x", 4, tmp_path / "one.log")
    assert job.log_tail() == []
    job.log.write_bytes(b"early\n" * TAIL + b"\xff late\n\n  \n")
    assert job.log_tail() == ["early"] * (TAIL - 1) + ["\ufffd late"]
    job.log.write_text("early\nipseg: what is wrong\n  and what to do\n" + "torchrun's summary\n" * TAIL)
    assert job.log_tail()[:2] == ["ipseg: what is wrong", "  and what to do"]


def jobs(*states: str) -> list[Job]:
    return [Job(f"run{i}", "x", 4, Path("log"), state=state) for i, state in enumerate(states)]  # type: ignore[arg-type]


def test_where_there_is_no_terminal_each_news_is_one_line():
    console = Console(file=io.StringIO(), force_terminal=False)
    shown = jobs("waiting", "running")
    with ProgressView(console) as view:
        view.show(shown)
        view.show(shown)
        shown[1].progress, shown[1].seconds = Progress(begun=True, finished=2, miou=0.5), 62
        view.show(shown)
        shown[1].state, shown[1].reason = "failed", "exit code 2"
        view.show(shown)
    assert console.file.getvalue().splitlines() == [  # type: ignore[attr-defined]
        "run1: running, step 0 of 4",
        "run1: running, step 2 of 4, mIoU 50.0, 1 min 2 s",
        "run1: failed (exit code 2), step 2 of 4, mIoU 50.0, 1 min 2 s",
    ]


def test_of_more_runs_than_fit_those_that_matter_are_shown():
    console = Console(file=io.StringIO(), width=100)
    console.print(jobs_table(jobs(*["finished"] * 30, "running", "failed", *["waiting"] * 30), rows=4))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert [word for word in ("run30", "run31", "run32", "run33") if word not in text] == []
    assert "run0 " not in text
    assert "30 finished · 1 running · 30 waiting · 1 failed" in text
