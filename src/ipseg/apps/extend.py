"""One more class: a finished run and a few pictures of something new give a run that knows it too.

The new run is the old one's steps and one more, learned from the new data alone: its recipe names that data, and lists
the classes of every step (`scenario.steps`). What is left of the old data is the memory, which moves in with copies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ipseg.apps.extend_plan import Plan, make_plan, require_free, require_learnable, require_own_data, validation
from ipseg.apps.extend_report import measure_extension
from ipseg.data.dataset import EmptyDataset
from ipseg.data.memory import ReplayMemory, load_memory, move_memory
from ipseg.data.step_dataset import StepDataset
from ipseg.errors import UserError
from ipseg.files import whole_or_nothing, write_json
from ipseg.progress import silence
from ipseg.training.experiment import run as run_recipe
from ipseg.training.experiment import summarize
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import make_recipe
from ipseg.training.setup import data_facts

VERSION = 1


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
    """Learn new classes on top of a finished run, in a run of its own. Returns what extend.json holds.

    classes: a list of names, or a text with commas between them. warn: gets what a person should know beforehand.
    """
    require_apart(out, run)
    for assignment in assignments:
        require_free(assignment)
    with silence(wanted=quiet):
        goes_on = resume and (out / "run.json").is_file()
        begun = RunFolder.open(out) if goes_on else None
        plan = make_plan(RunFolder.open(run), data, classes, data_format, assignments, begun)
        if plan.note:
            warn(plan.note)
        folder = RunFolder.check(out, plan.recipe, resume=goes_on)
        measured_on, own = validation(plan, val)
        if goes_on:
            require_own_data(plan, folder)
        else:
            require_learnable(plan)
            begin(plan, out, memory=memory)
        run_recipe(plan.recipe, out, resume=True, splits=plan.splits, quiet=quiet)
        extension = measure_extension(folder, plan.recipe, plan.scenario, measured_on, own_split=own, quiet=quiet)
    report = {
        "version": VERSION,
        "from": str(run),
        "new": list(plan.scenario.steps[-1].new),
        "old": list(plan.scenario.steps[-1].old),
        "pictures": len(StepDataset(plan.splits.train, plan.scenario, plan.scenario.steps[-1])),
        **extension,
    }
    write_json(out / "extend.json", report)
    return report


def require_apart(out: Path, run: Path) -> None:
    """Raise if writing `out` would touch the run."""
    ours, theirs = out.resolve(), run.resolve()
    if ours == theirs or theirs in ours.parents or ours in theirs.parents:
        raise UserError(
            f"--out {out} and the run {run} lie in each other; the run stays as it is. Choose another --out."
        )


# ---- the new run ------------------------------------------------------------------------------------------------


def begin(plan: Plan, out: Path, *, memory: bool) -> None:
    """Lay the new run's folder out with the old steps in it: all of it, or nothing."""
    last = plan.steps - 1
    wanted = memory and plan.recipe.method.replays  # what no method reads is left where it is
    remembered = (
        inherited(plan.base, last) if wanted else ReplayMemory([], EmptyDataset(), plan.scenario.steps[last].seen)
    )
    with whole_or_nothing(out) as partial:
        folder = RunFolder(partial)
        folder.check_data(data_facts(plan.splits.train))
        folder.create(plan.recipe, plan.scenario)
        folder.copy_steps(plan.base, plan.steps, memory=False)
        move_memory(remembered, folder.step(last) / "memory", [plan.splits.train, plan.splits.val])
        folder.write_results(summarize(plan.recipe, folder, plan.scenario))


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
        memory = load_memory(place, EmptyDataset())
        if memory.without_copy():
            advice = (
                "What has no copy in it (memory.store: path has none) needs the old data where it was. Bring it back"
            )
            memory = load_memory(place, make_recipe(base.settings()).data.build().train)
        for index in range(len(memory)):
            memory.sample(index)
    except UserError as error:
        raise UserError(f"the memory of {base.path} cannot be used: {error}\n{advice}, {without}") from error
    return memory
