"""`ipseg sweep`, `compare`, `report`: many runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ipseg.cli import common as cli
from ipseg.errors import STOPPED, UserError, require_at_least

if TYPE_CHECKING:
    from ipseg.sweep.schedule import Job

app = typer.Typer()
Runs = Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders, results.json files, sweep folders.")]


@app.command(
    epilog=cli.example(
        "ipseg sweep grid.yaml --dry-run",
        "ipseg sweep grid.yaml --jobs-per-gpu 4 --out runs/grid",
        "ipseg sweep grid.yaml --only ipseg_3-1_s0",
        "ipseg sweep grid.yaml --processes-per-run 4",
        "ipseg sweep grid.yaml --engine slurm --slurm partition=gpu --slurm timeout_min=240",
    )
)
def sweep(
    grid: Annotated[Path, typer.Argument(metavar="GRID", help="A YAML file of runs; docs/sweep.md shows how.")],
    *,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The sweep's folder; by default runs/GRID.")
    ] = None,
    changes: cli.Changes = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="RUN", help="Only these runs, by folder, as in 'ipseg_*_s0'; repeatable."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the runs; write nothing.")] = False,
    table: Annotated[bool, typer.Option("--table", help="Train nothing; compare finished runs.")] = False,
    jobs: Annotated[int | None, typer.Option("--jobs", help="Concurrent runs; by default 1 on a CPU.")] = None,
    jobs_per_gpu: Annotated[int, typer.Option("--jobs-per-gpu", help="Concurrent runs on each GPU.")] = 1,
    processes_per_run: Annotated[
        int, typer.Option("--processes-per-run", help="Processes of each run, each on a GPU (torchrun).")
    ] = 1,
    engine: Annotated[
        Literal["local", "slurm"], typer.Option("--engine", help="Processes of this machine, or jobs of SLURM.")
    ] = "local",
    slurm: Annotated[
        list[str] | None, typer.Option("--slurm", metavar="KEY=VALUE", help="An option of SLURM; repeatable.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Submit all SLURM jobs and return.")] = False,
    quiet: cli.Quiet = False,
    _allow_code: cli.AllowCode = False,
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
        cli.render(plan_table(planned.selected))
        cli.echo(f"The runs would go to {planned.out / 'runs'}.")
        return
    ended: list[Job] = []
    if not table:
        launcher = (
            planned.slurm_launcher(options, jobs=jobs)
            if engine == "slurm"
            else planned.local_pool(console, jobs=jobs, jobs_per_gpu=jobs_per_gpu, processes=processes_per_run)
        )
        ended = planned.run(launcher, console, detach=detach, quiet=quiet)
        if detach:
            submitted = sum(job.state == "running" for job in ended)
            cli.echo(f"{submitted} runs are jobs of SLURM now. The same command without --detach waits for them.")
            return
    if tables := planned.table():
        cli.render(rich_tables(tables))
        cli.echo(f"compared: {planned.out / 'comparison.md'}, {planned.out / 'comparison.json'}")
    elif table:
        cli.warn(f"no run of the grid has finished a step in {planned.out}; there is nothing to compare yet.")
    _exit_unfinished(ended)


def _exit_unfinished(jobs: list[Job]) -> None:
    """Name the failed and the stopped runs, and exit accordingly."""
    from ipseg.sweep.progress import log_tail

    failed = [job for job in jobs if job.state == "failed"]
    left = [job for job in jobs if job.state in ("waiting", "stopped")]
    for job in failed:
        cli.warn("\n  ".join([f"{job.name} failed ({job.reason}); its log is {job.log}", *log_tail(job.log)]))
    if left:
        cli.warn(f"stopped: {len(left)} of {len(jobs)} runs are not finished. The same command resumes them.")
        raise typer.Exit(STOPPED)
    if failed:
        cli.warn(f"{len(failed)} of {len(jobs)} runs failed. The same command tries them again.")
        raise typer.Exit(cli.FAILED)


@app.command(
    epilog=cli.example("ipseg compare runs/one runs/two", "ipseg compare runs/grid --format latex > table.tex")
)
def compare(
    runs: Runs,
    *,
    style: Annotated[
        Literal["table", "markdown", "latex", "csv"], typer.Option("--format", help="Format of the output.")
    ] = "table",
) -> None:
    """Compare runs in a table. Mean and spread over seeds, the best in bold, the paper's number where it has one."""
    from ipseg.apps.compare import compare as load_tables
    from ipseg.report import formats

    tables = load_tables(runs)
    if style == "table":
        cli.render(formats.rich_tables(tables))
    else:
        text = {"markdown": formats.markdown, "latex": formats.latex, "csv": formats.to_csv}[style]
        cli.echo(text(tables), end="")


@app.command(epilog=cli.example("ipseg report runs/grid --out grid.html", "ipseg report runs/one runs/two --gallery 8"))
def report(
    runs: Runs,
    *,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page.")] = Path("report.html"),
    title: Annotated[str, typer.Option("--title", help="Its title.")] = "ipseg report",
    gallery: Annotated[
        int, typer.Option("--gallery", metavar="N", min=0, help="Validation images with predictions; 0: none.")
    ] = 4,
    device: cli.Device = "auto",
    _allow_code: cli.AllowCode = False,
) -> None:
    """Write one HTML page about runs. Results first, then predictions, settings last. Works offline."""
    from ipseg.apps.report import report as write_report

    write_report(
        runs, out, title=title, images=gallery, device=device or "auto", log=lambda text: cli.echo(text, err=True)
    )
    cli.echo(f"written: {out}")
