"""Sweeps on a real SLURM: a cluster of two nodes on this machine, started for these tests (`make test-slurm`)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

import ipseg

CLUSTER = Path(__file__).with_name("cluster.sh")
NEEDED = ("slurmctld", "slurmd", "sbatch", "munged")
PLACES = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
LACKING = [name for name in NEEDED if shutil.which(name, path=PLACES) is None]

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(LACKING), reason=f"no {', '.join(LACKING)}; Debian: apt-get install slurm-wlm munge"),
]

RUN = "ipseg_2-1_s0"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("slurm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        started = subprocess.run([CLUSTER, "start", folder], capture_output=True, text=True, check=False)
        assert started.returncode == 0, started.stdout + started.stderr
        yield
        subprocess.run([CLUSTER, "stop", folder], check=False)


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(cluster, tmp_path, tiny_settings) -> Start:
    """Starts a sweep of a grid with SLURM in tmp_path."""

    def sweep(*options: str, grid: str = "runs: {ipseg: {}}", training: dict | None = None) -> subprocess.Popen[str]:
        tiny_settings["training"] |= {"log_every": 1, "checkpoint_seconds": 0, "workers": 0} | (training or {})
        (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_settings))
        (tmp_path / "grid.yaml").write_text(f"base: tiny.yaml\n{grid}\n")
        command = [sys.executable, "-P", "-m", "ipseg", "sweep", "grid.yaml", "--out", "out", "--engine", "slurm"]
        environment = os.environ | {"PYTHONPATH": str(Path(ipseg.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            [*command, *options],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return sweep


def end_of(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=500)
    return process.returncode, output


def iterations(run: Path) -> list[tuple[int, int]]:
    """Steps and iterations in the order in which they were trained."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [(line["step"], line["iteration"]) for line in lines if line["event"] == "train"]


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    while not path.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)


def facts(job: str) -> str:
    return subprocess.run(["scontrol", "show", "job", job], capture_output=True, text=True, check=True).stdout


def time_of(event: str, job: str) -> str:
    return next(word for word in job.split() if word.startswith(event)).partition("=")[2]


def test_two_tasks_on_two_nodes_train_each_run_once_and_a_shared_base_step_is_a_dependency(start, tmp_path):
    grid = "runs: {ipseg: {}, small memory: {memory: {size: 2}}}"
    code, output = end_of(start("--slurm", "nodes=2", "--slurm", "tasks_per_node=2", grid=grid))
    out = tmp_path / "out"
    assert code == 0, output + "".join(path.read_text() for path in (out / "logs").iterdir())
    trained = iterations(out / "runs" / RUN)
    assert trained == sorted(set(trained))
    assert {step for step, _ in trained} == {0, 1, 2}
    assert {step for step, _ in iterations(out / "runs" / "small-memory_2-1_s0")} == {1, 2}
    base = facts((out / "slurm" / f"{RUN}.base_step.job").read_text())
    for name in (RUN, "small-memory_2-1_s0"):
        job = facts((out / "slurm" / f"{name}.job").read_text())
        assert time_of("StartTime", job) >= time_of("EndTime", base)
        assert "NumNodes=2 NumCPUs=4 NumTasks=2" in job


def test_a_job_that_runs_out_of_time_requeues_itself_and_resumes_the_run(start, tmp_path):
    run = tmp_path / "out" / "runs" / RUN
    sweep = start("--slurm", "timeout_min=2", "--slurm", "signal_delay_s=15", training={"epochs": 100000})
    wait_for(run / "step_00" / "checkpoint.safetensors", sweep)
    job = (tmp_path / "out" / "slurm" / f"{RUN}.job").read_text()
    while "Restarts=0" in facts(job):
        assert sweep.poll() is None, sweep.communicate()
        time.sleep(1)
    before = len(iterations(run))
    while len(iterations(run)) == before:  # SLURM waits two minutes before it starts a requeued job
        assert sweep.poll() is None, sweep.communicate()
        time.sleep(1)
    sweep.send_signal(signal.SIGTERM)
    code, output = end_of(sweep)
    assert code == 130, output
    trained = iterations(run)
    assert trained == [(0, iteration) for iteration in range(1, len(trained) + 1)]  # none was lost, none trained twice
    assert "resume with --resume" in (tmp_path / "out" / "logs" / f"{RUN}.log").read_text()


def test_a_canceled_job_saves_its_state_and_the_same_command_resumes_it(start, tmp_path):
    out = tmp_path / "out"
    sweep = start(training={"epochs": 20})
    wait_for(out / "runs" / RUN / "step_00" / "checkpoint.safetensors", sweep)
    subprocess.run(["scancel", (out / "slurm" / f"{RUN}.job").read_text()], check=True)
    code, output = end_of(sweep)
    assert code == 130, output
    assert not (out / "runs" / RUN / "results.json").exists()
    code, output = end_of(start(training={"epochs": 20}))
    assert code == 0, output
    trained = iterations(out / "runs" / RUN)
    assert trained == sorted(set(trained))


def test_a_run_whose_base_step_fails_is_started_with_the_next_one(start, tmp_path):
    grid = "runs: {ipseg: {training: {lr: 1.0e+30}}, other: {training: {lr: 1.0e+30, later_epochs: 2}}}"
    code, output = end_of(start(grid=grid))
    assert code == 1, output
    assert "2 of 2 runs failed" in output
    assert "the loss is not finite" in output
    assert not (tmp_path / "out" / "slurm" / "other_2-1_s0.base_step.job").exists()


def test_a_detached_sweep_of_jobs_without_variables_returns_and_the_same_command_waits_for_it(start, tmp_path):
    grid = "runs: {ipseg: {}, small memory: {memory: {size: 2}}}"
    code, output = end_of(start("--detach", "--slurm", "export=NONE", grid=grid))
    assert code == 0, output
    assert "2 runs are jobs of SLURM now" in output
    notes = {path.name: path.read_text() for path in (tmp_path / "out" / "slurm").glob("*.job")}
    code, output = end_of(start(grid=grid))
    assert code == 0, output
    assert {path.name: path.read_text() for path in (tmp_path / "out" / "slurm").glob("*.job")} == notes
    assert (tmp_path / "out" / "runs" / "small-memory_2-1_s0" / "results.json").exists()


def test_a_job_that_slurm_refuses_ends_the_sweep_with_its_reason(start):
    code, output = end_of(start("--slurm", "partition=nowhere"))
    assert code == 2, output
    assert "ipseg: SLURM refused it: " in output
    assert "invalid partition" in output.lower()
