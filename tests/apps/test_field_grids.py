"""The grids of the table that compares all methods: every method is in them, and none has an advantage."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ipseg.apps.sweep_grid import Cell, Grid
from ipseg.engine.recipe import load_recipe, make_recipe
from ipseg.methods.registry import METHODS

FIELD = Path(__file__).parents[2] / "benchmarks" / "field"
OURS = "ipseg_moments"
"""Not a published system, but what became of its diagnosis: remedies.yaml compares it with ipseg."""
ROWS = {name: name for name in METHODS if name != OURS} | {"ipseg rehearsing": "ipseg"}
"""The method of each row: every published one, and ipseg once more with the replay of SSUL-M."""
TABLE, RATES = (Grid.read(FIELD / f"{name}.yaml").cells() for name in ("scenes", "rates"))


@pytest.mark.parametrize("cells", [TABLE, RATES], ids=["scenes", "rates"])
def test_every_method_is_there_under_its_name_and_all_recipes_are_sound(cells: list[Cell]):
    recipes = {cell.name: make_recipe(cell.settings) for cell in cells}
    assert {cell.run: recipes[cell.name].method.name for cell in cells} == ROWS


def test_the_method_among_the_remedies_is_its_recipe_and_differs_from_ipseg_by_what_its_page_says():
    ours, theirs = load_recipe(f"scenes_3-1_{OURS}").method, load_recipe("scenes_3-1_ipseg").method
    changed = {"posterior", "posterior_backbone", "own_decoders", "image_labels", "alpha_bc"}
    idle = {"name", "posterior_current", "posterior_lr"}  # nothing is trained that these are about
    assert {key for key in vars(ours) if getattr(ours, key) != getattr(theirs, key)} == changed | idle
    runs = {cell.run: cell for cell in Grid.read(FIELD / "remedies.yaml").cells()}
    assert make_recipe(runs[OURS].settings).method == ours


def test_all_have_the_same_pictures_network_and_budget():
    recipes = [make_recipe(cell.settings) for cell in TABLE]
    fixed = {
        (
            recipe.model,
            *(getattr(recipe.training, key) for key in ("epochs", "later_epochs", "batch_size", "crop")),
        )
        for recipe in recipes
    }
    assert len(fixed) == 1
    assert Counter(recipe.seed for recipe in recipes) == dict.fromkeys((0, 1, 2), len(ROWS))
    assert all(recipe.data.seed == recipe.seed for recipe in recipes)  # type: ignore[attr-defined]


def test_rates_are_three_a_method_chosen_on_pictures_that_the_table_does_not_show():
    assert Counter(cell.run for cell in RATES) == dict.fromkeys(ROWS, 3)
    drawn = [{cell.settings["data"]["seed"] for cell in cells} for cells in (TABLE, RATES)]
    assert drawn == [{0, 1, 2}, {100}]
    weights = [{cell.seed for cell in cells} for cells in (TABLE, RATES)]
    assert not weights[0] & weights[1]
