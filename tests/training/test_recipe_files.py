"""Recipes on other recipes: what `base:` takes over, what it refuses, and what the paper's recipes change."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from ipseg.apps.train import resolve
from ipseg.config import to_dict
from ipseg.errors import UserError
from ipseg.methods.registry import METHODS
from ipseg.scenario import DATASETS
from ipseg.training.recipe import Recipe, load_recipe
from ipseg.training.recipe_files import MOST_BASES, find_recipe, shipped_recipes

COMPLETE = [path for path in shipped_recipes() if "base" not in yaml.safe_load(path.read_text(encoding="utf-8"))]
BASED = [path for path in shipped_recipes() if path not in COMPLETE]
PAPERS = [path for path in shipped_recipes() if not path.stem.startswith("scenes_")]


@pytest.fixture
def write(tmp_path):
    """Write a recipe of these settings and return its file."""

    def write_to(file: str, /, **settings: Any) -> Path:
        path = tmp_path / file
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(yaml.safe_dump(settings), encoding="utf-8")
        return path

    return write_to


# ---- base: -------------------------------------------------------------------------------------------------------


def test_a_recipe_changes_its_base_key_by_key(write, tiny_settings):
    write("below.yaml", **tiny_settings | {"name": "below", "seed": 5})
    mine = write("mine.yaml", base="below.yaml", training={"lr": 0.5}, model={"backbone": {"output_stride": 32}})
    below, made = load_recipe(mine.with_name("below.yaml")), load_recipe(mine)
    assert differing(below, made) == {"name", "training.lr", "model.backbone.output_stride"}
    assert (made.name, made.seed, made.training.lr) == ("mine", 5, 0.5)


def test_another_method_or_data_set_takes_no_setting_of_the_old_one(write, tiny_settings):
    write("below.yaml", **tiny_settings | {"method": {"name": "ipseg", "alpha_nf": 0.7, "backbone_lr": 0.3}})
    other = load_recipe(write("other.yaml", base="below.yaml", method={"name": "finetune"}))
    assert (other.method.name, other.method.backbone_lr) == ("finetune", 1.0)
    same = load_recipe(write("same.yaml", base="below.yaml", method={"name": "ipseg", "alpha_bc": 0.8}))
    assert (same.method.alpha_nf, same.method.alpha_bc) == (0.7, 0.8)
    write("below.yaml", **tiny_settings | {"method": {"alpha_nf": 0.7}})  # unnamed it is IPSeg as well
    assert load_recipe(write("same.yaml", base="below.yaml", method={"name": "ipseg"})).method.alpha_nf == 0.7


def test_a_base_is_looked_for_beside_the_recipe_that_names_it(write, tiny_settings):
    write("common.yaml", **tiny_settings | {"seed": 7})
    write("lab/middle.yaml", base="../common.yaml")
    assert load_recipe(write("mine.yaml", base="lab/middle.yaml")).seed == 7


def test_a_base_may_be_a_recipe_that_comes_along_in_python_too():
    assert resolve({"base": "scenes_6-2_ipseg", "seed": 4}, ["memory.size=7"]).memory.size == 7
    made = resolve({"base": "scenes_6-2_ipseg", "seed": 4})
    assert differing(load_recipe("scenes_6-2_ipseg"), made) == {"name", "seed"}


def test_assignments_replace_a_section_whether_it_comes_from_a_base_or_not(write, tiny_settings):
    write("below.yaml", **tiny_settings | {"training": {"lr": 0.3}})
    mine = write("mine.yaml", base="below.yaml")
    assert load_recipe(mine, ["training={epochs: 2}"]).training.lr == 0.01
    with pytest.raises(UserError, match='no key "base"'):
        load_recipe(mine, ["base=scenes_6-2_ipseg"])


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ("scenes_6-2_ipsegg", r'no base \(in .*mine\.yaml\) "scenes_6-2_ipsegg"\. Did you mean scenes_6-2_ipseg\?'),
        ("gone.yaml", r"the base of .*mine\.yaml is missing: .*gone\.yaml"),
        ("mine.yaml", r"its own base: mine\.yaml -> mine\.yaml"),
        ("round.yaml", r"its own base: mine\.yaml -> round\.yaml -> mine\.yaml"),
        (["a", "b"], r"base must be the name of a recipe or a \.yaml file, got \['a', 'b'\]"),
        (None, r"base must be the name"),
        ("list.yaml", r"the base must be a mapping of settings"),
    ],
)
def test_a_base_that_is_none_is_refused_with_what_to_do(write, base, message):
    write("round.yaml", base="mine.yaml")
    write("x.yaml").with_name("list.yaml").write_text("[1, 2]")
    with pytest.raises(UserError, match=message):
        load_recipe(write("mine.yaml", base=base))


def test_bases_end_somewhere(write, tiny_settings):
    write("0.yaml", **tiny_settings)
    for number in range(1, MOST_BASES + 2):
        write(f"{number}.yaml", base=f"{number - 1}.yaml")
    folder = write("x.yaml").parent
    assert load_recipe(folder / f"{MOST_BASES}.yaml")
    with pytest.raises(UserError, match=rf"more than {MOST_BASES} bases.*1\.yaml -> 0\.yaml"):
        load_recipe(folder / f"{MOST_BASES + 1}.yaml")


# ---- the recipes that come along ---------------------------------------------------------------------------------


def test_the_nearest_name_is_offered():
    with pytest.raises(UserError, match=r"Did you mean ade_100-10_ipseg-official_resnet-101\?.*come.* along: ade_100-"):
        find_recipe("ade_100-10_ipseg-official_resnet101")


@pytest.mark.parametrize("path", COMPLETE, ids=lambda path: path.stem)
def test_a_recipe_without_a_base_has_the_methods_defaults_but_where_it_means_to_differ(path):
    recipe = loaded(path)
    small = "variant posterior_lr backbone_lr"
    meant = {f"method.{name}" for name in small.split()} if recipe.data.name == "scenes" else set()
    assert differing(recipe, replace(recipe, method=type(recipe.method)())) == meant


@pytest.mark.parametrize("path", BASED, ids=lambda path: path.stem)
def test_a_recipe_with_a_base_changes_what_it_says_and_says_what_it_changes(path):
    own = yaml.safe_load(path.read_text(encoding="utf-8"))
    base, made = loaded(find_recipe(own.pop("base"))), loaded(path)
    said = set(flat(own))
    another = tuple(f"{section}." for section in ("data", "method") if f"{section}.name" in said)
    changed = {key for key in differing(base, made) if not key.startswith(another)}  # it brings settings of its own
    assert changed - {"name"} == {key for key in said - {"name"} if not key.startswith(another)}
    assert all(getattr(made, section[:-1]).name == own[section[:-1]]["name"] for section in another)


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: path.stem)
def test_a_recipe_of_the_paper_fits_its_data_set_and_its_name_says_what_it_is(path):
    recipe = loaded(path)
    recipe.require_trainable()
    scenario = recipe.scenario.build(recipe.data.name, DATASETS[recipe.data.name])
    data, split, method, backbone = path.stem.split("_")
    assert scenario.name == f"{data}/{split}"
    assert method == {"paper": "ipseg", "official": "ipseg-official"}[recipe.method.variant]
    names = {"swin-b": "swin_base_patch4_window12_384.ms_in1k", "resnet-101": "resnet101.tv_in1k"}
    assert recipe.model.backbone.name == names[backbone]
    assert recipe.model.backbone.weights == "imagenet"


def test_recipes_without_saliency_maps_are_of_the_authors_variant():
    without = {path.stem for path in PAPERS if loaded(path).data.saliency == "all"}
    assert without == {path.stem for path in PAPERS if path.stem.startswith("ade_")}
    assert all("_ipseg-official_" in stem for stem in without)
    for stem in without:
        with pytest.raises(UserError, match=r"data\.saliency is all.*Set method\.variant to official"):
            load_recipe(stem, ["method.variant=paper"]).require_trainable()


@cache
def loaded(path: Path) -> Recipe:
    return load_recipe(path)


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by their whole names: training.lr."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def differing(one: Recipe, other: Recipe) -> set[str]:
    """The settings that are not the same."""
    a, b = flat(to_dict(one)), flat(to_dict(other))
    return {key for key in a.keys() | b.keys() if a.get(key, ...) != b.get(key, ...)}


def test_every_method_has_a_recipe_on_the_same_scenes_and_network():
    scenes = [recipe for recipe in map(loaded, BASED) if recipe.data.name == "scenes"]
    others = {recipe.method.name: recipe for recipe in scenes if recipe.method.name != "ipseg"}
    assert METHODS.keys() - {"ipseg"} == others.keys()
    own = load_recipe("scenes_3-1_ipseg")
    for recipe in others.values():
        assert (recipe.data, recipe.model, recipe.training.epochs) == (own.data, own.model, own.training.epochs)
