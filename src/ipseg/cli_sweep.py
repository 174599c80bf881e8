"""`ipseg sweep`: train a grid of runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ipseg._command import AllowCode, Quiet, complain, example, say, show
from ipseg.errors import STOPPED, UserError, require_at_least

if TYPE_CHECKING:
    from ipseg.sweep.launchers import Launcher
    from ipseg.sweep.schedule import Job

FAILED = 1


def mount(app: typer.Typer) -> None:
    """Make these commands commands of `ipseg`."""
    app.command(
        epilog=example(
            "ipseg sweep grid.yaml --dry-run",
            "ipseg sweep grid.yaml --jobs-per-gpu 4 --out runs/grid",
            "ipseg sweep grid.yaml --only ipseg_3-1_s0",
            "ipseg sweep grid.yaml --processes-per-run 4",
            "ipseg sweep grid.yaml --engine slurm --slurm partition=gpu --slurm timeout_min=240",
        )
    )(sweep)


def sweep(
    grid: Annotated[Path, typer.Argument(metavar="GRID", help="A YAML file of runs; docs/sweep.md shows how.")],
    *,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The sweep's folder; by default runs/GRID.")
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of every run; repeatable.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="RUN", help="These runs alone, by folder, as in 'ipseg_*_s0'; repeatable."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would run; write nothing.")] = False,
    table: Annotated[bool, typer.Option("--table", help="Train nothing; compare what is there.")] = False,
    jobs: Annotated[int | None, typer.Option("--jobs", help="Concurrent runs; by default 1 on a CPU.")] = None,
    jobs_per_gpu: Annotated[int, typer.Option("--jobs-per-gpu", help="Concurrent runs on each GPU.")] = 1,
    processes_per_run: Annotated[
        int,
        typer.Option("--processes-per-run", help="Processes that train a run together, each on a GPU (torchrun)."),
    ] = 1,
    engine: Annotated[
        Literal["local", "slurm"], typer.Option("--engine", help="Processes of this machine, or jobs of SLURM.")
    ] = "local",
    slurm: Annotated[
        list[str] | None, typer.Option("--slurm", metavar="KEY=VALUE", help="An option of SLURM; repeatable.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Submit all SLURM jobs and return.")] = False,
    quiet: Quiet = False,
    _allow_code: AllowCode = False,
) -> None:
    """Run a grid of methods, scenarios, seeds and settings. The same command resumes it."""
    from ipseg.apps.sweep import Sweep
    from ipseg.config import assigned
    from ipseg.progress import Terminal
    from ipseg.report.formats import rich_tables
    from ipseg.sweep.plan import plan_table

    require_at_least("--jobs", 1 if jobs is None else jobs, 1)
    require_at_least("--jobs-per-gpu", jobs_per_gpu, 1)
    require_at_least("--processes-per-run", processes_per_run, 1)
    if jobs_per_gpu > 1 and processes_per_run > 1:
        raise UserError("--jobs-per-gpu and --processes-per-run: several runs share a GPU, or one has several.")
    if engine == "slurm" and processes_per_run > 1:
        raise UserError("--processes-per-run is for this machine; with SLURM use --slurm tasks_per_node=N.")
    if detach and (engine != "slurm" or jobs is not None):
        raise UserError("--detach submits all jobs at once, so it needs --engine slurm and no --jobs.")
    options = dict(assigned(assignment, "--slurm", "partition=gpu") for assignment in slurm or ())
    planned, console = Sweep(grid, out, changes or (), only or ()), Terminal(stderr=True)
    if dry_run:
        show(plan_table(planned.selected))
        say(f"The runs would go to {planned.out / 'runs'}.")
        return
    ended: list[Job] = []
    if not table:
        launcher: Launcher
        if engine == "slurm":
            launcher = planned.slurm_launcher(options, jobs=jobs)
        else:
            launcher = planned.local_pool(console, jobs=jobs, jobs_per_gpu=jobs_per_gpu, processes=processes_per_run)
        ended = planned.run(launcher, console, detach=detach, quiet=quiet)
    if detach and not table:
        submitted = sum(job.state == "running" for job in ended)
        say(f"{submitted} runs are jobs of SLURM now. The same command without --detach waits for them.")
        return
    sections = planned.table()
    if sections:
        show(rich_tables(sections))
        say(f"compared: {planned.out / 'comparison.md'}, {planned.out / 'comparison.json'}")
    elif table:
        complain(f"no run of the grid has finished a step in {planned.out}; there is nothing to compare yet.")
    _exit_unfinished(ended)


def _exit_unfinished(jobs: list[Job]) -> None:
    """Name the failed and the stopped runs, and exit accordingly."""
    from ipseg.sweep.progress import log_tail

    failed = [job for job in jobs if job.state == "failed"]
    left = [job for job in jobs if job.state in ("waiting", "stopped")]
    for job in failed:
        complain("\n  ".join([f"{job.name} failed ({job.reason}); its log is {job.log}", *log_tail(job.log)]))
    if left:
        complain(f"stopped: {len(left)} of {len(jobs)} runs are not finished. The same command goes on with them.")
        raise typer.Exit(STOPPED)
    if failed:
        complain(f"{len(failed)} of {len(jobs)} runs failed. The same command tries them again.")
        raise typer.Exit(FAILED)
