"""Runs beside each other: children that share images, say how they ended, and save what they have when stopped."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ipseg.data.dataset import DatasetSplits
from ipseg.errors import STOPPED, WRONG
from ipseg.evaluation.results import RunResult
from ipseg.sweep.forks import ForkLauncher
from ipseg.sweep.launchers import Process
from ipseg.training.recipe import Recipe, make_recipe


@pytest.fixture
def recipe(tiny_settings) -> Recipe:
    return make_recipe(tiny_settings | {"scenario": {"name": "joint"}})


def begin(out: Path, recipe: Recipe, splits: DatasetSplits) -> tuple[Path, Process]:
    """The log and the process of a run."""
    process = ForkLauncher(out, {"one": recipe}, splits).start("one", None, ready=True, shared=False)
    return out / "logs" / "one.log", process


def end_of(process: Process) -> int | str | None:
    end = time.monotonic() + 60
    while process.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.05)
    return process.poll()


def test_a_run_learns_from_the_images_that_it_is_given(recipe, tmp_path):
    splits = recipe.data.build()
    splits.train.class_presence()
    log, process = begin(tmp_path, recipe, splits)
    assert end_of(process) == 0, log.read_text()
    assert RunResult.read(tmp_path / "one" / "results.json").steps


def test_a_run_that_a_person_can_mend_says_how_in_one_sentence(recipe, tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "something").touch()  # not a run's folder
    log, process = begin(tmp_path, recipe, recipe.data.build())
    assert end_of(process) == WRONG
    (message,) = log.read_text().splitlines()
    assert message.startswith(f"ipseg: {tmp_path / 'one'} exists and is not a run's folder. Choose another")


def test_a_run_that_breaks_leaves_its_traceback_in_its_log(recipe, tmp_path):
    log, process = begin(tmp_path, recipe, "no images")  # type: ignore[arg-type]
    assert end_of(process) == 1
    assert "Traceback" in log.read_text()


def test_a_run_that_is_stopped_can_go_on(tiny_settings, tmp_path):
    tiny_settings["training"] |= {"epochs": 200, "log_every": 1}
    recipe = make_recipe(tiny_settings)
    _, process = begin(tmp_path, recipe, recipe.data.build())
    log, end = tmp_path / "one" / "log.jsonl", time.monotonic() + 60
    while not log.is_file():
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.02)
    process.cancel(kill=False)
    assert end_of(process) == STOPPED
    assert (tmp_path / "one" / "step_00" / "checkpoint.safetensors").is_file()
