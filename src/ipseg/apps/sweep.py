"""`ipseg sweep`: the runs of a grid, started, watched, gone on with, and put side by side at the end.

OUT/
  sweep.json          what the grid came to: every run, its folder, its base step
  recipes/NAME.yaml   what each run was started with
  logs/NAME.log       what it said
  runs/NAME/          its folder
  comparison.md, comparison.json   the table
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from ipseg.apps.compare import compare
from ipseg.apps.sweep_grid import Grid
from ipseg.apps.sweep_local import LocalLauncher, command_for, fewer_than_asked, make_slots, visible_gpus
from ipseg.apps.sweep_plan import Planned, choose, make_plan
from ipseg.apps.sweep_progress import View, look
from ipseg.apps.sweep_schedule import Job, Launcher, Schedule
from ipseg.apps.sweep_slurm import SlurmLauncher
from ipseg.config import assigned, to_yaml
from ipseg.errors import UserError, require_at_least
from ipseg.files import read_plain, require_no_link, write_json, write_text
from ipseg.parsing import MOST_JSON, parse_json
from ipseg.report.compare import ResultTable
from ipseg.report.formats import as_json, markdown

VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Engine:
    """What runs are started on."""

    kind: Literal["local", "slurm"] = "local"
    jobs: int | None = None
    """Runs at the same time; none: one, or what the GPUs hold, or what SLURM lets."""
    jobs_per_gpu: int = 1
    slurm: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_at_least("--jobs", 1 if self.jobs is None else self.jobs, 1)
        require_at_least("--jobs-per-gpu", self.jobs_per_gpu, 1)


class Sweep:
    """A grid in a folder."""

    def __init__(
        self, file: Path, out: Path | None = None, assignments: Sequence[str] = (), only: Sequence[str] = ()
    ) -> None:
        self.grid = Grid.read(file)
        self.out = out or Path("runs") / file.stem
        if self.out.exists() and not self.out.is_dir():
            raise UserError(f"--out {self.out} is a file; a sweep needs a folder.")
        earlier = _read(self.out / "sweep.json")
        if self.out.is_dir() and any(self.out.iterdir()) and earlier is None:
            raise UserError(f"--out {self.out} holds other files and no sweep. Choose another folder.")
        for place in ("logs", "recipes", "runs", "slurm"):
            require_no_link(self.out / place)
        self.plan = make_plan(self.grid, self.out, assignments)
        self._require_own(earlier or {})
        self.chosen = choose(self.plan, only)
        self._runs = {run.name: run for run in self.plan}

    def run(self, engine: Engine, console: Console, *, quiet: bool = False) -> list[Job]:
        """Start what is not finished, until all have ended or somebody stops them."""
        launcher = self._launcher(engine, console)
        self.out.mkdir(parents=True, exist_ok=True)
        write_json(self.out / "sweep.json", {"version": VERSION, "grid": str(self.grid.file), "runs": self._told()})
        jobs = [Job(run.name, run.base, run.steps, self.log(run.name)) for run in self._asked()]
        schedule = Schedule(jobs, launcher, lambda job: look(self._runs[job.name].folder.path))
        with _sigterm_as_ctrl_c(), View(console, quiet=quiet) as view:
            schedule.run(view.tell)
        return jobs

    def table(self) -> list[ResultTable]:
        """Put what is there side by side, and write it as Markdown and JSON."""
        done = [run.folder.path for run in self.plan if (run.folder.path / "results.json").is_file()]
        if not done:
            return []
        sections = compare(done)
        write_text(self.out / "comparison.md", markdown(sections))
        write_json(self.out / "comparison.json", {"version": VERSION, "rows": as_json(sections)})
        return sections

    def log(self, name: str) -> Path:
        """What a run said."""
        return self.out / "logs" / f"{name}.log"

    def _require_own(self, earlier: Mapping[str, Any]) -> None:
        """Raise if the folder is that of another grid, whose runs would be in no table any more."""
        theirs = Path(earlier.get("grid", self.grid.file))
        lost = {str(run.get("name")) for run in earlier.get("runs", ())} - {run.name for run in self.plan}
        if lost and theirs.resolve() != self.grid.file.resolve():
            raise UserError(
                f"--out {self.out} is the sweep of another grid, {theirs}, with runs that {self.grid.file} does not "
                f"have ({sorted(lost)[0]}, for example). Choose another folder with --out."
            )

    def _asked(self) -> list[Planned]:
        """What was chosen, and what is finished already: it may give its base step."""
        return [run for run in self.plan if run in self.chosen or run.state == "finished"]

    def _launcher(self, engine: Engine, console: Console) -> Launcher:
        if engine.kind == "slurm":
            options = self.grid.slurm | dict(engine.slurm)
            return SlurmLauncher(self.out / "slurm", options, self._command, self.log, jobs=engine.jobs)
        gpus = [] if all(run.recipe.device == "cpu" for run in self.plan) else visible_gpus()
        slots = make_slots(gpus, engine.jobs, engine.jobs_per_gpu)
        if note := fewer_than_asked(gpus, engine.jobs, engine.jobs_per_gpu):
            console.print(note, style="dim")
        return LocalLauncher(slots, self._command, self.log)

    def _command(self, name: str, init: str | None) -> list[str]:
        """Write the recipe that a run is started with; it begins with another's base step where there is one."""
        run, path = self._runs[name], self.out / "recipes" / f"{name}.yaml"
        recipe = run.recipe if init is None else replace(run.recipe, init=f"{self._runs[init].folder.path}@0")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, to_yaml(recipe))
        return command_for(path, run.folder.path)

    def _told(self) -> list[dict[str, Any]]:
        return [_told(run) for run in self.plan]


def _told(run: Planned) -> dict[str, Any]:
    cell = run.cell
    return {
        "name": run.name,
        "run": cell.run,
        "scenario": cell.scenario,
        "seed": cell.seed,
        "varied": dict(cell.varied),
        "steps": run.steps,
        "base_step": run.base,
        "also_called": run.twins,
    }


def slurm_options(assignments: Sequence[str]) -> dict[str, Any]:
    """`--slurm KEY=VALUE`, values as YAML."""
    return dict(assigned(assignment, "--slurm", "partition=gpu") for assignment in assignments)


def _read(file: Path) -> dict[str, Any] | None:
    """What a sweep wrote there; none where it was not one: somebody may have a file of that name."""
    try:
        told = parse_json(read_plain(file, MOST_JSON))
    except (OSError, ValueError):
        return None
    return told if isinstance(told, dict) and {"version", "runs"} <= told.keys() else None


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """Who ends the sweep politely does not leave its runs behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: Callable[..., Any] | int | None = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
