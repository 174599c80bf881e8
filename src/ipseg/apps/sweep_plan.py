"""What a grid comes to: every run with its recipe, what is done already, and which of them begin alike."""

from __future__ import annotations

import fnmatch
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from ipseg.apps.sweep_grid import Cell, Grid
from ipseg.apps.sweep_read import say
from ipseg.config import Settings, flat, to_dict
from ipseg.data.source import Source
from ipseg.engine.base_step import base_step
from ipseg.engine.folder import FREE, RunFolder
from ipseg.engine.recipe import Recipe, make_recipe
from ipseg.engine.recipe_files import with_changes
from ipseg.errors import UserError, unknown
from ipseg.files import require_no_link

STATES = {"finished": "green", "running": "cyan", "begun": "yellow", "waiting": "dim", "failed": "red"}


@dataclass
class Planned:
    """One run of a sweep."""

    cell: Cell
    recipe: Recipe
    folder: RunFolder
    steps: int
    base: str
    """Runs of the same learn the same base step."""
    twins: list[str] = field(default_factory=list)
    """Other names in the grid for the very same settings."""

    @property
    def name(self) -> str:
        """Of its folder."""
        return self.cell.name

    @property
    def state(self) -> str:
        """As its folder tells."""
        if self.folder.finished() >= self.steps:
            return "finished"
        return "begun" if (self.folder.path / "run.json").is_file() else "waiting"


def make_plan(grid: Grid, out: Path, assignments: Sequence[str] = ()) -> list[Planned]:
    """Every different run of the grid, checked; settings that two cells share are run once."""
    plan: dict[str, Planned] = {}
    sources: dict[str, Source] = {}
    for cell in grid.cells():
        try:
            recipe = make_recipe(_assigned(cell, assignments))
            data = say(to_dict(recipe.data))
            source = sources[data] = sources.get(data) or recipe.data.build()
            scenario = recipe.scenario.build(source.name, source.classes)
            require_no_link(out / "runs" / cell.name)
            folder = RunFolder.check(out / "runs" / cell.name, recipe, resume=True)
        except UserError as error:
            raise UserError(f"the grid's run {cell.name}: {error}") from error
        key = _fingerprint({key: value for key, value in flat(to_dict(recipe)).items() if key not in FREE})
        if key in plan:
            plan[key].twins.append(cell.name)
        else:
            base = _fingerprint(base_step(recipe, scenario))
            plan[key] = Planned(cell, recipe, folder, len(scenario.steps), base)
    return list(plan.values())


def _assigned(cell: Cell, assignments: Sequence[str]) -> Settings:
    """The cell's settings with those of `--set`, which leave what the grid decides: its names tell what was run."""
    settings = with_changes(cell.settings, assignments)
    before, after = flat(cell.settings), flat(settings)
    for key, where in cell.decided.items():
        if before.get(key) != after.get(key):
            new = f"make {key} {say(after[key])}" if key in after else f"remove {key}"
            raise UserError(
                f"--set would {new}, but the grid sets it itself, in {where}, and names its runs accordingly. "
                "Change it in the grid; --set is for what neither a run, a scenario, `vary` nor a seed sets."
            )
    return settings


def choose(plan: Sequence[Planned], only: Sequence[str]) -> list[Planned]:
    """The runs whose folder, or a twin's, one of these shell patterns names; without a pattern all of them."""
    if not only:
        return list(plan)
    names = {name: run.name for run in plan for name in (run.name, *run.twins)}
    found: set[str] = set()
    for pattern in only:
        fitting = fnmatch.filter(names, pattern)
        if not fitting:
            raise unknown("run of the grid for --only", pattern, names)
        found |= {names[name] for name in fitting}
    return [run for run in plan if run.name in found]


def _fingerprint(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


def plan_table(plan: Sequence[Planned]) -> Table:
    """For `--dry-run`: what would run, what each changes, what is done, and who learns whose base step."""
    table = Table(box=box.SIMPLE_HEAD, caption_justify="left")
    for title in ("run", "changes", "state", "base step"):
        table.add_column(title, overflow="fold")
    learners: dict[str, str] = {}
    shared = Counter(run.base for run in plan)
    for run in sorted(plan, key=lambda run: run.folder.finished() == 0):  # who has learned it gives it
        learners.setdefault(run.base, run.name)
    for run in plan:
        changes = " ".join(f"{key}={say(value)}" for key, value in run.cell.changes.items())
        own = "learned here" if shared[run.base] == 1 else f"learned here, shared by {shared[run.base]}"
        base = own if learners[run.base] == run.name else f"of {learners[run.base]}"
        table.add_row(Text(run.name), Text(changes, style="dim"), _state(run), Text(base, style="dim"))
    table.caption = Text(summary(plan), style="dim")
    return table


def _state(run: Planned) -> Text:
    said = f"{run.folder.finished()} of {run.steps} steps" if run.state == "begun" else run.state
    return Text(said, style=STATES[run.state])


def summary(plan: Sequence[Planned]) -> str:
    """How much there is, and how much of it is left."""
    finished = sum(run.state == "finished" for run in plan)
    bases = len({run.base for run in plan})
    twins = [f"{name} is {run.name}" for run in plan for name in run.twins]
    steps = sum(run.steps for run in plan)
    alike = f" instead of {steps}: equal base steps are learned once" if bases < len(plan) else ""
    runs = "1 run" if len(plan) == 1 else f"{len(plan)} runs"
    said = f"{runs}, {finished} finished; {steps - len(plan) + bases} steps in all{alike}."
    return "\n".join([said, *([f"The same settings, run once: {', '.join(twins)}."] if twins else [])])
