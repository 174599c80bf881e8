"""One more class from few images: its settings, what is said beforehand, and images before and after."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from commands import call
from ipseg.apps import extend as extending
from ipseg.apps.extend import FEW_IMAGES_SETTINGS, expectation, for_few_images, with_enough_iterations
from ipseg.apps.extend_images import WIDTH, before_and_after
from ipseg.config import flat, to_dict
from ipseg.methods.base import Prediction
from ipseg.training.experiment import run
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import make_recipe


def settings_of(recipe) -> dict:
    known = flat(to_dict(recipe))
    return {key: known[key] for key in FEW_IMAGES_SETTINGS}


@pytest.fixture
def recipe(tiny_settings):
    return make_recipe(tiny_settings | {"method": {"name": "ipseg_lda"}})


def test_few_images_have_settings_of_their_own(recipe):
    assert settings_of(for_few_images(recipe, 32, [], None)) == FEW_IMAGES_SETTINGS


def test_what_was_chosen_stays(recipe):
    chosen = for_few_images(recipe, 32, ["training.later_lr=0.5"], None)
    assert settings_of(chosen) == FEW_IMAGES_SETTINGS | {"training.later_lr": None}  # as the recipe has it by then


@pytest.mark.parametrize(("method", "images"), [("ipseg", 32), ("ipseg_lda", 100)])
def test_other_methods_and_more_images_keep_the_runs_settings(tiny_settings, method, images):
    recipe = make_recipe(tiny_settings | {"method": {"name": method}})
    assert for_few_images(recipe, images, [], None) is recipe


def test_few_images_have_a_floor_of_their_own(recipe, monkeypatch):
    monkeypatch.setattr(extending, "FEW_IMAGES_ITERATIONS", 120)
    longer, note = with_enough_iterations(recipe, 1, 32, [], None)
    assert longer.training.iterations(1, 32) == 120
    assert "120 iterations" in note


@pytest.mark.parametrize("images", [3, 100])
def test_of_what_was_not_measured_nothing_is_expected(recipe, images):
    assert expectation(recipe, images) == ""


def test_of_another_method_nothing_is_expected(tiny_settings):
    assert expectation(make_recipe(tiny_settings), 32) == ""


def test_what_to_expect_is_of_the_next_smaller_number_that_was_measured(recipe):
    low, high = extending.EXPECTED[16]
    assert expectation(recipe, 20).startswith("20 images of new classes: from 16 photographs")
    assert f"{low} to {high} %" in expectation(recipe, 20)


class Fixed:
    """A model that gives every pixel one label."""

    def __init__(self, label: int) -> None:
        self.label = label

    def predict(self, images: torch.Tensor) -> Prediction:
        return Prediction(
            torch.nn.functional.one_hot(torch.full(images[:, 0].shape, self.label), 3).movedim(-1, 1), None
        )


def test_a_sheet_shows_each_image_before_and_after():
    images = [np.full((20, 40, 3), 200, np.uint8), np.full((60, 30, 3), 200, np.uint8)]
    sheet = before_and_after((Fixed(0), Fixed(2)), images, ("background", "cat", "dog"), torch.device("cpu"))
    left, middle, right = (np.asarray(sheet)[40, column] for column in (WIDTH // 2, WIDTH * 3 // 2, WIDTH * 5 // 2))
    assert left.tolist() == middle.tolist() == [200, 200, 200]
    assert right.tolist() != [200, 200, 200]
    assert sheet.height > WIDTH // 2 + 2 * WIDTH


@pytest.mark.slow
def test_a_class_of_few_images_is_learned_without_replay_and_shown(tiny_settings, make_folder_data, tmp_path):
    old = make_folder_data("old", classes=("red", "green"), count=10)
    new = make_folder_data("new", classes=("sheep",), count=10)
    settings = tiny_settings | {
        "data": {"name": "folder", "path": str(old)},
        "scenario": {"name": "1-1"},
        "method": {"name": "ipseg_lda"},
        "memory": {"size": 4, "store": "copy"},
    }
    run(make_recipe(settings), tmp_path / "base", quiet=True)
    shutil.rmtree(old)
    words = ["extend", tmp_path / "base", "--data", new, "--classes", "sheep", "--out", tmp_path / "run", "--quiet"]
    done = call(*words)
    assert done.exit_code == 0, done.output
    assert expectation(make_recipe(settings), 8) in " ".join(done.stderr.split())
    assert settings_of(make_recipe(RunFolder.open(tmp_path / "run").settings())) == FEW_IMAGES_SETTINGS
    assert json.loads((tmp_path / "run" / "extend.json").read_text())["memory"]["images"] == 4
    assert "before_after.png" in done.stdout
    with Image.open(tmp_path / "run" / "before_after.png") as sheet:
        assert sheet.width >= 3 * WIDTH
    again = call(*words, "--resume")
    assert again.exit_code == 0, again.output
    assert "new classes: from" not in again.stderr
