"""Processes and jobs that are started for runs, with commands that take no time."""

from __future__ import annotations

import errno
import importlib.util
import io
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from ipseg.apps.sweep_local import ElsewhereProcess, LocalLauncher, Slot
from ipseg.apps.sweep_progress import View, look, picture
from ipseg.apps.sweep_schedule import AGAIN, TAIL, Job, Progress, last_words
from ipseg.apps.sweep_slurm import SlurmLauncher
from ipseg.errors import UserError

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

    def make(code: str, *slots: Slot) -> LocalLauncher:
        command = [sys.executable, "-c", SAY + code]
        return LocalLauncher(slots, lambda _name, _init: command, lambda name: tmp_path / "logs" / f"{name}.log")

    return make


def test_a_run_gets_its_gpu_its_share_of_the_cores_and_its_log(launcher, tmp_path):
    machine = launcher("raise SystemExit(3)", Slot("5"), Slot(None))
    first, second = machine.start("one", None), machine.start("two", None)
    assert (end_of(first), end_of(second)) == (3, 3)
    assert (tmp_path / "logs" / "one.log").read_text() == "4 5\n"
    assert (tmp_path / "logs" / "two.log").read_text().startswith("4 ")


def test_a_run_that_a_dead_sweep_left_under_way_is_not_started_twice(launcher):
    machine = launcher("import time; time.sleep(60)", Slot(None), Slot(None), Slot(None))
    left = machine.start("one", None)
    again = machine.start("one", None)
    assert isinstance(again, ElsewhereProcess)
    assert again.poll() is None
    other = machine.start("one", None)
    assert not machine.room()  # it takes up cores and GPU as if it were ours
    other.stop(now=True)
    assert other.poll() == AGAIN  # no longer waited for
    assert left.poll() is None  # and not touched
    left.stop(now=False)
    assert end_of(left) == -15
    assert end_of(again) == AGAIN
    assert machine.room()


def test_a_slot_is_free_when_its_run_has_ended(launcher):
    machine = launcher("import time; time.sleep(60)", Slot(None))
    assert machine.room()
    process = machine.start("one", None)
    assert not machine.room()
    process.stop(now=True)
    end_of(process)
    assert machine.room()


def test_where_logs_cannot_be_locked_a_sweep_says_so(launcher, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as on Windows
    with pytest.raises(UserError, match=r"no fcntl.*use WSL"):
        launcher("", Slot(None)).start("one", None)


def test_on_a_file_system_without_locks_runs_start_all_the_same(launcher, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", flock)
    assert end_of(launcher("", Slot(None)).start("one", None)) == 0


def test_the_demo_starts_where_logs_cannot_be_locked():
    code = "import sys; sys.modules['fcntl'] = None; import ipseg.apps.demo"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(importlib.util.find_spec("submitit") is None, reason="the extra `slurm` is not installed")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")  # of submitit
def test_jobs_are_submitted_and_their_exit_codes_come_back(tmp_path):
    def command(name: str, _init: str | None) -> list[str]:
        return [sys.executable, "-c", f"print('{name}'); raise SystemExit({len(name) - 1})"]

    options = {"timeout_min": 5, "partition": "gpu"}
    machine = SlurmLauncher(
        tmp_path / "slurm", options, command, lambda name: tmp_path / f"{name}.log", jobs=2, cluster="local"
    )
    processes = {name: machine.start(name, None) for name in ("a", "four")}
    assert {name: end_of(process) for name, process in processes.items()} == {"a": 0, "four": 3}
    assert (tmp_path / "four.log").read_text() == "four\n"
    assert machine.room()


def test_slurm_where_there_is_none_is_explained(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match=r"SLURM cannot be used so|needs the extra `slurm`"):
        SlurmLauncher(tmp_path, {}, lambda _name, _init: [], lambda name: tmp_path / name)


# ---- what is seen ---------------------------------------------------------------------------------------------------


def test_how_far_a_run_is_stands_in_its_folder(tmp_path, tiny_run):
    assert look(tmp_path) == Progress()
    assert (look(tiny_run).begun, look(tiny_run).finished) == (True, 3)
    assert look(tiny_run).miou == json.loads((tiny_run / "results.json").read_text())["final"]["miou"]["all"]
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "log.jsonl").write_text('{"step": 0, "iteration": 30, "of": 40}\n{"step": 0, "itera')
    assert look(tmp_path) == Progress(begun=True, share=0.75)


def test_the_last_words_of_a_run_are_the_last_lines_of_its_log(tmp_path):
    job = Job("one", "x", 4, tmp_path / "one.log")
    assert last_words(job) == []
    job.log.write_bytes(b"early\n" * TAIL + b"\xff late\n\n  \n")
    assert last_words(job) == ["early"] * (TAIL - 1) + ["\ufffd late"]


def jobs(*states: str) -> list[Job]:
    return [Job(f"run{i}", "x", 4, Path("log"), state=state) for i, state in enumerate(states)]  # type: ignore[arg-type]


def test_where_there_is_no_terminal_each_news_is_one_line():
    console = Console(file=io.StringIO(), force_terminal=False)
    shown = jobs("waiting", "running")
    with View(console) as view:
        view.tell(shown)
        view.tell(shown)
        shown[1].progress, shown[1].seconds = Progress(begun=True, finished=2, miou=0.5), 62
        view.tell(shown)
        shown[1].state, shown[1].why = "failed", "exit code 2"
        view.tell(shown)
    assert console.file.getvalue().splitlines() == [  # type: ignore[attr-defined]
        "run1: running, step 0 of 4",
        "run1: running, step 2 of 4, mIoU 50.0, 1 min 2 s",
        "run1: failed (exit code 2), step 2 of 4, mIoU 50.0, 1 min 2 s",
    ]


def test_of_more_runs_than_fit_those_that_matter_are_shown():
    console = Console(file=io.StringIO(), width=100)
    console.print(picture(jobs(*["finished"] * 30, "running", "failed", *["waiting"] * 30), rows=4))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert [word for word in ("run30", "run31", "run32", "run33") if word not in text] == []
    assert "run0 " not in text
    assert "30 finished · 1 running · 30 waiting · 1 failed" in text
