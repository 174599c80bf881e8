"""Several processes learn what one would: the same batches, losses, weights and measurements, within rounding.

As a script, under torchrun or alone, this file trains every method: `python test_distributed.py FOLDER`.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from ipseg.errors import UserError
from ipseg.methods.registry import METHODS
from ipseg.training.distributed import distributed
from ipseg.training.experiment import run
from ipseg.training.recipe import make_recipe
from ipseg.training.tensors import load_tensors

TOLERANCE = 1e-4
"""Of losses and weights at the end of a run: sums over processes are rounded in another order."""
DOUBLE = 1e-10
"""The same in double precision. Where a whole network learns, single is too coarse: a ReLU whose input is zero but for
rounding opens in one run alone, and that moves every weight."""
STEPS = range(3)

SYSTEMS: dict[str, dict[str, Any]] = {name: {"name": name} for name in METHODS} | {
    "mib_ewf": {"name": "mib", "fuse": "endpoints", "freeze_old_classifiers": True},
    "plop_ucb": {"name": "plop", "pixel_weights": "ucb"},
    "ssul_ucb": {"name": "ssul", "pixel_weights": "ucb"},
}
"""Every method, and published systems that are settings of another."""

# ---- every method, in double precision ------------------------------------------------------------------------------


def settings(name: str) -> dict[str, Any]:
    """A base step and one more, which replays where the method does. Without dropout: each process draws its own.

    Batches of three images, one of them replayed: the shares differ in images and pixels, and the second process
    has nothing to replay.
    """
    return {
        "data": {"name": "scenes", "size": [48, 48], "classes": 3, "train": 10, "val": 2},
        "scenario": {"name": "joint" if name == "joint" else "2-1"},
        "model": {
            "backbone": {"name": "test_resnet"},
            "width": 8,
            "posterior_width": 16,
            "rates": [1],
            "decoder_dropout": 0.0,
            "posterior_dropout": 0.0,
        },
        "method": SYSTEMS[name],
        "memory": {"size": 4},
        "training": {"epochs": 1, "batch_size": 3, "crop": [48, 48], "log_every": 1, "workers": 0},
        "device": "cpu",
    }


def train_every_method(out: Path) -> None:
    """One run a method, all by the same processes: to start some takes longer than a run."""
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double  # images and losses ask for single precision
    splits = make_recipe(settings("finetune")).splits()
    with distributed("cpu", batch_size=3):
        for name in SYSTEMS:
            run(make_recipe(settings(name)), out / name, splits=splits, quiet=True)


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    """Every method's run by one process, in alone/, and by two, in two/. What the processes said lies beside them."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent  # of all workers: the first to come trains, the others wait
    with (root / "every_method.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / "every_method").exists():
            for folder, processes in (("alone", 1), ("two", 2)):
                out = root / "every_method" / folder
                out.mkdir(parents=True)
                done = start(processes, __file__, str(out))
                (out / "said.txt").write_text(done.stderr)
    return root / "every_method"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SYSTEMS))
def test_two_processes_learn_what_one_learns_with_every_method(name, trained):
    alone, two = trained / "alone" / name, trained / "two" / name
    steps = range(1 if name == "joint" else 2)
    for path in (alone, two):
        finished = path / f"step_{steps[-1]:02d}" / "step.json"
        assert finished.is_file(), (path.parent / "said.txt").read_text()[-5000:]
    assert_same_losses(alone, two, DOUBLE)
    assert {line["step"] for line in lines(alone)} == set(steps)
    assert worst(alone, two, steps) < DOUBLE


# ---- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recipe(tmp_path_factory, make_tiny) -> Path:
    """Without dropout: each process draws its own."""
    settings = make_tiny()
    settings["training"] |= {"batch_size": 4, "log_every": 1, "checkpoint_seconds": 0}
    settings["model"] |= {"decoder_dropout": 0.0, "posterior_dropout": 0.0}
    path = tmp_path_factory.mktemp("dist") / "recipe.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


@pytest.fixture(scope="module")
def alone(recipe) -> Path:
    """The run of one process."""
    train(recipe, recipe.parent / "alone", 1)
    return recipe.parent / "alone"


def train(recipe: Path, out: Path, processes: int, *more: str) -> None:
    done = start(processes, "-m", "ipseg", "train", str(recipe), "--out", str(out), "--quiet", *more)
    assert done.returncode == 0, done.stderr[-3000:]


def start(processes: int, *command: str) -> subprocess.CompletedProcess[str]:
    """Python, in so many processes."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    python = torchrun if processes > 1 else [sys.executable]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run([*python, *command], check=False, capture_output=True, text=True, env=environment)


def lines(run: Path) -> list[dict]:
    """Of the log, those of training."""
    found = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [line for line in found if line["event"] == "train"]


def weights(run: Path, step: int) -> dict[str, torch.Tensor]:
    return load_tensors(run / f"step_{step:02d}" / "weights.safetensors", "the weights")[0]


def assert_same_losses(one: Path, two: Path, tolerance: float) -> None:
    for ours, theirs in zip(lines(one), lines(two), strict=True):
        assert (ours["step"], ours["iteration"]) == (theirs["step"], theirs["iteration"])
        assert theirs["loss"] == pytest.approx(ours["loss"], rel=tolerance, abs=tolerance)


def worst(one: Path, two: Path, steps: range = STEPS) -> float:
    return max(difference(one, two, step) for step in steps)


def difference(one: Path, two: Path, step: int) -> float:
    ours, theirs = weights(one, step), weights(two, step)
    assert ours.keys() == theirs.keys()
    apart = {name: (ours[name].double() - theirs[name].double()).abs().max() for name in ours if ours[name].numel()}
    if "posterior.weight" in ours:  # discriminants from moments: of features that hardly vary these are thousands
        apart["posterior.weight"] /= ours["posterior.weight"].abs().max().clamp(min=1)
    return max(map(float, apart.values()))


@pytest.mark.slow
def test_the_command_with_two_processes_learns_what_it_learns_with_one(recipe, alone, tmp_path):
    two = tmp_path / "two"
    train(recipe, two, 2)
    assert {line["step"] for line in lines(alone)} == set(STEPS)
    assert_same_losses(alone, two, TOLERANCE)
    assert worst(alone, two) < TOLERANCE
    for step in (f"step_{index:02d}" for index in STEPS):
        ours, theirs = (json.loads((run / step / "step.json").read_text()) for run in (alone, two))
        assert theirs["images"] == ours["images"]
        assert theirs["miou"] == pytest.approx(ours["miou"], abs=0.01)
        assert {p.name for p in (two / step).iterdir()} == {p.name for p in (alone / step).iterdir()}


@pytest.mark.slow
def test_a_run_of_one_process_goes_on_with_two(recipe, alone, tmp_path):
    cut = tmp_path / "cut"
    shutil.copytree(alone, cut)
    shutil.rmtree(cut / "step_02")
    train(recipe, cut, 2, "--resume")
    assert worst(alone, cut) < TOLERANCE
    assert (cut / "results.json").is_file()


# ---- two nodes ------------------------------------------------------------------------------------------------------

NODES = ("127.0.0.1", "127.0.0.2")


def start_nodes(recipe: Path, out: Path, port: int, *more: str) -> list[subprocess.Popen[str]]:
    """A torchrun on each node, with one process."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    shared = ["--nnodes=2", "--nproc-per-node=1", f"--master-addr={NODES[0]}", f"--master-port={port}"]
    train = ["-m", "ipseg", "train", str(recipe), "--out", str(out), "--quiet", *more]
    return [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "torch.distributed.run",
                *shared,
                f"--node-rank={rank}",
                f"--local-addr={node}",
                *train,
            ],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank, node in enumerate(NODES)
    ]


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind((NODES[0], 0))
        return listening.getsockname()[1]


def kill_node(torchrun: subprocess.Popen[str]) -> None:
    """As if its machine had lost power."""
    children = Path(f"/proc/{torchrun.pid}/task/{torchrun.pid}/children").read_text().split()
    for process in [torchrun.pid, *map(int, children)]:
        os.kill(process, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has 127.0.0.2 without setting it up")
def test_two_nodes_of_which_one_is_killed_and_started_again_learn_what_one_process_learns(recipe, alone, tmp_path):
    out = tmp_path / "nodes"
    first, second = start_nodes(recipe, out, free_port())
    while not (out / "step_01" / "checkpoint.safetensors").exists():
        assert first.poll() is None, first.communicate()
        time.sleep(0.01)
    kill_node(second)
    second.communicate()
    output, _ = first.communicate(timeout=200)
    assert first.returncode != 0, output
    assert not (out / "step_02" / "step.json").exists()
    for node in start_nodes(recipe, out, free_port(), "--resume"):
        output, _ = node.communicate(timeout=200)
        assert node.returncode == 0, output
    assert_same_losses(alone, out, TOLERANCE)
    assert worst(alone, out) < TOLERANCE


@pytest.mark.slow
def test_a_sweep_trains_each_run_with_several_processes(recipe, alone, tmp_path):
    grid = tmp_path / "grid.yaml"
    grid.write_text(f"base: {recipe}\nruns: {{ipseg: {{}}}}\n")
    out = tmp_path / "out"
    command = ["-P", "-m", "ipseg", "sweep", str(grid), "--out", str(out), "--processes-per-run", "2"]
    done = start(1, *command)
    assert done.returncode == 0, done.stderr[-3000:] + (out / "logs" / "ipseg_2-1_s0.log").read_text()[-3000:]
    assert worst(alone, out / "runs" / "ipseg_2-1_s0") < TOLERANCE


def test_more_processes_than_images_in_a_batch_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "8")
    with pytest.raises(UserError, match=r"batch_size is 4.*8 processes"), distributed("cpu", 4):
        pass


def test_alone_there_is_nobody_to_ask():
    with distributed("cpu", 1) as dist:
        assert dist.is_main
        assert dist.any_rank(True, False) == [True, False]
        assert dist.mean({"loss": 2.0}) == {"loss": 2.0}
        assert dist.gather("mine") == ["mine"]
        assert list(dist.shard(3)) == [0, 1, 2]
        dist.barrier()


if __name__ == "__main__":
    train_every_method(Path(sys.argv[1]))
