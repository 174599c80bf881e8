"""Settings: checked key by key, changed from the command line, written back with their meaning."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ipseg.config import build, field_docs, find_class, override, read_yaml, to_dict, to_yaml
from ipseg.data.ade import AdeConfig
from ipseg.data.coco import CocoConfig
from ipseg.data.folder import FolderConfig
from ipseg.data.memory import MemoryConfig
from ipseg.data.scenes.dataset import ScenesConfig
from ipseg.data.voc import VocConfig
from ipseg.errors import UserError, require_one_of, unknown
from ipseg.methods.finetune import FinetuneConfig
from ipseg.methods.registry import METHODS
from ipseg.models.backbone import BackboneConfig
from ipseg.models.network import ModelConfig
from ipseg.scenario import ScenarioConfig
from ipseg.training.evaluate import EvaluationConfig
from ipseg.training.recipe import Recipe, TrainingConfig

CONFIGS = [
    Recipe, ScenesConfig, FolderConfig, ScenarioConfig, ModelConfig, BackboneConfig, *METHODS.values(),
    MemoryConfig, TrainingConfig, EvaluationConfig, VocConfig, AdeConfig, CocoConfig,
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One section."""

    power: float = 1.0
    """How strong."""


@dataclass(frozen=True, kw_only=True)
class Car:
    """All kinds of settings."""

    wheels: int
    """How many."""
    name: str = "car"
    """Its name,
    on two lines."""
    engine: Engine = field(default_factory=Engine)
    """What drives it."""
    color: Literal["red", "blue"] = "red"
    """Red or blue."""
    size: tuple[int, int] = (2, 4)
    """Width and length."""
    speeds: tuple[float, ...] = ()
    """Gears."""
    open: bool = False
    """Whether it has no roof."""
    order: int | tuple[str, ...] | None = None
    """A seed, names or nothing."""


def test_plain_values_become_a_config():
    car = build(Car, {"wheels": 4, "engine": {"power": 3}, "size": [1, 2], "speeds": [1, 2.5], "order": ["a"]}, "car")
    assert car == Car(wheels=4, engine=Engine(power=3.0), size=(1, 2), speeds=(1.0, 2.5), order=("a",))
    assert isinstance(car.engine.power, float)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"wheels": 4, "colur": "red"}, r"car\.colur.*Did you mean color\?"),
        ({"wheels": 4, "engine": {"powr": 1}}, r"car\.engine\.powr.*Did you mean power\?"),
        ({}, r"car\.wheels is missing"),
        ({"wheels": "four"}, r"car\.wheels must be a whole number, got 'four'"),
        ({"wheels": 4.0}, r"car\.wheels must be a whole number, got 4\.0"),
        ({"wheels": True}, r"car\.wheels must be a whole number, got True"),
        ({"wheels": 4, "engine": {"power": True}}, r"car\.engine\.power must be a number, got True"),
        ({"wheels": 4, "engine": {"power": "strong"}}, r"car\.engine\.power must be a number, got 'strong'"),
        ({"wheels": 4, "engine": {"power": float("inf")}}, r"car\.engine\.power: it holds the number inf; .* finite"),
        ({"wheels": 4, "engine": {"power": "1e999"}}, r"car\.engine\.power: it holds the number inf"),
        (
            {"wheels": 4, "engine": {"power": 10**400}},
            r"engine\.power: .* 1329 bits; whole numbers have at most 64",
        ),
        ({"wheels": 10**5000}, r"car\.wheels: it holds a number of 16610 bits"),
        ({"wheels": 4, "name": "\ud800"}, r"car\.name: the text '\\ud800' holds half a character"),
        ({"wheels": 4, "name": "a\0b"}, r"car\.name: the text 'a\\x00b' holds a NUL"),
        ({"wheels": 4, "engine": 3}, r"car\.engine must be a section of settings, got 3"),
        ({"wheels": 4, "name": 3}, r"car\.name must be text, got 3"),
        ({"wheels": 4, "open": 1}, r"car\.open must be true or false, got 1"),
        ({"wheels": 4, "color": "bleu"}, r'car\.color.*"bleu".*Did you mean blue\?'),
        ({"wheels": 4, "size": [1, 2, 3]}, r"car\.size must have 2 values, got \[1, 2, 3\]"),
        ({"wheels": 4, "size": 3}, r"car\.size must be a list, got 3"),
        ({"wheels": 4, "size": [1, "x"]}, r"car\.size\[1\] must be a whole number"),
        ({"wheels": 4, "order": 1.5}, r"car\.order must be a whole number or a list or null, got 1\.5"),
    ],
)
def test_a_setting_that_is_wrong_is_named_with_what_is_valid(values, message):
    with pytest.raises(UserError, match=message):
        build(Car, values, "car")


@dataclass(frozen=True, kw_only=True)
class Lorry:
    """Somebody's own settings, of types that settings cannot have."""

    loads: list[int] = field(default_factory=list)
    trailers: dict[str, int] | None = None


@pytest.mark.parametrize(("key", "value", "said"), [("loads", [1], "list"), ("trailers", {"a": 1}, "dict")])
def test_a_field_of_a_type_that_settings_cannot_have_is_named_with_what_to_declare(key, value, said):
    assert build(Lorry, {}, "data").loads == []
    with pytest.raises(UserError, match=rf"data\.{key}: its field has the type {said}\[.*declare tuple\[\.\.\.\]"):
        build(Lorry, {key: value}, "data")


@pytest.mark.parametrize(("text", "value"), [("1e-3", 0.001), ("5E2", 500.0), ("1.5e-4", 0.00015), ("-2e1", -20.0)])
def test_numbers_with_an_exponent_are_numbers_although_yaml_reads_some_as_text(text, value):
    assert build(Engine, override({}, [f"power={text}"]), "car").power == value


def test_assignments_reach_into_sections_and_leave_the_original_alone():
    original = {"engine": {"power": 1}, "wheels": 4}
    changed = override(original, ["engine.power=2", "color=blue", "size=[3, 5]", "order=null", "name=a=b"])
    assert changed == {
        "engine": {"power": 2}, "wheels": 4, "color": "blue", "size": [3, 5], "order": None, "name": "a=b",
    }  # fmt: skip
    assert original == {"engine": {"power": 1}, "wheels": 4}


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("wheels", r'--set takes KEY=VALUE, got "wheels"; for example'),
        ("=3", "--set takes KEY=VALUE"),
        ("wheels.front=2", "wheels is a value, not a section"),
        ("size=[1", r"--set size=\[1: not YAML"),
        ("name=2024-02-30", r"--set name=2024-02-30: not YAML \(day is out of range.*goes in quotes"),
        ("open=!!bool maybe", r"--set open=!!bool maybe: not YAML"),
        ("size=" + 2000 * "[", r"not YAML \(maximum recursion depth"),
        ("a" + 2000 * ".a" + "=1", r"--set a\.a.*\.\.\.: there are no 2000 sections within each other"),
        ("seed=1" + 400 * "0", r"--set seed=10+: it holds a number of 1329 bits; whole numbers have at most 64"),
    ],
)
def test_an_assignment_that_makes_no_sense_is_explained(assignment, message):
    with pytest.raises(UserError, match=message):
        override({"wheels": 4}, [assignment])


whole = st.integers(-(1 << 63), (1 << 63) - 1)
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)


@given(
    st.builds(
        Car,
        wheels=whole,
        name=words,
        engine=st.builds(Engine, power=st.floats(allow_nan=False, allow_infinity=False)),
        size=st.tuples(whole, whole),
        speeds=st.lists(st.floats(allow_nan=False, allow_infinity=False)).map(tuple),
        open=st.booleans(),
        order=st.none() | whole | st.lists(words.filter(str.isprintable)).map(tuple),
    )
)
def test_what_is_written_as_yaml_is_read_as_the_same_config(car):
    assert build(Car, yaml.safe_load(to_yaml(car)), "") == car


def test_lists_of_any_length_survive_the_writing():
    car = Car(wheels=4, order=tuple(f"class number {i}" for i in range(254)))

    text = "\n".join(["car:", *(f"  {line}" for line in to_yaml(car).splitlines())])
    assert build(Car, yaml.safe_load(text)["car"], "") == car


def test_every_key_is_written_with_its_meaning_as_a_comment():
    lines = to_yaml(Car(wheels=4)).splitlines()
    assert lines[lines.index("wheels: 4") - 1] == "# How many."
    assert lines[lines.index("name: car") - 1] == "# Its name, on two lines."
    assert lines[lines.index("  power: 1.0") - 1] == "  # How strong."
    assert "size: [2, 4]" in lines


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.__name__)
def test_every_setting_explains_itself(config):
    docs = field_docs(config)
    assert set(docs) == {one.name for one in fields(config)}
    assert all(doc.strip().endswith(".") for doc in docs.values())


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.__name__)
def test_configs_are_frozen_and_take_keywords_only(config):
    assert config.__dataclass_params__.frozen
    assert all(one.kw_only for one in fields(config))


def test_to_dict_gives_plain_values():
    assert to_dict(Car(wheels=4))["engine"] == {"power": 1.0}
    assert to_dict(Car(wheels=4))["size"] == [2, 4]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [1", "the recipe cannot be read: .* not YAML"),
        ("- a\n- b", "must be a mapping"),
        ("", "must be a mapping"),
        ("a: 2024-02-30", "not YAML.*day is out of range"),
        ("a: " + 2000 * "[", "not YAML.*recursion"),
    ],
    ids=range(5),
)
def test_yaml_that_cannot_be_read_is_refused_by_name(tmp_path, content, message):
    path = tmp_path / "recipe.yaml"
    path.write_text(content)
    with pytest.raises(UserError, match=message) as caught:
        read_yaml(path, "the recipe")
    assert str(path) in str(caught.value)


def test_yaml_that_is_missing_or_would_run_code_is_refused(tmp_path):
    with pytest.raises(UserError, match="the recipe is missing"):
        read_yaml(tmp_path / "recipe.yaml", "the recipe")
    (tmp_path / "recipe.yaml").write_text("a: !!python/object/apply:os.getcwd []")
    with pytest.raises(UserError, match="not YAML"):
        read_yaml(tmp_path / "recipe.yaml", "the recipe")


@pytest.mark.parametrize(
    ("content", "line", "key"),
    [
        ("runs: {ipseg: {}, ipseg: {memory: {size: 0}}}", 1, "ipseg"),
        ("memory: {size: 1}\n\nseed: 0\nmemory: {size: 2}", 4, "memory"),
        ("memory:\n  size: 1\n  size: 1", 3, "size"),
        ("runs:\n  - {1: a}\n  - {1: a, 0x1: b}", 3, "0x1"),
        ("a: &a {b: 1}\nc: {<<: *a, d: 1, d: 2}", 2, "d"),
    ],
)
def test_a_key_that_stands_twice_in_a_section_is_refused_with_its_file_and_line(tmp_path, content, line, key):
    path = tmp_path / "recipe.yaml"
    path.write_text(content)
    with pytest.raises(UserError, match=f'duplicate key "{key}"') as caught:
        read_yaml(path, "the recipe")
    assert str(caught.value).startswith(f"the recipe cannot be read: {path}: line {line}: ")


def test_keys_of_another_section_are_brought_along_and_gone_over(tmp_path):
    (tmp_path / "recipe.yaml").write_text(
        "first: {inner: &inner {<<: &most {size: 1, per: image}, size: 2}}\n"
        "second: {<<: *inner, size: 3}\n"
        "third: {<<: [*inner, *most], new: 4}\n"
    )
    assert read_yaml(tmp_path / "recipe.yaml", "the recipe") == {
        "first": {"inner": {"size": 2, "per": "image"}},
        "second": {"size": 3, "per": "image"},
        "third": {"size": 2, "per": "image", "new": 4},
    }


def test_a_class_is_found_by_its_short_name_or_by_module_and_class():
    assert find_class("car", {"car": Car}, "vehicle") is Car
    assert find_class("ipseg.methods.finetune:FinetuneConfig", {}, "method") is FinetuneConfig
    for name, message in (
        ("cra", r"Did you mean car\?"),
        ("nowhere:Car", "cannot be imported"),
        ("os:sep", "not a class"),
    ):
        with pytest.raises(UserError, match=message):
            find_class(name, {"car": Car}, "vehicle")


def test_a_class_that_is_no_dataclass_has_no_settings():
    with pytest.raises(UserError, match="data: Path is not a dataclass of settings"):
        build(Path, {}, "data")


def test_errors_offer_the_nearest_name_and_list_the_valid_ones():
    assert str(unknown("method", "ipsg", ["ipseg", "finetune"])).startswith('no method "ipsg". Did you mean ipseg?')
    assert "Did you mean" not in str(unknown("method", "zzz", ["ipseg"]))
    with pytest.raises(UserError, match='"7"'):
        require_one_of("stride", 7, [8, 16])
