"""Train from a recipe: resolve it, choose the run's folder, describe a dry run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ipseg.config import to_dict, to_yaml
from ipseg.data.file_dataset import FileDataset
from ipseg.errors import UserError
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import Recipe, load_recipe, make_recipe
from ipseg.training.recipe_files import with_base, with_overrides
from ipseg.training.setup import data_facts, pending_base
from ipseg.training.system import choose_device


def resolve(recipe: Recipe | str | Path | Mapping[str, Any], assignments: Sequence[str] = ()) -> Recipe:
    """A recipe from its name, its file, a run's folder, its settings or itself, with `key=value` changes."""
    if isinstance(recipe, (str, Path)):
        return load_recipe(recipe, assignments)
    values = to_dict(recipe) if isinstance(recipe, Recipe) else with_base(recipe)
    return make_recipe(with_overrides(values, assignments))


def default_folder(given: object, recipe: Recipe) -> Path:
    """The folder of a run without --out: the run's own if the recipe is one, or runs/NAME."""
    if isinstance(given, (str, Path)) and (Path(given) / "recipe.yaml").is_file():
        return Path(given)
    return Path("runs") / (re.sub(r"[^\w.-]+", "-", recipe.name).strip("-.") or recipe.method.name)


def describe_plan(recipe: Recipe, folder: Path, *, resume: bool = False) -> tuple[str, UserError | None]:
    """The resolved recipe with the plan as comments, and why it could not start. Nothing is written."""
    lines = [to_yaml(recipe), f"# The run would go to {folder}."]
    lines += [f"# Note: {note}" for note in recipe.unused_settings()]
    problem: UserError | None = None
    try:
        recipe.require_trainable()
        choose_device(recipe.device)
        run = RunFolder.check(folder, recipe, resume=resume)
        method = recipe.method.build(recipe.model, pretrained=recipe.model.backbone.weights != "imagenet")
        splits = recipe.splits()
        scenario = recipe.scenario.build(splits.name, splits.classes)
        run.require_fitting(scenario)
        run.check_data(data_facts(splits, recipe.method))
        method.begin_step(scenario.steps[0])
        base = pending_base(recipe, scenario, run)
    except UserError as error:
        return "\n".join(lines), error
    if isinstance(splits.train, FileDataset):
        lines.append(f"# Saliency: {splits.train.saliency_source}.")
    counts = scenario.images_per_step(splits.train.class_presence())
    for step, count in zip(scenario.steps, counts, strict=True):
        length = f"{recipe.training.iterations(step.index, count)} iterations" if count else "nothing to learn from"
        how = f"taken from {recipe.init}" if base and step.index < base.steps else f"{count} images, {length}"
        lines.append(f"# Step {step.index}: {how}; learns {', '.join(step.new)}.")
    if empty := [str(step.index) for step, count in zip(scenario.steps, counts, strict=True) if not count]:
        problem = UserError(f"step {', '.join(empty)} has no image to learn from; see the plan.")
    return "\n".join(lines), problem
