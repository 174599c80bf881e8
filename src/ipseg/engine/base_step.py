"""What the base step of a run depends on: runs that agree in it learn the same weights, so one of them is enough."""

from __future__ import annotations

from typing import Any

from ipseg.config import to_dict
from ipseg.engine.folder import FREE
from ipseg.engine.recipe import Recipe, TrainingConfig
from ipseg.methods.base import MethodConfig
from ipseg.scenario.split import Scenario


def base_step(recipe: Recipe, scenario: Scenario) -> dict[str, Any]:
    """Plain values. Memory, evaluation and what acts in later steps alone are not among them."""
    first = scenario.steps[0]
    return {
        "data": to_dict(recipe.data),
        "held_out": recipe.evaluation.held_out,  # the one setting of evaluation that takes pictures from learning
        "model": to_dict(recipe.model),
        "method": base_settings(recipe.method),
        "training": _at_the_base_step(recipe.training),
        "seed": recipe.seed,
        "deterministic": recipe.deterministic,
        "classes": list(first.new),
        # Other classes are background in any case. Which pictures are left out for their sake is a matter of disjoint.
        "left_out": sorted(first.future) if scenario.setting == "disjoint" else [],
    }


def base_settings(method: MethodConfig) -> dict[str, Any]:
    """The settings of a method that act in its base step: what `base_settings()` of its config says, or all of them.

    Two methods that say the same learn the same base step, whatever their names.
    """
    say = getattr(method, "base_settings", None)
    settings: dict[str, Any] = say() if say else to_dict(method)
    return settings


def _at_the_base_step(training: TrainingConfig) -> dict[str, Any]:
    values = to_dict(training.at(0))
    later = {key for key in values if key.startswith("later_")}
    return {key: value for key, value in values.items() if key not in later and f"training.{key}" not in FREE}
