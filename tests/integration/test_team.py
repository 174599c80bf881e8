"""Several processes learn what one would: the same batches, losses, weights and measurements, within rounding."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from ipseg.engine.team import assembled
from ipseg.engine.tensors import load_tensors
from ipseg.errors import UserError

TOLERANCE = 1e-4
"""Of losses and weights at the end of a run: sums over processes are rounded in another order."""
STEPS = range(3)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory, make_tiny) -> Path:
    """Without dropout: each process draws its own."""
    settings = make_tiny()
    settings["training"] |= {"batch_size": 4, "log_every": 1, "checkpoint_seconds": 0}
    settings["model"] |= {"decoder_dropout": 0.0, "posterior_dropout": 0.0}
    path = tmp_path_factory.mktemp("team") / "recipe.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


@pytest.fixture(scope="module")
def alone(recipe) -> Path:
    """The run of one process."""
    train(recipe, recipe.parent / "alone", 1)
    return recipe.parent / "alone"


def train(recipe: Path, out: Path, processes: int, *more: str) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    python = torchrun if processes > 1 else [sys.executable]
    command = [*python, "-m", "ipseg", "train", str(recipe), "--out", str(out), "--quiet", *more]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]


def lines(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def weights(run: Path, step: int) -> dict[str, torch.Tensor]:
    return load_tensors(run / f"step_{step:02d}" / "weights.safetensors", "the weights")[0]


def worst(one: Path, two: Path) -> float:
    return max(difference(one, two, step) for step in STEPS)


def difference(one: Path, two: Path, step: int) -> float:
    ours, theirs = weights(one, step), weights(two, step)
    assert ours.keys() == theirs.keys()
    return max(float((ours[n].float() - theirs[n].float()).abs().max()) for n in ours)


@pytest.mark.slow
def test_two_processes_learn_what_one_learns(recipe, alone, tmp_path):
    two = tmp_path / "two"
    train(recipe, two, 2)
    pairs = list(zip(lines(alone), lines(two), strict=True))
    assert {line["step"] for line, _ in pairs} == set(STEPS)
    for ours, theirs in pairs:
        assert (ours["step"], ours["iteration"]) == (theirs["step"], theirs["iteration"])
        assert theirs["loss"] == pytest.approx(ours["loss"], rel=TOLERANCE, abs=TOLERANCE)
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


def test_more_processes_than_pictures_in_a_batch_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "8")
    with pytest.raises(UserError, match=r"batch_size is 4.*8 processes"), assembled("cpu", 4):
        pass


def test_alone_there_is_nobody_to_ask():
    with assembled("cpu", 1) as team:
        assert team.leads
        assert team.agree(True, False) == [True, False]
        assert team.mean({"loss": 2.0}) == {"loss": 2.0}
        assert team.gather("mine") == ["mine"]
        assert list(team.share(3)) == [0, 1, 2]
        team.wait()
