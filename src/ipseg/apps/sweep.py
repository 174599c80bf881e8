"""`ipseg sweep`: the runs of a grid, trained and compared in one folder.

OUT/
  sweep.json          the plan: every run, its folder, its base step
  recipes/NAME.yaml   the recipe that each run was started with
  logs/NAME.log       its output
  runs/NAME/          its folder
  slurm/              with SLURM: scripts of jobs, their numbers and exit codes
  comparison.md, comparison.json   the table
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from ipseg.apps.compare import compare
from ipseg.config import to_yaml
from ipseg.errors import UserError
from ipseg.files import read_plain, require_no_link, write_json, write_text
from ipseg.parsing import MAX_JSON_BYTES, parse_json
from ipseg.report.compare import ResultTable
from ipseg.report.formats import as_json, markdown
from ipseg.sweep.grid import Grid
from ipseg.sweep.launchers import Launcher, LocalPool, log_file, make_slots, visible_gpus
from ipseg.sweep.plan import make_plan, select
from ipseg.sweep.progress import progress_view
from ipseg.sweep.schedule import Job, Scheduler
from ipseg.sweep.slurm import SlurmLauncher

VERSION = 1


class Sweep:
    """A grid in a folder."""

    def __init__(
        self, file: Path, out: Path | None = None, assignments: Sequence[str] = (), only: Sequence[str] = ()
    ) -> None:
        self.grid = Grid.read(file)
        self.out = out or Path("runs") / file.stem
        if self.out.exists() and not self.out.is_dir():
            raise UserError(f"--out {self.out} is a file; a sweep needs a folder.")
        for place in ("logs", "recipes", "runs", "slurm"):
            require_no_link(self.out / place)
        earlier = self._read_earlier()
        self.plan = make_plan(self.grid, self.out, assignments)
        self._require_same_grid(earlier)
        self.selected = select(self.plan, only)

    def _read_earlier(self) -> dict[str, Any]:
        """The sweep.json of an earlier call. Raise if the folder holds anything else."""
        if not self.out.is_dir() or not any(self.out.iterdir()):
            return {}
        try:
            found = parse_json(read_plain(self.out / "sweep.json", MAX_JSON_BYTES))
        except (OSError, ValueError):
            found = None
        if not isinstance(found, dict) or not {"version", "runs"} <= found.keys():
            raise UserError(f"--out {self.out} holds other files and no sweep. Choose another folder.")
        return found

    def _require_same_grid(self, earlier: Mapping[str, Any]) -> None:
        """Raise if the folder belongs to another grid, whose runs would be missing from the table."""
        file = Path(earlier.get("grid", self.grid.file))
        lost = {str(run.get("name")) for run in earlier.get("runs", ())} - {run.name for run in self.plan}
        if lost and file.resolve() != self.grid.file.resolve():
            raise UserError(
                f"--out {self.out} is the sweep of another grid, {file}, with runs that {self.grid.file} does not "
                f"have ({sorted(lost)[0]}, for example). Choose another folder with --out."
            )

    def local_pool(self, console: Console, *, jobs: int | None, jobs_per_gpu: int, processes: int) -> LocalPool:
        """Processes of this machine. jobs: by default one on a CPU, or as many as the GPUs take."""
        gpus = [] if all(run.recipe.device == "cpu" for run in self.plan) else visible_gpus()
        slots = make_slots(gpus, jobs, jobs_per_gpu, processes)
        if jobs and len(slots) < jobs:
            console.print(
                f"{len(slots)} at the same time, not {jobs}; --jobs-per-gpu lets runs share GPUs.", style="dim"
            )
        if jobs_per_gpu > 1 and not gpus:
            console.print("--jobs-per-gpu does nothing where runs use no GPU; --jobs does.", style="dim")
        return LocalPool(self.out, slots, self._train_command, processes=processes)

    def slurm_launcher(self, options: Mapping[str, Any], *, jobs: int | None) -> SlurmLauncher:
        """Jobs of SLURM, with these options over the grid's."""
        return SlurmLauncher(self.out, self.grid.slurm | dict(options), self._train_command, jobs=jobs)

    def run(self, launcher: Launcher, console: Console, *, detach: bool = False, quiet: bool = False) -> list[Job]:
        """Train until every run has ended or the user stops them. detach: start all and return."""
        self.out.mkdir(parents=True, exist_ok=True)
        entries = [
            {
                "name": planned.name,
                "run": planned.run.entry,
                "scenario": planned.run.scenario,
                "seed": planned.run.seed,
                "varied": dict(planned.run.varied),
                "steps": planned.steps,
                "base_step": planned.base,
                "also_called": planned.duplicates,
            }
            for planned in self.plan
        ]
        write_json(self.out / "sweep.json", {"version": VERSION, "grid": str(self.grid.file), "runs": entries})
        # Finished runs, too: others may take their base steps.
        planned = [run for run in self.plan if run in self.selected or run.state == "finished"]
        jobs = [Job(run.name, run.base, run.steps, run.folder.path, log_file(self.out, run.name)) for run in planned]
        scheduler = Scheduler(jobs, launcher)
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # a terminated sweep stops its runs, too
        try:
            with progress_view(console, quiet=quiet) as update:
                if detach:
                    scheduler.turn()
                    update(jobs)
                else:
                    scheduler.run(update)
        finally:
            signal.signal(signal.SIGTERM, before)
        return jobs

    def table(self) -> list[ResultTable]:
        """Compare the runs that have results, and write the table as Markdown and JSON."""
        done = [run.folder.path for run in self.plan if (run.folder.path / "results.json").is_file()]
        if not done:
            return []
        tables = compare(done)
        write_text(self.out / "comparison.md", markdown(tables))
        write_json(self.out / "comparison.json", {"version": VERSION, "rows": as_json(tables)})
        return tables

    def _train_command(self, name: str, source: str | None) -> list[str]:
        """Write a run's recipe, with the base step of another run if there is one; python's arguments to train it."""
        runs = {run.name: run for run in self.plan}
        path, recipe = self.out / "recipes" / f"{name}.yaml", runs[name].recipe
        if source is not None:
            recipe = replace(recipe, init=f"{runs[source].folder.path}@0")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, to_yaml(recipe))
        return ["-m", "ipseg", "train", str(path), "--out", str(runs[name].folder.path), "--resume"]
