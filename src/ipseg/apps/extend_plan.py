"""What `ipseg extend` is asked for: checked as a whole before a new run is begun."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ipseg.apps.evaluate import pictures_of
from ipseg.config import Settings, override
from ipseg.data.dataset import DatasetSplits
from ipseg.data.registry import data_config
from ipseg.data.step_dataset import StepDataset
from ipseg.errors import UserError, unknown
from ipseg.scenario.split import EXTENDED, Scenario
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import Recipe, make_recipe
from ipseg.training.setup import restore
from ipseg.training.system import choose_device

FREE = ("name", "seed", "device", "deterministic")
SECTIONS = ("data", "method", "memory", "training", "evaluation")
FIXED = (
    "data.name",
    "data.path",
    "method.name",
    "method.decoupling",
    "method.image_posterior",
    "method.frozen_backbone",
    "method.head",
    "memory.store",
)
"""What `--set` may change, and what in these sections it may not: the old steps and the memory stand on it."""

LEAST_ITERATIONS = 200
"""Of the new step. Epochs that were right for thousands of pictures are a handful of iterations for twenty."""


@dataclass(frozen=True)
class Plan:
    """What will be learned, from what, on top of what. Everything is checked; nothing is written."""

    base: RunFolder
    steps: int
    """Of the base."""
    recipe: Recipe
    splits: DatasetSplits
    scenario: Scenario
    note: str
    """What a person should know who inherits epochs; mostly nothing."""


def make_plan(
    base: RunFolder,
    data: Path,
    classes: str | Sequence[str],
    data_format: str,
    assignments: Sequence[str],
    begun: RunFolder | None = None,
) -> Plan:
    """Check everything that could be wrong before a run is begun. One that has begun keeps its number of epochs."""
    theirs = make_recipe(base.settings())
    learned = base.scenario(theirs)
    if base.finished() < len(learned.steps):
        raise UserError(
            f"{base.path} has finished {base.finished()} of {len(learned.steps)} steps. "
            f"Go on with it first: ipseg train {base.path} --resume"
        )
    if theirs.oracle():
        raise UserError(
            f"{base.path} sees labels that a step must not see ({', '.join(theirs.oracle())}); of old pictures "
            "there are none here. An upper bound cannot learn one more class."
        )
    given = {"name": data_format, "path": str(data)}
    of_data = [assignment for assignment in assignments if _key(assignment).startswith("data.")]
    offered = data_config(override({"data": given}, of_data)["data"]).build().classes
    names = named(classes, offered)
    require_new(names, learned.order, offered, base.path, data)
    recipe = make_recipe(_extended(base.settings(), learned, names, given, assignments))
    if oracle := list(recipe.method.oracle()):
        raise UserError(
            f"--set {', '.join(oracle)}: that takes annotations of old classes, and {data} need not have them. "
            "An upper bound cannot learn one more class; leave the setting as it was."
        )
    splits = recipe.splits()  # without what is held out
    scenario = recipe.scenario.build(splits.name, splits.classes)
    dataset = StepDataset(splits.train, scenario, scenario.steps[-1])  # raises where no picture holds a new class
    recipe, note = long_enough(recipe, dataset.step.index, len(dataset), assignments, begun)
    return Plan(base, len(learned.steps), recipe, splits, scenario, note)


def long_enough(
    recipe: Recipe, step: int, pictures: int, assignments: Sequence[str], begun: RunFolder | None
) -> tuple[Recipe, str]:
    """The recipe with at least `LEAST_ITERATIONS` for the step, unless its epochs were chosen; what to say of it."""
    training = recipe.training
    iterations, batch = training.iterations(step, pictures), training.batch_size
    chosen = {"training.epochs", "training.later_epochs"} & set(map(_key, assignments))
    if begun and not chosen:
        return with_epochs(recipe, make_recipe(begun.settings()).training.later_epochs), ""
    if iterations >= LEAST_ITERATIONS:
        return recipe, ""
    enough = math.ceil(LEAST_ITERATIONS * batch / pictures)
    given = f"{pictures} pictures in batches of {batch}, {training.at(step).epochs:g} times: {iterations} iterations"
    if chosen:
        return recipe, f"{given}; for {LEAST_ITERATIONS} set training.later_epochs={enough}."
    longer = with_epochs(recipe, enough)
    now = longer.training.iterations(step, pictures)
    return longer, f"{given} are too few. training.later_epochs is {enough} now, {now} iterations; --set changes it."


def with_epochs(recipe: Recipe, later_epochs: float | None) -> Recipe:
    """With other epochs of later steps."""
    return replace(recipe, training=replace(recipe.training, later_epochs=later_epochs))


def named(classes: str | Sequence[str], offered: Sequence[str]) -> list[str]:
    """The classes of a text with commas between them; a text that is a class's name with its commas means that one.

    >>> named("sheep, goat", ["goat", "sheep"]), named("bus, red", ["bus, red", "bus"])
    (['sheep', 'goat'], ['bus, red'])
    """
    if not isinstance(classes, str):
        return list(classes)
    if classes.strip() in offered:
        return [classes.strip()]
    return [name.strip() for name in classes.split(",") if name.strip()]


def require_new(names: Sequence[str], known: Sequence[str], offered: Sequence[str], run: Path, data: Path) -> None:
    """Raise unless the run does not know these classes, and the data has them."""
    new = [name for name in offered if name not in known]
    if not names:
        raise UserError(f"--classes names no class. New in {data}: {', '.join(new) or 'none'}.")
    if len(set(names)) < len(names):
        raise UserError(f"--classes names a class twice: {', '.join(names)}.")
    for name in names:
        if name in known:
            raise UserError(
                f'{run} knows "{name}" already; it knows {", ".join(known)}. New in {data}: {", ".join(new) or "none"}.'
            )
        if name not in offered:
            hint = f"--classes takes classes of {data} that {run} does not know yet."
            raise unknown("new class", name, new, hint)


def _extended(
    values: Settings,
    learned: Scenario,
    classes: Sequence[str],
    data: Settings,
    assignments: Sequence[str],
) -> Settings:
    """The old recipe with the new data, one more step, and a memory of copies: names would be of several data sets."""
    steps = [list(step.new) for step in learned.steps]
    extended = values | {
        "name": "+".join([str(values.get("name") or values["method"]["name"]), *classes]),
        "data": data,
        "scenario": {
            "name": EXTENDED,
            "setting": learned.setting,
            "unseen": learned.unseen,
            "steps": [*steps, list(classes)],
        },
        "memory": values["memory"] | {"store": "copy"},
        "init": None,
    }
    return override(extended, assignments)


def require_free(assignment: str) -> None:
    """Raise if a change touches what the old steps or the memory stand on."""
    key = _key(assignment)
    section = key.partition(".")[0]
    if key not in FREE and ("." not in key or section not in SECTIONS or key in FIXED):
        raise UserError(
            f"--set {assignment}: {key} is fixed by what the run has learned. What may change: {', '.join(FREE)} and "
            f"the settings of {', '.join(SECTIONS)}, but for {', '.join(FIXED)}."
        )


def _key(assignment: str) -> str:
    return assignment.partition("=")[0].strip()


def validation(plan: Plan, path: Path | None) -> tuple[DatasetSplits, bool]:
    """The pictures to measure on, and whether they are validation pictures of the new data or of the old run."""
    if path is None:
        return plan.splits, True
    splits, own = pictures_of(path, plan.recipe, make_recipe(plan.base.settings()))
    if not set(plan.scenario.order) & set(splits.classes):
        raise UserError(
            f"--val {path} has none of the classes {', '.join(plan.scenario.order)}. "
            f"It has {', '.join(splits.classes)}."
        )
    return splits, own


# ---- what is there ----------------------------------------------------------------------------------------------


def require_learnable(plan: Plan) -> None:
    """Raise unless the old model can be read and extended: half a new run would stand in the way of the next try."""
    plan.recipe.require_trainable()
    choose_device(plan.recipe.device)
    plan.base.require_results()
    method = restore(plan.recipe, plan.base, plan.scenario, plan.steps - 1, torch.device("cpu"))
    method.begin_step(plan.scenario.steps[-1])


def require_own_data(plan: Plan, folder: RunFolder) -> None:
    """Raise if a new run that goes on has other data. Data may move, but not once nothing is left to learn from it."""
    learned, given = folder.settings()["data"].get("path"), getattr(plan.recipe.data, "path", None)
    if folder.finished() == len(plan.scenario.steps) and _place(learned) != _place(given):
        raise UserError(
            f"{folder.path} has learned from {learned} and is finished; from --data {given} nothing would be learned. "
            f"To measure it elsewhere keep --data {learned} and add --val DIR, or use "
            f"`ipseg evaluate {folder.path} --data DIR`. To learn from other data choose another --out."
        )
    folder.require_fitting(plan.scenario)


def _place(path: str | None) -> Path | None:
    return None if path is None else Path(path).expanduser().resolve()
