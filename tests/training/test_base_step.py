"""A base step that two runs share is the one that each would have learned."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from ipseg.apps.compare import compare
from ipseg.errors import UserError
from ipseg.methods.base import MethodConfig
from ipseg.methods.finetune import FinetuneConfig
from ipseg.report.formats import as_json
from ipseg.training.base_step import base_step
from ipseg.training.experiment import run
from ipseg.training.recipe import make_recipe
from ipseg.training.tensors import load_tensors

pytestmark = pytest.mark.slow

LATER = {
    "method": {
        "name": "ipseg",
        "alpha_bc": 0.5,
        "alpha_nf": 0.9,
        "image_labels": "full",
        "min_class_area": 0.5,
        "replay_share": 0.25,
        "permanent_lr": 0.5,
    },
    "memory": {"size": 3},
    "evaluation": {"absent": "zero"},
}
"""Everything that acts after the base step, otherwise than usual."""


def first_step(settings, **changes):
    recipe = make_recipe(settings | changes)
    splits = recipe.data.build()
    return base_step(recipe, recipe.scenario.build(splits.name, splits.classes))


def everything(path: Path) -> dict[str, object]:
    weights = {
        f"{file.parent.name}/{name}": tensor.numpy().tobytes()
        for file in path.glob("step_*/weights.safetensors")
        for name, tensor in load_tensors(file, "weights")[0].items()
    }
    rest = [*path.glob("step_*/step.json"), *path.glob("step_*/memory/**/*"), path / "results.json"]
    return weights | {str(file.relative_to(path)): file.read_bytes() for file in rest if file.is_file()}


def test_a_run_on_a_shared_base_step_is_the_run_that_learned_it_itself(tiny_settings, tiny_run, tmp_path):
    """Other memory, evaluation and later settings than the run it begins with: only the weights are taken."""
    tiny_settings |= LATER
    tiny_settings["training"]["later_epochs"] = 0.5
    run(make_recipe(tiny_settings), tmp_path / "own", quiet=True)
    run(make_recipe(tiny_settings | {"init": f"{tiny_run}@0"}), tmp_path / "shared", quiet=True)
    assert everything(tmp_path / "shared") == everything(tmp_path / "own")
    log = [json.loads(line) for line in (tmp_path / "shared" / "log.jsonl").read_text().splitlines()]
    assert {line["step"] for line in log if line["event"] == "train"} == {1, 2}


def test_methods_that_begin_alike_can_take_each_others_base_step(tiny_settings, tmp_path):
    tiny_settings |= {"scenario": {"name": "3-1"}, "memory": {"size": 0}, "method": {"name": "mib"}}
    run(make_recipe(tiny_settings | {"method": {"name": "finetune"}}), tmp_path / "finetune", quiet=True)
    run(make_recipe(tiny_settings), tmp_path / "own", quiet=True)
    run(make_recipe(tiny_settings | {"init": f"{tmp_path / 'finetune'}@0"}), tmp_path / "shared", quiet=True)
    assert everything(tmp_path / "shared") == everything(tmp_path / "own")


def test_a_run_that_fails_after_a_shared_base_step_has_the_results_of_that_step(tiny_settings, tiny_run, tmp_path):
    tiny_settings["training"]["later_lr"] = 1e30
    with pytest.raises(UserError):
        run(make_recipe(tiny_settings | {"init": f"{tiny_run}@0"}), tmp_path / "failed", quiet=True)
    (row,) = as_json(compare([tmp_path / "failed"]))
    assert row["state"] == "seed 0: 1 of 3 steps"


def test_what_acts_later_does_not_change_the_base_step(tiny_settings):
    later = {"later_epochs": 3, "later_lr": 0.5, "later_optimizer": "adamw", "later_schedule": "warm_poly"}
    later |= {"workers": 0, "log_every": 7}
    assert first_step(tiny_settings | LATER | {"training": tiny_settings["training"] | later}) == first_step(
        tiny_settings
    )
    assert first_step(tiny_settings, scenario={"name": "2-2"}) == first_step(tiny_settings)


@pytest.mark.parametrize(
    "changes",
    [
        {"method": {"decoupling": False}},
        {"method": {"image_posterior": False}},
        {"method": {"lambda_temporary": 0.4}},
        {"method": {"variant": "official"}},
        {"method": {"head": "small"}},
        {"method": {"backbone_lr": 0.2}},
        {"method": {"name": "finetune"}},
        {"training": {"epochs": 2}},
        {"data": {"name": "scenes", "classes": 4, "seed": 1}},
        {"scenario": {"name": "3-1"}},
        {"scenario": {"name": "2-1", "setting": "disjoint"}},
        {"scenario": {"name": "2-1", "order": ["bus", "cow", "horse", "car"]}},
        {"seed": 1},
    ],
    ids=str,
)
def test_what_acts_in_the_base_step_changes_it(tiny_settings, changes):
    assert first_step(tiny_settings, **changes) != first_step(tiny_settings)


def test_of_a_method_that_does_not_say_everything_matters():
    @dataclass(frozen=True, kw_only=True)
    class Silent(MethodConfig):
        name: str = "mine"
        strength: int = 1

        def build(self, model, *, pretrained=True):
            raise NotImplementedError

    assert Silent(strength=2).base_settings() != Silent().base_settings()


@dataclass(frozen=True, kw_only=True)
class Stronger(FinetuneConfig):
    """A setting more than fine-tuning has."""

    name: str = "stronger"
    strength: int = 1


@dataclass(frozen=True, kw_only=True)
class Alike(FinetuneConfig):
    """Says that its base step is fine-tuning's."""

    name: str = "alike"
    base_step: ClassVar = FinetuneConfig.base_step


def test_a_subclass_with_a_setting_of_its_own_shares_no_base_step_unless_it_says_so():
    assert Stronger(strength=2).base_settings() != Stronger().base_settings() != FinetuneConfig().base_settings()
    assert Alike(later_lr=0.5).base_settings() == FinetuneConfig().base_settings()


def test_a_shared_base_step_that_does_not_fit_is_refused_before_anything_is_written(tiny_settings, tiny_run, tmp_path):
    tiny_settings["method"] |= {"image_posterior": False}
    with pytest.raises(UserError, match="the weights do not fit"):
        run(make_recipe(tiny_settings | {"init": f"{tiny_run}@0"}), tmp_path / "mine", quiet=True)
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scenario": {"name": "2-1", "setting": "disjoint"}}, r"other images \(overlap or disjoint\)"),
        ({"scenario": {"name": "3-1"}}, "other classes"),
        ({"data": {"seed": 1}, "evaluation": {"held_out": 0.2}}, "other data, held-out images"),
        ({"method": {"name": "finetune"}}, "other method"),
    ],
    ids=str,
)
def test_steps_that_would_be_learned_otherwise_are_not_taken(tiny_settings, tiny_run, tmp_path, changes, message):
    for section, values in changes.items():
        tiny_settings[section] = values if "name" in values else tiny_settings.get(section, {}) | values
    with pytest.raises(UserError, match=message):
        run(make_recipe(tiny_settings | {"init": f"{tiny_run}@0"}), tmp_path / "mine", quiet=True)
    assert not (tmp_path / "mine").exists()


def test_steps_that_saw_what_no_step_may_see_are_not_taken_without_saying_so(tiny_settings, tmp_path):
    cheat = tiny_settings | {"method": tiny_settings["method"] | {"image_labels": "full"}}
    run(make_recipe(cheat), tmp_path / "cheat", quiet=True)
    with pytest.raises(UserError, match="other oracle settings in its steps 0 to 1"):
        run(make_recipe(tiny_settings | {"init": f"{tmp_path / 'cheat'}@1"}), tmp_path / "mine", quiet=True)
    run(
        make_recipe(tiny_settings | {"init": f"{tmp_path / 'cheat'}@0"}), tmp_path / "mine", quiet=True
    )  # none in step 0


def test_what_is_measured_at_a_shared_step_is_of_the_runs_own_scenario(tiny_settings, tmp_path):
    """Pixels of later classes are ignored, so that other later classes leave other pixels to count."""
    tiny_settings |= {"training": tiny_settings["training"] | {"later_epochs": 0.1}}
    tiny_settings["scenario"] = {"name": "2-1", "unseen": "ignore"}
    all_classes = make_recipe(tiny_settings).splits().classes
    run(make_recipe(tiny_settings), tmp_path / "all", quiet=True)
    tiny_settings["scenario"]["classes"] = all_classes[:3]
    run(make_recipe(tiny_settings), tmp_path / "own", quiet=True)
    run(make_recipe(tiny_settings | {"init": f"{tmp_path / 'all'}@0"}), tmp_path / "shared", quiet=True)
    measured = [(tmp_path / name / "step_00" / "step.json").read_bytes() for name in ("all", "own", "shared")]
    assert measured[2] == measured[1] != measured[0]
