"""A setting that was changed and changes nothing is named, with what it needs."""

from __future__ import annotations

import pytest

from ipseg.training.recipe import load_recipe
from ipseg.training.recipe_files import shipped_recipes


@pytest.mark.parametrize("path", shipped_recipes(), ids=lambda path: path.stem)
def test_no_shipped_recipe_sets_what_changes_nothing(path):
    assert load_recipe(path).unused_settings() == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["method.decoupling=false", "method.alpha_nf=0.6"], "method.alpha_nf is 0.6 and changes nothing"),
        (["method.variant=official", "method.alpha_nf=0.6"], "it needs method.decoupling and method.variant: paper"),
        (["method={name: ipseg, image_labels: part, min_class_area: 0.1}"], "it needs method.image_labels: pseudo"),
        (["method={name: mib}", "memory.size=50"], "memory.size is 50 and changes nothing: it needs a method that"),
        (["method={name: ssul, mem_labels: current}"], "it needs method.replay_share above 0"),
        (["training.warmup=0.2"], "it needs training.schedule: warm_poly"),
        (["training.optimizer=adamw", "training.later_optimizer=null", "training.momentum=0.5"], "optimizer: sgd"),
    ],
)
def test_what_changes_nothing_is_named_with_what_it_needs(changes, said):
    (note,) = load_recipe("scenes_3-1_ipseg", changes).unused_settings()
    assert said in note


@pytest.mark.parametrize(
    "changes",
    [
        ["method.variant=paper", "method.alpha_nf=0.6"],
        ["method={name: mib}", "memory.size=0"],
        ["method={name: mib, replay_share: 0.5}", "memory.size=50"],
        ["method={name: ipseg, replay_share: 0}", "memory.size=50"],
        ["training.later_schedule=warm_poly", "training.warmup=0.2"],
    ],
)
def test_what_counts_is_not_named(changes):
    assert load_recipe("scenes_3-1_ipseg", changes).unused_settings() == []
