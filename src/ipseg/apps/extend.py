"""Add classes to a finished run, from images of the new classes alone.

The extended run has the old run's steps and one more, learned from the new data: its recipe names that data, and lists
the classes of every step (`scenario.steps`). Of the old data it has the memory, which moves in with copies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ipseg.apps.extend_report import compare_last_steps
from ipseg.apps.run import Run, require_disjoint
from ipseg.config import flat, override, scopes, to_dict
from ipseg.data.dataset import DatasetSplits, EmptyDataset
from ipseg.data.memory import ReplayMemory, move_memory
from ipseg.data.registry import data_config
from ipseg.data.step_dataset import StepDataset
from ipseg.errors import UserError, unknown
from ipseg.files import whole_or_nothing, write_json
from ipseg.progress import silence
from ipseg.scenario import EXTENDED
from ipseg.training.experiment import run as train
from ipseg.training.experiment import summarize
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import Recipe, make_recipe
from ipseg.training.setup import data_facts

VERSION = 1
SETTINGS = ("name", "seed", "device", "deterministic")
SECTIONS = ("data", "method", "memory", "training", "evaluation")
"""`--set` may change these, but for the data set, the method and the settings whose scope is `fixed`."""

MIN_ITERATIONS = 200
"""Of the new step. Epochs that suit thousands of images are a handful of iterations for twenty."""
FEW_IMAGES = 100
"""A step of fewer learns by the following settings if the method is `ipseg_lda`."""
FEW_IMAGES_SETTINGS = {
    "method.replay_share": 0,
    "training.later_optimizer": "adamw",
    "training.later_lr": 0.006,
    "training.later_schedule": "warm_poly",
}
"""The posterior keeps the old classes; a head that sees few images beside replayed ones calls most of its class
background (benchmarks/few-images)."""
FEW_IMAGES_ITERATIONS = 120
"""In place of MIN_ITERATIONS, with these settings; 200 reached no more."""
EXPECTED = {4: (14, 42), 8: (20, 53), 16: (22, 53), 32: (21, 53), 64: (28, 58)}
"""Images of a class, and the IoU in percent of the worst and the best class of benchmarks/few-images."""


def extend(
    run: Path,
    data: Path,
    classes: str | Sequence[str],
    out: Path,
    *,
    data_format: str = "folder",
    val: Path | None = None,
    assignments: Sequence[str] = (),
    memory: bool = True,
    resume: bool = False,
    quiet: bool = False,
    warn: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Learn new classes on top of a finished run, in a run of its own. Returns the content of extend.json.

    classes: a list of names, or a text with commas between them. warn: gets notes about the settings beforehand.
    """
    require_disjoint(out, run)
    with silence(wanted=quiet):
        base = Run.open(run)
        begun = RunFolder.open(out) if resume and (out / "run.json").is_file() else None
        recipe = extended_recipe(base, data, classes, data_format, assignments)
        splits = recipe.splits()  # without held-out images
        scenario = recipe.scenario.build(splits.name, splits.classes)
        step = scenario.steps[-1]
        images = len(StepDataset(splits.train, scenario, step))  # raises where no image has a new class
        recipe = for_few_images(recipe, images, assignments, begun)
        recipe, note = with_enough_iterations(recipe, step.index, images, assignments, begun)
        for line in (note, "" if begun else expectation(recipe, images)):
            if line:
                warn(line)
        new = Run(RunFolder.check(out, recipe, resume=begun is not None), recipe, scenario)
        measured, own_split = (splits, True) if val is None else new.splits_for(val, base)
        if begun:
            require_same_data(new)
        else:
            create(new, base, splits, memory=memory)
        train(recipe, out, resume=True, splits=splits, quiet=quiet)
        comparison = compare_last_steps(new, measured, own_split=own_split)
    report = {"version": VERSION, "from": str(run), "new": list(step.new), "old": list(step.old), "images": images}
    write_json(out / "extend.json", report | comparison)
    return report | comparison


# ---- the recipe -------------------------------------------------------------------------------------------------


def extended_recipe(
    base: Run, data: Path, classes: str | Sequence[str], data_format: str, assignments: Sequence[str]
) -> Recipe:
    """The old recipe with the new data and one more step; its memory has copies, for names are of several data sets."""
    known = base.scenario
    if base.folder.finished() < len(known.steps):
        raise UserError(
            f"{base.path} has finished {base.folder.finished()} of {len(known.steps)} steps. "
            f"Resume it first: ipseg train {base.path} --resume"
        )
    if oracle := base.recipe.oracle():
        raise UserError(
            f"{base.path} sees labels that a step must not see ({', '.join(oracle)}); of old images there are none "
            "here. An upper bound cannot learn one more class."
        )
    require_changeable(assignments, base.recipe)
    section = {"name": data_format, "path": str(data)}
    of_data = [assignment for assignment in assignments if _key(assignment).startswith("data.")]
    offered = data_config(override({"data": section}, of_data)["data"]).build().classes
    names = new_classes(classes, offered, base, data)
    settings = base.folder.settings()
    scenario = {
        "name": EXTENDED,
        "setting": known.setting,
        "unseen": known.unseen,
        "steps": [*(list(step.new) for step in known.steps), names],
    }
    changed = settings | {
        "name": "+".join([base.recipe.name or base.recipe.method.name, *names]),
        "data": section,
        "scenario": scenario,
        "memory": settings["memory"] | {"store": "copy"},
        "init": None,
    }
    recipe = make_recipe(override(changed, assignments))
    if oracle := list(recipe.method.oracle()):
        raise UserError(
            f"--set {', '.join(oracle)}: that takes annotations of old classes, and {data} need not have them. "
            "An upper bound cannot learn one more class; leave the setting as it was."
        )
    return recipe


def require_changeable(assignments: Sequence[str], recipe: Recipe) -> None:
    """Raise if `--set` changes a setting that the old steps or the memory depend on."""
    fixed = {key for key, scope in scopes(recipe).items() if scope == "fixed"}
    fixed |= {"data.name", "data.path", "method.name"}
    for assignment in assignments:
        key = _key(assignment)
        section, dot, _ = key.partition(".")
        if key not in SETTINGS and (not dot or section not in SECTIONS or key in fixed):
            names = ", ".join(sorted(name for name in fixed if name.partition(".")[0] in SECTIONS))
            raise UserError(
                f"--set {assignment}: {key} is fixed by what the run has learned. What may change: "
                f"{', '.join(SETTINGS)} and the settings of {', '.join(SECTIONS)}, but for {names}."
            )


def new_classes(classes: str | Sequence[str], offered: Sequence[str], base: Run, data: Path) -> list[str]:
    """The names of the new classes; a text that is a class's name with its commas means that class.

    Raise unless the data has them and the run does not.
    """
    if not isinstance(classes, str):
        names = list(classes)
    elif classes.strip() in offered:
        names = [classes.strip()]
    else:
        names = [name.strip() for name in classes.split(",") if name.strip()]
    known = base.scenario.order
    new = [name for name in offered if name not in known]
    valid = f"New in {data}: {', '.join(new) or 'none'}."
    if not names:
        raise UserError(f"--classes names no class. {valid}")
    if len(set(names)) < len(names):
        raise UserError(f"--classes names a class twice: {', '.join(names)}.")
    for name in names:
        if name in known:
            raise UserError(f'{base.path} knows "{name}" already; it knows {", ".join(known)}. {valid}')
        if name not in offered:
            hint = f"--classes takes classes of {data} that {base.path} does not know yet."
            raise unknown("new class", name, new, hint)
    return names


def are_few(recipe: Recipe, images: int) -> bool:
    """Whether the settings for few images are for this step."""
    return images < FEW_IMAGES and recipe.method.name == "ipseg_lda"


def for_few_images(recipe: Recipe, images: int, assignments: Sequence[str], begun: RunFolder | None) -> Recipe:
    """The recipe with the settings for few images, but for those that were chosen.

    A run that has begun keeps its own.
    """
    if not are_few(recipe, images):
        return recipe
    settings = FEW_IMAGES_SETTINGS
    if begun:
        own = flat(begun.settings())
        settings = {key: own[key] for key in settings}
    changes = [f"{key}={value}" for key, value in settings.items() if key not in map(_key, assignments)]
    return make_recipe(override(to_dict(recipe), changes))


def expectation(recipe: Recipe, images: int) -> str:
    """What to expect of so few images, where that was measured."""
    known = [count for count in EXPECTED if count <= images]
    if not known or not are_few(recipe, images):
        return ""
    low, high = EXPECTED[known[-1]]
    return (
        f"{images} images of new classes: from {known[-1]} photographs of an animal, or of people, a small network "
        f"reached an IoU of {low} to {high} % (docs/few-images.md)."
    )


def with_enough_iterations(
    recipe: Recipe, step: int, images: int, assignments: Sequence[str], begun: RunFolder | None
) -> tuple[Recipe, str]:
    """The recipe with enough iterations for the step, unless its epochs were chosen; and a note about it.

    A run that has begun keeps its epochs.
    """

    def with_epochs(epochs: float | None) -> Recipe:
        return replace(recipe, training=replace(recipe.training, later_epochs=epochs))

    training, least = recipe.training, FEW_IMAGES_ITERATIONS if are_few(recipe, images) else MIN_ITERATIONS
    iterations, batch = training.iterations(step, images), training.batch_size
    chosen = {"training.epochs", "training.later_epochs"} & set(map(_key, assignments))
    if begun and not chosen:
        return with_epochs(make_recipe(begun.settings()).training.later_epochs), ""
    if iterations >= least:
        return recipe, ""
    enough = math.ceil(least * batch / images)
    given = f"{images} images in batches of {batch}, {training.at(step).epochs:g} times: {iterations} iterations"
    if chosen:
        return recipe, f"{given}; for {least} set training.later_epochs={enough}."
    longer = with_epochs(enough)
    now = longer.training.iterations(step, images)
    return longer, f"{given} are too few. training.later_epochs is {enough} now, {now} iterations; --set changes it."


def _key(assignment: str) -> str:
    return assignment.partition("=")[0].strip()


# ---- the new run ------------------------------------------------------------------------------------------------


def require_same_data(new: Run) -> None:
    """Raise if a resumed run has other data. Data may move, but not once nothing is left to learn from it."""

    def resolved(path: str | None) -> Path | None:
        return None if path is None else Path(path).expanduser().resolve()

    learned, given = new.folder.settings()["data"].get("path"), getattr(new.recipe.data, "path", None)
    if new.folder.finished() == len(new.scenario.steps) and resolved(learned) != resolved(given):
        raise UserError(
            f"{new.path} has learned from {learned} and is finished; from --data {given} nothing would be learned. "
            f"To measure it elsewhere keep --data {learned} and add --val DIR, or use "
            f"`ipseg evaluate {new.path} --data DIR`. To learn from other data choose another --out."
        )
    new.folder.require_fitting(new.scenario)


def create(new: Run, base: Run, splits: DatasetSplits, *, memory: bool) -> None:
    """Create the new run's folder with the old steps in it: all of it, or nothing."""
    last, added = new.scenario.steps[-2:]
    new.recipe.require_trainable()
    base.folder.require_results()
    replace(new, folder=base.folder).method(last).begin_step(added)  # raises where device or weights are missing
    if memory and base.recipe.method.replays:
        replayed = replayable_memory(base)
    else:
        replayed = ReplayMemory([], EmptyDataset(), last.seen)
    with whole_or_nothing(new.path) as partial:
        folder = RunFolder(partial)
        folder.check_data(data_facts(splits, new.recipe.method))
        folder.create(new.recipe, new.scenario)
        folder.copy_steps(base.folder, last.index + 1, memory=False)
        move_memory(replayed, folder.step(last.index) / "memory", [splits.train, splits.val])
        folder.write_results(summarize(new.recipe, folder, new.scenario))


def replayable_memory(base: Run) -> ReplayMemory:
    """The memory after the last step with its images: copies, or those of its data set if that is still there."""
    step = base.step()
    place = base.folder.step(step.index) / "memory"
    without = "or extend without the memory: --no-memory. The old classes suffer then."
    if not place.is_dir():
        raise UserError(
            f"{base.path} has no memory after step {step.index}: {place} is not there. It was deleted, or left out of "
            f"a pack.\nPut it back if you have it elsewhere, {without}"
        )
    advice = "Put a whole copy of it in its place"
    try:
        memory = base.memory(step)
        if memory.without_copy():
            advice = "Images without a copy (memory.store: path) need the old data where it was. Bring it back"
            memory = base.memory(step, base.recipe.data.build().train)
        for index in range(len(memory)):
            memory.sample(index)
    except UserError as error:
        raise UserError(f"the memory of {base.path} cannot be used: {error}\n{advice}, {without}") from error
    return memory
