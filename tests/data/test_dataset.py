"""Held-out images: a fixed part, the same in every run, that nobody learns from."""

from __future__ import annotations

import numpy as np
import pytest

from ipseg.data.dataset import hold_out
from ipseg.data.scenes.dataset import ScenesConfig
from ipseg.errors import UserError
from ipseg.training.base_step import base_step
from ipseg.training.experiment import run
from ipseg.training.recipe import make_recipe

SPLITS = ScenesConfig(classes=4, size=(32, 32), train=60, val=5).build()


def test_every_training_image_is_either_learned_from_or_measured_on():
    held = hold_out(SPLITS, 0.2)
    assert sorted([*held.train.names, *held.val.names]) == sorted(SPLITS.train.names)
    assert 4 <= len(held.val.names) <= 20
    assert held.classes == SPLITS.classes


def test_a_larger_share_holds_what_a_smaller_one_held():
    assert set(hold_out(SPLITS, 0.1).val.names) < set(hold_out(SPLITS, 0.4).val.names)


def test_images_keep_their_masks_maps_and_classes():
    part = hold_out(SPLITS, 0.3).val
    for place, name in enumerate(part.names):
        index = list(SPLITS.train.names).index(name)
        assert np.array_equal(part.image(place), SPLITS.train.image(index))
        assert np.array_equal(part.mask(place), SPLITS.train.mask(index))
        assert np.array_equal(part.saliency(place), SPLITS.train.saliency(index))
        assert part.class_presence()[place] == SPLITS.train.class_presence()[index]


def test_a_share_that_leaves_nothing_is_refused():
    tiny = ScenesConfig(classes=2, size=(32, 32), train=1, val=1).build()
    with pytest.raises(UserError, match=r"evaluation\.held_out"):
        hold_out(tiny, 0.5)


def test_a_run_measures_on_them_and_shares_no_base_step_with_one_that_learned_from_them(tiny_settings, tmp_path):
    tiny_settings |= {"scenario": {"name": "joint"}, "evaluation": {"held_out": 0.3}}
    tiny_settings["training"]["epochs"] = 0.2
    recipe = make_recipe(tiny_settings)
    result = run(recipe, tmp_path / "run", quiet=True)
    assert result.steps[0].images == len(hold_out(recipe.data.build(), 0.3).val.names)
    scenario = recipe.scenario.build("scenes", recipe.data.build().classes)
    other = make_recipe(tiny_settings | {"evaluation": {}})
    assert base_step(recipe, scenario) != base_step(other, scenario)
