"""Train from a recipe: where it comes from, where the run goes, and what a dry run tells."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ipseg.config import to_dict, to_yaml
from ipseg.data.filed import FileSplit
from ipseg.engine.recipe import Recipe, load_recipe, make_recipe
from ipseg.engine.recipe_files import with_base, with_changes
from ipseg.errors import UserError


def resolve(recipe: Recipe | str | Path | Mapping[str, Any], assignments: Sequence[str] = ()) -> Recipe:
    """The recipe itself, from whatever stands for it, with `key=value` changes."""
    if isinstance(recipe, (str, Path)):
        return load_recipe(recipe, assignments)
    values = to_dict(recipe) if isinstance(recipe, Recipe) else with_base(recipe)
    return make_recipe(with_changes(values, assignments))


def default_folder(given: object, recipe: Recipe) -> Path:
    """Where a run goes if nobody says: the run's own folder if the recipe is one, or runs/NAME."""
    if isinstance(given, (str, Path)) and (Path(given) / "recipe.yaml").is_file():
        return Path(given)
    return Path("runs") / (re.sub(r"[^\w.-]+", "-", recipe.name).strip("-.") or recipe.method.name)


def describe_plan(recipe: Recipe, folder: Path) -> str:
    """What a run would do, as the resolved recipe and comments below it. Nothing is written."""
    recipe.method.build(recipe.model, pretrained=False)  # an unknown backbone is told here, not after the start
    lines = [to_yaml(recipe), f"# The run would go to {folder}."]
    try:
        source = recipe.source()
    except UserError as error:
        return "\n".join([*lines, *(f"# {line}" for line in f"The data cannot be opened here: {error}".splitlines())])
    if isinstance(source.train, FileSplit):
        lines.append(f"# Saliency: {source.train.maps}.")
    scenario = recipe.scenario.build(source.name, source.classes)
    pictures = scenario.images_per_step(source.train.presence())
    for step, count in zip(scenario.steps, pictures, strict=True):
        length = f"{recipe.training.iterations(step.index, count)} iterations" if count else "NOTHING TO LEARN FROM"
        lines.append(f"# Step {step.index}: {count} pictures, {length}; learns {', '.join(step.new)}.")
    return "\n".join(lines)
