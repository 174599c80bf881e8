"""Recipes: every key checked, written back whole; how long and how fast a step learns."""

from __future__ import annotations

import pytest
import yaml

from ipseg.config import to_yaml
from ipseg.errors import UserError
from ipseg.training.recipe import TrainingConfig, load_recipe, make_recipe
from ipseg.training.recipe_files import find_recipe, shipped_recipes


def test_a_recipe_that_is_written_is_read_as_the_same_recipe(tiny_settings, tmp_path):
    tiny_settings |= {"name": "", "seed": 3}
    tiny_settings["scenario"] |= {"order": ["horse", "cow", "bus", "car"][:4], "unseen": "ignore"}
    tiny_settings["training"] |= {"lr": 1e-5, "later_epochs": 2}
    recipe = make_recipe(tiny_settings)
    path = tmp_path / "recipe.yaml"
    path.write_text(to_yaml(recipe), encoding="utf-8")
    assert load_recipe(path) == recipe


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("trainig", {}, r"trainig.*Did you mean training\?"),
        ("training", {"epoch": 1}, r"training\.epoch.*Did you mean epochs\?"),
        ("training", {"batch_size": 0}, r"training\.batch_size is 0; it must be between 1 and 65536"),
        ("training", {"batch_size": 10**9}, r"training\.batch_size is 1000000000; it must be between 1 and 65536"),
        ("training", {"crop": [8, 64]}, r"training\.crop is 8"),
        ("training", {"scale": [2, 1]}, r"training\.scale is \[2\.0, 1\.0\]"),
        ("training", {"lr": -1}, r"training\.lr"),
        ("training", {"lr": float("nan")}, r"training\.lr"),
        ("training", {"precision": "fp16"}, r"training\.precision.*Valid: bf16, float32"),
        ("method", {"name": "ipsg"}, r"Did you mean ipseg\?"),
        ("method", {"name": "ipseg", "alpha": 1}, r"method\.alpha"),
        ("method", ["ipseg"], "method must be a section"),
        ("data", {"name": "vox"}, 'no data set "vox"'),
        ("data", {"name": "scenes", "classes": 21}, r"data\.classes is 21; it must be between 2 and 20"),
        ("data", {"name": "folder"}, r"data\.path is missing"),
        ("model", {"backbone": {"nam": "x"}}, r"model\.backbone\.nam.*Did you mean name\?"),
        ("scenario", {}, r"scenario\.name is missing"),
        ("scenario", {"name": "2-1", "setting": "disjunct"}, r"scenario\.setting.*Did you mean disjoint\?"),
        ("seed", -1, "seed is -1"),
        ("evaluation", {"view": "half"}, r"evaluation\.view"),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_valid(tiny_settings, key, value, message):
    with pytest.raises(UserError, match=message):
        make_recipe(tiny_settings | {key: value})


def test_a_scenario_that_does_not_fit_the_data_is_explained(tiny_settings):
    splits = make_recipe(tiny_settings).data.build()
    for name, message in (("9-1", "does not fit"), ("two-1", "no scenario"), ("voc/2-1", "the data set is scenes")):
        recipe = make_recipe(tiny_settings | {"scenario": {"name": name}})
        with pytest.raises(UserError, match=message):
            recipe.scenario.build(splits.name, splits.classes)


def test_assignments_change_a_recipe_and_its_file_names_it(tiny_settings, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(tiny_settings))
    recipe = load_recipe(path, ["method.alpha_nf=0.6", "training.lr=1e-3"])
    assert (recipe.name, recipe.method.alpha_nf, recipe.training.lr) == ("mine", 0.6, 0.001)


def test_a_recipe_is_found_by_its_file_by_its_name_or_by_a_runs_folder(tiny_run):
    shipped = shipped_recipes()[0]
    assert find_recipe(shipped.stem) == shipped
    assert find_recipe(shipped) == shipped
    assert find_recipe(tiny_run) == tiny_run / "recipe.yaml"
    with pytest.raises(UserError, match=f"Did you mean {shipped.stem}"):
        find_recipe(shipped.stem[:-1])
    with pytest.raises(UserError, match=r"the recipe is missing: nowhere\.yaml"):
        find_recipe("nowhere.yaml")


@pytest.mark.parametrize("path", shipped_recipes(), ids=lambda path: path.stem)
def test_shipped_recipes_are_valid(path):
    assert load_recipe(path).name == path.stem


def test_the_paper_visits_its_voc_images_594650_times():
    sizes = [9568, 487, 299, 491, 500, 548]  # VOC 15-1, overlap
    training = TrainingConfig()
    iterations = [training.iterations(step, images) for step, images in enumerate(sizes)]
    assert iterations[0] == 29_900
    assert 50 * sum(sizes) == 594_650
    assert abs(16 * sum(iterations) - 594_650) <= 6 * 8  # each step is rounded to whole batches


def test_later_steps_can_be_shorter_and_none_is_empty():
    training = TrainingConfig(epochs=10, later_epochs=2, batch_size=4)
    assert [training.iterations(step, 8) for step in (0, 1, 2)] == [20, 4, 4]
    assert TrainingConfig(epochs=0.001, batch_size=16).iterations(0, 3) == 1


@pytest.mark.parametrize(
    ("name", "value"), [("epochs", 0), ("later_epochs", -3), ("later_epochs", 0), ("later_lr", -1)]
)
def test_how_long_and_how_fast_is_checked_before_the_first_step(name, value):
    with pytest.raises(UserError, match=rf"training\.{name} is {value}"):
        TrainingConfig(**{name: value})


def test_the_poly_schedule_by_hand():
    training = TrainingConfig(power=0.5)
    assert [training.rate(i, 4) for i in range(4)] == pytest.approx([1, 0.75**0.5, 0.5**0.5, 0.5])


def test_the_warm_up_is_a_rising_factor_of_the_poly_schedule():
    training = TrainingConfig(schedule="warm_poly", warmup=0.4, power=1)
    rates = [training.rate(i, 10) for i in range(10)]
    factors = [0.001, 0.25075, 0.5005, 0.75025, 1, 1, 1, 1, 1, 1]  # a line from 0.001 to 1 over four iterations
    assert rates == pytest.approx([factor * (1 - i / 10) for i, factor in enumerate(factors)])


def test_later_steps_can_warm_up_alone():
    training = TrainingConfig(later_schedule="warm_poly")
    assert [training.at(step).rate(0, 20) for step in (0, 1, 2)] == [1, 0.001, 0.001]


def test_warming_up_is_only_for_the_schedule_that_warms_up():
    assert TrainingConfig(warmup=0.5).rate(0, 10) == 1


def test_another_method_or_data_set_chosen_on_the_command_line_leaves_nothing_of_the_old_one():
    other = load_recipe("voc_15-1_ipseg_swin-b", ["method.name=ipseg_lda", "method.alpha_nf=0.6"]).method
    assert (other.name, other.alpha_bc, other.alpha_nf) == ("ipseg_lda", 0.5, 0.6)
    assert load_recipe("scenes_3-1_ipseg", ["method.confidence=0.5", "method.name=ssul"]).method.confidence == 0.5
    assert load_recipe("scenes_3-1_ipseg", ["data.name=folder", "data.path=here"]).data.path == "here"
    same = load_recipe("scenes_3-1_ipseg", ["method.name=ipseg"])
    assert same.method == load_recipe("scenes_3-1_ipseg").method  # it is the one that the recipe has
