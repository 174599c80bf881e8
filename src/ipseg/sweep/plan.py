"""The runs of a grid: recipes, progress, duplicates, and shared base steps."""

from __future__ import annotations

import fnmatch
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from ipseg.config import flat, to_dict
from ipseg.data.dataset import DatasetSplits
from ipseg.errors import UserError, unknown
from ipseg.files import require_no_link
from ipseg.report.formats import plain_table
from ipseg.sweep.grid import Grid, GridRun, format_value
from ipseg.training.base_step import base_step
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import RUNTIME, Recipe, make_recipe

STATE_STYLES = {"finished": "green", "begun": "yellow", "waiting": "dim"}


@dataclass
class PlannedRun:
    run: GridRun
    recipe: Recipe
    folder: RunFolder
    steps: int
    base: str
    """Fingerprint of its base step: runs of equal fingerprints share it."""
    duplicates: list[str] = field(default_factory=list)
    """Other names in the grid for the same settings."""

    @property
    def name(self) -> str:
        return self.run.name

    @property
    def state(self) -> str:
        if self.folder.finished() >= self.steps:
            return "finished"
        return "begun" if self.folder.begun else "waiting"


def make_plan(grid: Grid, out: Path, assignments: Sequence[str] = ()) -> list[PlannedRun]:
    """Every distinct run of the grid, validated."""
    plan: dict[str, PlannedRun] = {}
    opened: dict[str, DatasetSplits] = {}
    for run in grid.runs(assignments):
        try:
            recipe = make_recipe(run.settings)
            data = format_value(to_dict(recipe.data))
            splits = opened[data] = opened.get(data) or recipe.data.build()
            scenario = recipe.scenario.build(splits.name, splits.classes)
            require_no_link(out / "runs" / run.name)
            folder = RunFolder.check(out / "runs" / run.name, recipe, resume=True)
        except UserError as error:
            raise UserError(f"the grid's run {run.name}: {error}") from error
        key = _fingerprint({key: value for key, value in flat(to_dict(recipe)).items() if key not in RUNTIME})
        if key in plan:
            plan[key].duplicates.append(run.name)
        else:
            base = _fingerprint(base_step(recipe, scenario))
            plan[key] = PlannedRun(run, recipe, folder, len(scenario.steps), base)
    return list(plan.values())


def select(plan: Sequence[PlannedRun], patterns: Sequence[str]) -> list[PlannedRun]:
    """The runs whose folder, or a duplicate's, matches one of these shell patterns; without patterns all of them."""
    if not patterns:
        return list(plan)
    names = {name: run.name for run in plan for name in (run.name, *run.duplicates)}
    found: set[str] = set()
    for pattern in patterns:
        matching = fnmatch.filter(names, pattern)
        if not matching:
            raise unknown("run of the grid for --only", pattern, names)
        found |= {names[name] for name in matching}
    return [run for run in plan if run.name in found]


def _fingerprint(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


def plan_table(plan: Sequence[PlannedRun]) -> Table:
    """For `--dry-run`: every run, its changes, its state, and which run trains its base step."""
    table = plain_table("", ["run", "changes", "state", "base step"])
    producers: dict[str, str] = {}
    shared = Counter(run.base for run in plan)
    for run in sorted(plan, key=lambda run: run.folder.finished() == 0):  # one that has trained it comes first
        producers.setdefault(run.base, run.name)
    for run in plan:
        changes = " ".join(f"{key}={format_value(value)}" for key, value in run.run.changes.items())
        state = f"{run.folder.finished()} of {run.steps} steps" if run.state == "begun" else run.state
        base = f"of {producers[run.base]}"
        if producers[run.base] == run.name:
            base = "learned here" if shared[run.base] == 1 else f"learned here, shared by {shared[run.base]}"
        table.add_row(run.name, Text(changes, style="dim"), Text(state, STATE_STYLES[run.state]), Text(base, "dim"))
    table.caption = Text(summary(plan), style="dim")
    return table


def summary(plan: Sequence[PlannedRun]) -> str:
    """How many runs and steps there are, how many are finished, and which names are duplicates."""
    finished = sum(run.state == "finished" for run in plan)
    bases, steps = len({run.base for run in plan}), sum(run.steps for run in plan)
    saved = f" instead of {steps}: equal base steps are learned once" if bases < len(plan) else ""
    runs = "1 run" if len(plan) == 1 else f"{len(plan)} runs"
    lines = [f"{runs}, {finished} finished; {steps - len(plan) + bases} steps in all{saved}."]
    if duplicates := [f"{name} is {run.name}" for run in plan for name in run.duplicates]:
        lines.append(f"The same settings, run once: {', '.join(duplicates)}.")
    return "\n".join(lines)
