"""The grids of the tables that compare all methods: every method is in them, and none has an advantage."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ipseg.methods.registry import METHODS
from ipseg.sweep.grid import Grid, GridRun
from ipseg.training.recipe import make_recipe

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PHOTOGRAPHS = Grid.read(BENCHMARKS / "real" / "main.yaml").runs()
TABLE, RATES, VARIANTS = (
    Grid.read(BENCHMARKS / "scenes" / f"{name}.yaml").runs() for name in ("methods", "rates", "variants")
)


def test_every_method_is_there_and_all_recipes_are_sound():
    methods = {run.entry: make_recipe(run.settings).method.name for run in TABLE}
    assert set(methods.values()) == set(METHODS)
    assert all(entry in (method, f"{method} paper", f"{method} official", "none") for entry, method in methods.items())


@pytest.mark.parametrize("runs", [TABLE, PHOTOGRAPHS], ids=["scenes", "photographs"])
def test_all_have_the_same_network_and_budget(runs: list[GridRun]):
    fixed = {
        (
            recipe.model,
            *(getattr(recipe.training, key) for key in ("epochs", "later_epochs", "batch_size", "crop")),
        )
        for recipe in (make_recipe(run.settings) for run in runs)
    }
    assert len(fixed) == 1


def test_on_photographs_what_is_claimed_has_three_seeds_and_stands_before_the_rest():
    seeds = Counter(run.entry for run in PHOTOGRAPHS if run.scenario in ("2-1", "joint") and not run.varied)
    claimed = {"ipseg", "ipseg official", "ipseg_lda", "ssul_m", "plop_m", "mib", "joint"}
    claimed |= {"none", "IP", "SD", "none, small heads", "IP, small heads"}
    assert {run for run, count in seeds.items() if count == 3} == claimed
    runs = [run.entry for run in PHOTOGRAPHS]
    assert runs.index("labels part") > max(index for index, run in enumerate(runs) if run in {"IP", "SD", "none"})


def test_every_row_of_drawn_scenes_has_three_seeds_that_also_draw_the_images():
    recipes = [make_recipe(run.settings) for run in TABLE]
    assert Counter(recipe.seed for recipe in recipes) == dict.fromkeys((0, 1, 2), len({run.entry for run in TABLE}))
    assert all(recipe.data.seed == recipe.seed for recipe in recipes)  # type: ignore[attr-defined]


def test_rates_are_three_a_method_chosen_on_images_that_the_table_does_not_show():
    tried = Counter(make_recipe(run.settings).method.name for run in RATES)
    others = {make_recipe(run.settings).method.name for run in VARIANTS}
    assert tried == dict.fromkeys(set(METHODS) - others, 3)
    assert others == {"ipseg", "ipseg_lda", "ssul_m"}
    assert not {run.seed for run in VARIANTS} & {0, 1, 2}
    drawn = [{run.settings["data"]["seed"] for run in runs} for runs in (TABLE, RATES)]
    assert drawn == [{0, 1, 2}, {100}]
    weights = [{run.seed for run in runs} for runs in (TABLE, RATES)]
    assert not weights[0] & weights[1]
