"""Share the first steps of a run: runs that agree in all they depend on train the same weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ipseg.config import scopes, to_dict
from ipseg.errors import UserError
from ipseg.scenario import Scenario
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import Recipe, make_recipe


def base_step(recipe: Recipe, scenario: Scenario) -> dict[str, Any]:
    """All settings that act in the base step, as plain values."""
    first, training = scenario.steps[0], recipe.training.at(0)
    return {
        "data": to_dict(recipe.data),
        "held_out": recipe.evaluation.held_out,  # the one setting of evaluation that takes images from learning
        "model": to_dict(recipe.model),
        "method": recipe.method.base_settings(),
        "training": {key: getattr(training, key) for key, scope in scopes(training).items() if scope == "step"},
        "seed": recipe.seed,
        "deterministic": recipe.deterministic,
        "classes": list(first.new),
        "left_out": _left_out(scenario, 1),
    }


def _left_out(scenario: Scenario, steps: int) -> list[list[str]]:
    """The classes whose images each step does without. In overlap there are none: they are background there."""
    return [sorted(step.future) for step in scenario.steps[:steps]] if scenario.setting == "disjoint" else []


# ---- taken from another run -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SharedBase:
    """The first steps of another run."""

    folder: RunFolder
    steps: int
    whole: bool
    """Their memory and results are valid for this run's settings too. If not, only the weights are taken."""


def shared_base(recipe: Recipe, scenario: Scenario) -> SharedBase | None:
    """`init: RUN@K`: the steps up to K of a run that would be learned alike, the rates of training apart."""
    if recipe.init is None:
        return None
    path, at, number = recipe.init.rpartition("@")
    if not at or not number.isdecimal():
        raise UserError(f'init is "{recipe.init}"; it must be RUN@STEP, for example runs/base@0.')
    folder, steps = RunFolder.open(Path(path)), int(number) + 1
    if folder.finished() < steps:
        raise UserError(f"init: {path} has finished {folder.finished()} steps; step {number} is not among them.")
    theirs = make_recipe(folder.settings())
    given = folder.scenario(theirs)
    differing = _differences(theirs, recipe, steps) + _other_split(given, scenario, steps)
    if differing:
        raise UserError(f"init: {path} has other {', '.join(differing)} in its steps 0 to {number}.")
    whole = _after_learning(theirs, given, steps) == _after_learning(recipe, scenario, steps)
    return SharedBase(folder, steps, whole)


def _differences(theirs: Recipe, ours: Recipe, steps: int) -> list[str]:
    one, other = theirs.method, ours.method
    alike = one.name == other.name or (steps == 1 and one.base_settings() == other.base_settings())
    differs = {
        "data": theirs.data != ours.data,
        "held-out images": theirs.evaluation.held_out != ours.evaluation.held_out,
        "network": theirs.model != ours.model,
        "method": not alike,
        "oracle settings": steps > 1 and list(theirs.oracle()) != list(ours.oracle()),  # a result must say them
    }
    return [what for what, apart in differs.items() if apart]


def _other_split(theirs: Scenario, ours: Scenario, steps: int) -> list[str]:
    learned = [[step.new for step in scenario.steps[:steps]] for scenario in (theirs, ours)]
    if learned[0] != learned[1]:
        return ["classes"]
    return ["images (overlap or disjoint)"] if _left_out(theirs, steps) != _left_out(ours, steps) else []


def _after_learning(recipe: Recipe, scenario: Scenario, steps: int) -> tuple[object, ...]:
    """Settings that decide a step's memory and results, apart from its weights."""
    ignored = [set(step.future) for step in scenario.steps[:steps]] if scenario.unseen == "ignore" else []
    return recipe.method, recipe.memory, recipe.evaluation, ignored, recipe.seed
