"""A run killed at any moment goes on to the same bits as one that was never stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from ipseg.errors import Interrupted
from ipseg.methods.base import Method
from ipseg.training import experiment
from ipseg.training.checkpoint import Checkpoint
from ipseg.training.experiment import run
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import make_recipe
from ipseg.training.tensors import load_tensors

LEARN = """
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from ipseg.training.experiment import run
from ipseg.training.recipe import load_recipe
from ipseg.errors import Interrupted
try:
    run(load_recipe(sys.argv[1], ["name=''"]), Path(sys.argv[2]), quiet=True)
except Interrupted as stop:
    print(stop)
    sys.exit(130)
"""


@pytest.fixture
def settings(tiny_settings):
    """Longer, so that there is something to interrupt; every iteration is logged and saved."""
    tiny_settings["training"] |= {"later_epochs": 5, "log_every": 1, "checkpoint_seconds": 0}
    return tiny_settings


@pytest.fixture
def start(settings, tmp_path) -> Callable[..., subprocess.Popen[str]]:
    """Starts the run in a process of its own."""
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(settings))

    def begin(path: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", LEARN, str(recipe), str(path)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)

    return begin


def lines(path: Path) -> list[dict]:
    """Of the log, those of training."""
    log = path / "log.jsonl"
    found = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return [line for line in found if line["event"] == "train"]


def wait_until(process: subprocess.Popen[str], path: Path, step: int, iteration: int) -> None:
    """Until the run has got that far; the run must still be under way then."""
    end = time.monotonic() + 120
    while not any((line["step"], line["iteration"]) >= (step, iteration) for line in lines(path)):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.005)
    assert not (path / "step_02").exists()


def assert_equal_runs(one: Path, other: Path) -> None:
    for index in range(3):
        ours, theirs = (load_tensors(run / f"step_{index:02d}/weights.safetensors", "w")[0] for run in (one, other))
        assert ours.keys() == theirs.keys()
        assert all(ours[name].equal(theirs[name]) for name in ours)
        memories = [run / f"step_{index:02d}/memory/manifest.json" for run in (one, other)]
        assert memories[0].read_bytes() == memories[1].read_bytes()
    assert (one / "results.json").read_bytes() == (other / "results.json").read_bytes()


@pytest.mark.slow
def test_a_run_that_was_killed_and_one_that_was_stopped_end_as_one_that_was_neither(settings, start, tmp_path):
    run(make_recipe(settings), tmp_path / "whole", quiet=True)

    killed = start(tmp_path / "killed")
    wait_until(killed, tmp_path / "killed", step=1, iteration=3)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert (tmp_path / "killed" / "step_01" / "checkpoint.safetensors").exists()
    before = len(lines(tmp_path / "killed"))
    run(make_recipe(settings), tmp_path / "killed", quiet=True, resume=True)  # here, in another process
    resumed = lines(tmp_path / "killed")[before]
    assert resumed["step"] == 1
    assert resumed["iteration"] > 2  # inside the step, not from its beginning
    assert_equal_runs(tmp_path / "killed", tmp_path / "whole")

    stopped = start(tmp_path / "stopped")
    wait_until(stopped, tmp_path / "stopped", step=1, iteration=2)
    stopped.send_signal(signal.SIGINT)
    said, _ = stopped.communicate()
    assert stopped.returncode == 130
    assert "interrupted in step 1 at iteration" in said
    assert "--resume" in said
    run(make_recipe(settings), tmp_path / "stopped", quiet=True, resume=True)
    assert_equal_runs(tmp_path / "stopped", tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_run_stopped_after_every_iteration_ends_as_one_that_was_not(tiny_settings, tmp_path, monkeypatch, optimizer):
    """In one process, so that the stops can stand anywhere: each iteration is the last before a stop once."""
    tiny_settings["training"] |= {"optimizer": optimizer, "lr": 0.001, "checkpoint_seconds": 1e9}
    recipe = make_recipe(tiny_settings)
    splits = recipe.data.build()
    run(recipe, tmp_path / "whole", quiet=True, splits=splits)

    class Halting:
        """Asks to stop after the first iteration of every start."""

        def __enter__(self):
            return lambda: True

        def __exit__(self, *_problem):
            return None

    monkeypatch.setattr(experiment, "stop_request", Halting)
    stops = 0
    while not (tmp_path / "halting" / "step_02" / "step.json").exists():
        try:
            run(recipe, tmp_path / "halting", quiet=True, resume=stops > 0, splits=splits)
        except Interrupted:
            stops += 1
    lines = [json.loads(line) for line in (tmp_path / "whole" / "log.jsonl").read_text().splitlines()]
    iterations = {line["step"]: line["of"] for line in lines if line["event"] == "train"}
    assert len(iterations) == 3
    assert stops == sum(iterations.values()) + 3  # and once more when each step is saved
    assert_equal_runs(tmp_path / "halting", tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["last checkpoint", "end of the step", "saving"])
def test_a_signal_after_the_last_iteration_stops_the_run_when_the_step_is_saved(
    tiny_settings, tmp_path, monkeypatch, number, moment
):
    tiny_settings["training"] |= {"checkpoint_seconds": 1e9}
    recipe = make_recipe(tiny_settings)
    run(recipe, tmp_path / "whole", quiet=True)
    place = {
        "last checkpoint": (Checkpoint, "wait"),
        "end of the step": (Method, "end_step"),
        "saving": (RunFolder, "save_weights"),
    }[moment]
    original = getattr(*place)

    def signalled(*arguments: object) -> object:
        os.kill(os.getpid(), number)
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(*place, signalled)
        with pytest.raises(Interrupted, match=r"interrupted after step 0 was trained; resume with --resume"):
            run(recipe, tmp_path / "stopped", quiet=True)
    assert not (tmp_path / "stopped" / "step_01").exists()
    run(recipe, tmp_path / "stopped", quiet=True, resume=True)
    assert_equal_runs(tmp_path / "stopped", tmp_path / "whole")
