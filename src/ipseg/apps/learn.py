"""One more class: a finished run and a few pictures of something new give a run that knows it too.

The new run is the old one's steps and one more, learned from the new data alone: its recipe names that data, and lists
the classes of every step (`scenario.steps`). What is left of the old data is the memory, which moves in with copies.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ipseg.apps.evaluate import pictures_of
from ipseg.apps.growth import measure_growth
from ipseg.config import Settings, override
from ipseg.data.memory import NoPictures, ReplayMemory
from ipseg.data.registry import data_config
from ipseg.data.source import Source
from ipseg.data.view import StepView
from ipseg.engine.experiment import run as run_recipe
from ipseg.engine.experiment import summarise
from ipseg.engine.folder import RunFolder
from ipseg.engine.recipe import Recipe, make_recipe
from ipseg.errors import UserError, unknown
from ipseg.files import write_json
from ipseg.progress import silence
from ipseg.scenario.split import GROWN, Scenario

VERSION = 1
FREE = ("name", "seed", "device", "deterministic")
SECTIONS = ("data", "method", "memory", "training", "evaluation")
FIXED = ("data.name", "data.path", "method.name", "method.decoupling", "method.image_posterior", "memory.store")
"""What `--set` may change, and what in these sections it may not: the old steps and the memory stand on it."""


@dataclass(frozen=True)
class Plan:
    """What will be learned, from what, on top of what. Everything is checked; nothing is written."""

    base: RunFolder
    steps: int
    """Of the base."""
    recipe: Recipe
    source: Source
    scenario: Scenario


def learn(
    run: Path,
    data: Path,
    classes: Sequence[str],
    out: Path,
    *,
    data_format: str = "folder",
    val: Path | None = None,
    assignments: Sequence[str] = (),
    memory: bool = True,
    resume: bool = False,
    quiet: bool = False,
) -> dict[str, Any]:
    """Learn new classes on top of a finished run, in a run of its own. Returns what learn.json holds."""
    require_apart(out, run)
    with silence(wanted=quiet):
        plan = make_plan(RunFolder.open(run), data, classes, data_format, assignments)
        goes_on = resume and (out / "run.json").is_file()
        folder = RunFolder.check(out, plan.recipe, resume=goes_on)
        measured_on, own = validation(plan, val)
        if not goes_on:
            begin(plan, folder, memory=memory)
        run_recipe(plan.recipe, out, resume=True, source=plan.source, quiet=quiet)
        growth = measure_growth(folder, plan.recipe, plan.scenario, measured_on, own_split=own, quiet=quiet)
    report = {
        "version": VERSION,
        "from": str(run),
        "new": list(plan.scenario.steps[-1].new),
        "old": list(plan.scenario.steps[-1].old),
        "pictures": len(StepView(plan.source.train, plan.scenario, plan.scenario.steps[-1])),
        **growth,
    }
    write_json(out / "learn.json", report)
    return report


def require_apart(out: Path, run: Path) -> None:
    """Raise if writing `out` would touch the run."""
    ours, theirs = out.resolve(), run.resolve()
    if ours == theirs or theirs in ours.parents or ours in theirs.parents:
        raise UserError(
            f"--out {out} and the run {run} lie in each other; the run stays as it is. Choose another --out."
        )


# ---- what is asked for ------------------------------------------------------------------------------------------


def make_plan(
    base: RunFolder, data: Path, classes: Sequence[str], data_format: str, assignments: Sequence[str]
) -> Plan:
    """Check everything that could be wrong before a run is begun."""
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
    values = _grown(base.settings(), learned, classes, data, data_format, assignments)
    source = data_config(values["data"]).build()
    require_new(classes, learned.order, source.classes, base.path, data)
    recipe = make_recipe(values)
    source = recipe.source()  # without what is held out
    scenario = recipe.scenario.build(source.name, source.classes)
    StepView(source.train, scenario, scenario.steps[-1])  # raises where no picture holds a new class
    return Plan(base, len(learned.steps), recipe, source, scenario)


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


def _grown(
    values: Settings,
    learned: Scenario,
    classes: Sequence[str],
    data: Path,
    data_format: str,
    assignments: Sequence[str],
) -> Settings:
    """The old recipe with the new data, one more step, and a memory of copies: names would be of several data sets."""
    steps = [list(step.new) for step in learned.steps]
    grown = values | {
        "name": "+".join([str(values.get("name") or values["method"]["name"]), *classes]),
        "data": {"name": data_format, "path": str(data)},
        "scenario": {
            "name": GROWN,
            "setting": learned.setting,
            "unseen": learned.unseen,
            "steps": [*steps, list(classes)],
        },
        "memory": values["memory"] | {"store": "copy"},
        "init": None,
    }
    for assignment in assignments:
        require_free(assignment)
    return override(grown, assignments)


def require_free(assignment: str) -> None:
    """Raise if a change touches what the old steps or the memory stand on."""
    key = assignment.partition("=")[0].strip()
    section = key.partition(".")[0]
    if key not in FREE and ("." not in key or section not in SECTIONS or key in FIXED):
        raise UserError(
            f"--set {assignment}: {key} is fixed by what the run has learned. What may change: {', '.join(FREE)} and "
            f"the settings of {', '.join(SECTIONS)}, but for {', '.join(FIXED)}."
        )


def validation(plan: Plan, path: Path | None) -> tuple[Source, bool]:
    """The pictures to measure on, and whether they are validation pictures of the new data or of the old run."""
    if path is None:
        return plan.source, True
    source, own = pictures_of(path, plan.recipe, make_recipe(plan.base.settings()))
    if not set(plan.scenario.order) & set(source.classes):
        raise UserError(
            f"--val {path} has none of the classes {', '.join(plan.scenario.order)}. "
            f"It has {', '.join(source.classes)}."
        )
    return source, own


# ---- the new run ------------------------------------------------------------------------------------------------


def begin(plan: Plan, folder: RunFolder, *, memory: bool) -> None:
    """Lay the new run's folder out with the old steps in it: all of it, or nothing."""
    last = plan.steps - 1
    remembered = (
        inherited(plan.base, last) if memory else ReplayMemory([], NoPictures(), plan.scenario.steps[last].seen)
    )
    folder.path.parent.mkdir(parents=True, exist_ok=True)
    partial = RunFolder(folder.path.parent / f".{folder.path.name}.partial")
    shutil.rmtree(partial.path, ignore_errors=True)
    try:
        partial.create(plan.recipe, plan.scenario)
        partial.take_from(plan.base, plan.steps, memory=False)
        remembered.move(partial.step(last) / "memory", [*plan.source.train.names, *plan.source.val.names])
        summarise(plan.recipe, partial, plan.scenario).write(partial.path / "results.json")
        if folder.path.is_dir():
            folder.path.rmdir()  # it is empty: that was checked
        partial.path.rename(folder.path)
    finally:
        shutil.rmtree(partial.path, ignore_errors=True)


def inherited(base: RunFolder, step: int) -> ReplayMemory:
    """What the run remembers, with its pictures: copies, or those of its data set if that is still there."""
    place = base.step(step) / "memory"
    without = "or learn without the memory: --no-memory. The old classes suffer then."
    if not place.is_dir():
        raise UserError(
            f"{base.path} has no memory after step {step}: {place} is not there. It was deleted, or left out of a pack."
            f"\nPut it back if you have it elsewhere, {without}"
        )
    advice = "Put a whole copy of it in its place"
    try:
        memory = ReplayMemory.load(place, NoPictures())
        if not memory.without_copy():
            return memory
        advice = "What has no copy in it (memory.store: path has none) needs the old data where it was. Bring it back"
        memory = ReplayMemory.load(place, make_recipe(base.settings()).data.build().train)
        for index in range(len(memory)):
            memory.picture(index)
    except UserError as error:
        raise UserError(f"the memory of {base.path} cannot be used: {error}\n{advice}, {without}") from error
    return memory
