"""The state from which a run starts or resumes: the remaining steps and the model before them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ipseg.data.dataset import DatasetSplits
from ipseg.data.file_dataset import region_mode, saliency_mode
from ipseg.data.step_dataset import StepDataset
from ipseg.errors import UserError
from ipseg.methods.base import Method, MethodConfig
from ipseg.scenario import Scenario, Step
from ipseg.training.base_step import SharedBase, shared_base
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import Recipe
from ipseg.training.system import seed_all, set_deterministic
from ipseg.training.tensors import mismatch


@dataclass(frozen=True)
class Start:
    """The state from which a run starts or resumes; checked, with nothing written yet."""

    scenario: Scenario
    base: SharedBase | None
    """The first steps, if another run gives them."""
    views: Sequence[StepDataset]
    """The steps that are left, each with its own labels."""
    method: Method
    """Ready to train the first of them."""


def resolve_start(recipe: Recipe, folder: RunFolder, splits: DatasetSplits, device: torch.device) -> Start:
    """Start anew, or continue after the folder's last finished step."""
    scenario = recipe.scenario.build(splits.name, splits.classes)
    folder.require_fitting(scenario)
    folder.check_data(data_facts(splits, recipe.method))
    base = pending_base(recipe, scenario, folder)
    done = base.steps if base else folder.finished()
    again = base is not None and not base.whole  # the weights are there; memory and results are not
    oracle, regions = bool(list(recipe.method.oracle())), recipe.method.uses_regions
    steps = scenario.steps[0 if again else done :]
    views = [StepDataset(splits.train, scenario, step, oracle=oracle, regions=regions) for step in steps]
    set_deterministic(wanted=recipe.deterministic)
    method = restore(recipe, base.folder if base else folder, scenario, done - 1, device)
    if again:  # that was to see that the weights fit
        method = restore(recipe, folder, scenario, -1, device)
    for view in views[:1]:
        begin(method, recipe, view.step, device)
    return Start(scenario, base, views, method)


def data_facts(splits: DatasetSplits, method: MethodConfig) -> dict[str, Any]:
    """Facts beside the recipe that numbers depend on: the number of images, where saliency and regions come from."""
    facts: dict[str, Any] = {"training_images": len(splits.train.names), "saliency": saliency_mode(splits.train)}
    if method.uses_regions:
        facts["regions"] = region_mode(splits.train)
        region_mode(splits.val)  # raises where maps are missing
    return {name: value for name, value in facts.items() if value is not None}


def pending_base(recipe: Recipe, scenario: Scenario, folder: RunFolder) -> SharedBase | None:
    """The steps of `init`, if any is not copied yet; once all are, the other run is not needed."""
    number = (recipe.init or "").rpartition("@")[2]
    steps = 1 + int(number) if number.isdecimal() else 1
    taken = all((folder.step(index) / "weights.safetensors").is_file() for index in range(steps))
    return None if taken else shared_base(recipe, scenario)


def begin(method: Method, recipe: Recipe, step: Step, device: torch.device) -> None:
    """Add a step to the method: its heads, frozen parts, teacher."""
    seed_all(recipe.seed, step.index)
    method.begin_step(step)
    method.network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]


def restore(recipe: Recipe, folder: RunFolder, scenario: Scenario, step: int, device: torch.device) -> Method:
    """The model after a step; a fresh one for -1."""
    seed_all(recipe.seed)
    method = recipe.method.build(recipe.model, pretrained=step < 0)
    for earlier in scenario.steps[: step + 1]:
        method.begin_step(earlier)
    if step >= 0:
        load(method, folder, step)
    method.network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    return method


def load(method: Method, folder: RunFolder, step: int) -> None:
    """Load the weights of a step."""
    weights, own = folder.weights(step), method.network.state_dict()
    for name in weights.keys() & own.keys():  # a number of another kind would be converted without a word
        if problem := mismatch(weights[name], own[name]):
            raise UserError(f"{folder.path}: the weights do not fit the recipe's network ({name} {problem}).")
    try:
        method.network.load_state_dict(weights)
    except RuntimeError as error:
        raise UserError(f"{folder.path}: the weights do not fit the recipe's network ({error}).") from error
