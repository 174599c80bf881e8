"""benchmarks/field/ablations.yaml, and ablation_table.py on what was measured before there was such a grid."""

from __future__ import annotations

from pathlib import Path

from ablation_table import GRID, ablation_table

from ipseg.engine.recipe import make_recipe
from ipseg.sweep.grid import Grid

ROOT = Path(__file__).parents[2]


def test_the_table_in_the_docs_is_that_of_the_file_in_the_repository():
    made = ablation_table([ROOT / "benchmarks" / "results" / "2026-11-15_ablations_scenes_3-1.jsonl"])
    assert f"\n\n{made}\n\n" in (ROOT / "docs" / "drawn-scenes.md").read_text(encoding="utf-8")
    assert made.count(" | 3 |") == 18  # every variant of the grid, three seeds each


def test_seeds_also_draw_the_pictures_and_fine_tuning_has_the_network_of_the_others():
    recipes = {run.name: make_recipe(run.settings) for run in Grid.read(GRID).runs()}
    assert len(recipes) == 18 * 3
    assert all(recipe.data.seed == recipe.seed for recipe in recipes.values())
    (model,) = {recipe.model for recipe in recipes.values()}
    assert model.width == 64
    assert recipes["fine-tuning_3-1_s0"].method.head == "ipseg"
    assert recipes["joint-softmax_joint_s2"].scenario.name == "scenes/joint"
