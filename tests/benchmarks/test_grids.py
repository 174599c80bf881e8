"""The grids of the studies: sound recipes, equal budgets, and a run for every row of the paper."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest
import torch

from ipseg.config import flat, to_dict
from ipseg.methods.registry import METHODS
from ipseg.models._torchvision import ensure_torchvision
from ipseg.report.paper import paper_numbers, published_for
from ipseg.scenario import VOC
from ipseg.sweep.grid import Grid, GridRun
from ipseg.training.recipe import Recipe, make_recipe

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
GRIDS = sorted(BENCHMARKS.glob("*/*.yaml"))
PAPER = sorted((BENCHMARKS / "paper").glob("*.yaml"))
AFTER = r"alpha_(bc|nf)"
"""Rows of the paper that `ipseg evaluate` measures on a finished run."""


@cache
def runs(study: str) -> list[GridRun]:
    return Grid.read(BENCHMARKS / study / "grid.yaml").runs()


@cache
def recipes(grid: Path) -> dict[str, Recipe]:
    return {run.name: make_recipe(run.settings) for run in Grid.read(grid).runs()}


@pytest.mark.parametrize("grid", GRIDS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_grid_has_sound_recipes(grid):
    if grid.stem == "base":
        return
    for recipe in recipes(grid).values():
        recipe.require_trainable()


# ---- fair comparisons -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("study", ["scenes", "animals"])
def test_all_methods_have_the_same_network_and_budget(study):
    found = [make_recipe(run.settings) for run in runs(study)]
    assert len({recipe.model for recipe in found}) == 1
    keys = ("epochs", "later_epochs", "batch_size", "crop")
    assert len({tuple(getattr(recipe.training, key) for key in keys) for recipe in found}) == 1


def test_drawn_scenes_have_every_method_with_three_seeds_that_also_draw_the_images():
    found = [make_recipe(run.settings) for run in runs("scenes")]
    assert {recipe.method.name for recipe in found} == set(METHODS)
    assert Counter(recipe.seed for recipe in found) == dict.fromkeys(
        (0, 1, 2), len({run.entry for run in runs("scenes")})
    )
    assert all(recipe.data.seed == recipe.seed for recipe in found)  # type: ignore[attr-defined]


def test_claims_on_photographs_have_three_seeds():
    seeds = Counter(run.entry for run in runs("animals") if run.scenario in ("2-1", "joint") and not run.varied)
    claimed = {"ipseg", "ipseg official", "ipseg_lda", "ssul_m", "plop_m", "mib", "joint"}
    claimed |= {"none", "IP", "SD", "none, small heads", "IP, small heads"}
    assert {run for run, count in seeds.items() if count == 3} == claimed


def test_rates_are_at_least_three_a_method_and_chosen_on_other_images():
    tried = Counter(run.entry for run in runs("scenes-rates"))
    assert min(tried.values()) >= 3  # more where the best of three was at an edge
    shown = {run.seed for run in runs("scenes")}
    assert not shown & {run.seed for study in ("scenes-rates", "scenes-variants", "demo-rates") for run in runs(study)}
    for study in ("animals-rates", "animals-short"):
        assert all(make_recipe(run.settings).evaluation.held_out for run in runs(study))


# ---- the paper ------------------------------------------------------------------------------------------------------


def test_every_row_of_the_paper_that_is_implemented_has_a_run():
    implemented = {name.removesuffix("_m") for name in METHODS}
    there = {number for grid in PAPER for recipe in recipes(grid).values() for number in published_for(to_dict(recipe))}
    missing = [number for number in paper_numbers() if number.method in implemented and number not in there]
    assert not [number for number in missing if number.measure != "cost" and not re.search(AFTER, number.changes)]


def test_ipseg_and_joint_train_as_the_paper_says_and_the_others_as_in_their_publications():
    found = defaultdict(set)
    for recipe in (recipe for grid in PAPER for recipe in recipes(grid).values()):
        training = recipe.training
        key = recipe.data.name, recipe.method.name.removesuffix("_m")
        found[key].add((training.epochs, training.batch_size, training.schedule, training.lr))
        assert recipe.evaluation.view == "center_crop"
    assert found == {
        **{("voc", method): {(50, 16, "poly", 0.01)} for method in ("ipseg", "joint", "ssul", "microseg")},
        **{("voc", method): {(30, 24, "poly", 0.01)} for method in ("mib", "plop", "ilt", "lwf_mc")},
        **{("ade", method): {(60, 8, "warm_poly", 0.01)} for method in ("ipseg", "joint")},
        **{("ade", method): {(100, 24, "warm_poly", 0.05)} for method in ("ssul", "microseg")},
        ("voc", "coinseg"): {(50, 16, "poly", 0.0001)},
        ("ade", "coinseg"): {(100, 24, "warm_poly", 0.0001)},
        ("ade", "mib"): {(60, 24, "poly", 0.01)},
        ("voc", "rcil"): {(30, 24, "poly", 0.02)},
        ("voc", "adapter"): {(60, 24, "poly", 0.01)},
        ("ade", "adapter"): {(100, 24, "warm_poly", 0.025)},
        ("ade", "bam"): {(100, 8, "warm_poly", 0.01)},
        ("ade", "mib_awt"): {(60, 24, "poly", 0.02)},
        ("voc", "sdr"): {(30, 8, "poly", 0.01)},
        ("voc", "reminder"): {(30, 16, "poly", 0.01)},
        ("ade", "reminder"): {(60, 10, "poly", 0.01)},
        **{("voc", method): {(30, 24, "poly", 0.02)} for method in ("dft", "mib_nest")},
        **{("ade", method): {(60, 24, "poly", 0.02)} for method in ("dft", "mib_nest")},
        ("ade", "plop"): {(60, 24, "poly", 0.01)},
        ("voc", "plop_nest"): {(30, 24, "poly", 0.02)},
        ("ade", "plop_nest"): {(60, 24, "poly", 0.02)},
    }


def test_sequences_learn_the_look_alikes_in_the_orders_of_the_figure():
    first, second = {"cow", "bus", "sofa"}, {"horse", "car", "chair"}
    for name, recipe in recipes(BENCHMARKS / "paper" / "sequences.yaml").items():
        steps = [set(step.new) for step in recipe.scenario.build("voc", VOC).steps]
        assert steps == ([first, second] if "_A_" in name else [second, first])


def test_every_network_of_the_paper_can_be_built_and_its_weights_are_in_timm():
    ensure_torchvision()
    import timm

    networks = {
        (recipe.model, recipe.method.name, flat(to_dict(recipe.method)).get("head")): recipe
        for grid in PAPER
        for recipe in recipes(grid).values()
    }
    assert {model.backbone.name for model, *_ in networks} <= set(timm.list_pretrained())
    with torch.device("meta"):
        for recipe in networks.values():
            assert recipe.method.build(recipe.model, pretrained=False)
