"""`ipseg saliency`, `regions`, `scenarios`, `cost`, `doctor`, `data check`: before a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ipseg.cli import common as cli
from ipseg.errors import WRONG, quoted

if TYPE_CHECKING:
    from ipseg.apps.maps import MapJob, WriteResult

app = typer.Typer()


@app.command(
    epilog=cli.example(
        "ipseg saliency data/mine --model u2netp.onnx",
        "ipseg saliency VOCdevkit/VOC2012 --format voc --model isnet.onnx --preset isnet",
        "ipseg saliency data/mine --fallback --out maps",
    )
)
def saliency(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="The data set's folder.")],
    *,
    model: Annotated[Path | None, typer.Option(metavar="FILE", help="A salient object detector in ONNX form.")] = None,
    fallback: Annotated[bool, typer.Option("--fallback", help="Without a model: rougher, but at once.")] = False,
    kind: Annotated[cli.Format, typer.Option("--format", help="Layout of the data.")] = "folder",
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of the maps; by default in the data.")] = None,
    preset: Annotated[
        str | None, typer.Option(help="The model's input: u2net (also u2netp; the default), isnet.")
    ] = None,
    threshold: Annotated[float | None, typer.Option(help="Saliency threshold (default 0.5).")] = None,
    changes: cli.Changes = None,
    quiet: cli.Quiet = False,
) -> None:
    """Generate saliency maps. Existing maps are kept, so that the same command continues an interrupted one."""
    from ipseg.apps import maps

    detect = maps.detector(model, fallback=fallback, preset=preset, threshold=threshold)
    job = maps.plan_maps(data, kind, out, changes or [])
    _report_maps(job, maps.write_maps(job, detect, quiet=quiet), out)


@app.command(
    epilog=cli.example(
        "ipseg regions data/mine",
        "ipseg regions VOCdevkit/VOC2012 --format voc --out maps",
        "ipseg regions data/mine --by mine:Segmenter",
    )
)
def regions(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="The data set's folder.")],
    *,
    by: Annotated[
        str | None, typer.Option(metavar="MODULE:CLASS", help="Called with an image, returns its map of regions.")
    ] = None,
    kind: Annotated[cli.Format, typer.Option("--format", help="Layout of the data.")] = "folder",
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of the maps; by default in the data.")] = None,
    changes: cli.Changes = None,
    quiet: cli.Quiet = False,
) -> None:
    """Generate maps of regions for MicroSeg, without a model. Existing maps are kept."""
    from ipseg.apps import maps

    job = maps.plan_maps(data, kind, out, changes or [], "regions")
    _report_maps(job, maps.write_maps(job, maps.proposer(by), quiet=quiet), out)


def _report_maps(job: MapJob, result: WriteResult, out: Path | None) -> None:
    for error in result.broken:
        cli.warn(error)
    kept = f", {result.skipped} existed already" if result.skipped else ""
    cli.echo(f"{result.written} maps written{kept}: {', '.join(map(str, job.folders))}")
    if out is not None:
        cli.echo(f"use them: --set {quoted(f'data.{job.what}={out.resolve()}')}")
    if result.broken:
        raise typer.Exit(WRONG)


@app.command(epilog=cli.example("ipseg scenarios", "ipseg scenarios voc/15-1 --setting disjoint --json"))
def scenarios(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One scenario, such as voc/15-1.")] = None,
    setting: cli.Setting = "overlap",
    as_json: cli.Json = False,
) -> None:
    """List the named scenarios, or the steps of one."""
    from ipseg.apps.scenarios import find_scenarios, list_table, steps_table

    found = find_scenarios(name, setting)
    values = [scenario.to_json() for scenario in found]
    if name is None:
        cli.render_or_json(values, list_table(found), as_json=as_json)
    else:
        cli.render_or_json(values[0], steps_table(found[0]), as_json=as_json)


@app.command(epilog=cli.example("ipseg cost voc_15-1_ipseg_swin-b --json"))
def cost(
    recipe: cli.Recipe,
    size: Annotated[int, typer.Option("--size", help="Side of the image that is labeled.")] = 512,
    as_json: cli.Json = False,
    changes: cli.Changes = None,
    device: cli.Device = None,
    _allow_code: cli.AllowCode = False,
) -> None:
    """Report parameters, MACs and throughput of every step. Speed and memory are measured on a GPU only."""
    from ipseg.apps import cost as app
    from ipseg.apps.train import resolve
    from ipseg.training.system import choose_device

    made = resolve(recipe, cli.with_device(changes, device))
    report = app.cost(made, size, choose_device(made.device), Path(recipe))
    cli.render_or_json(report, app.cost_table(report), as_json=as_json)


@app.command(epilog=cli.example("ipseg doctor > report.txt"))
def doctor() -> None:
    """Describe this machine for a bug report. Exits with 1 if a network does not run here."""
    from ipseg.apps.doctor import examine

    description, works = examine()
    cli.echo(description)
    raise typer.Exit(0 if works else cli.FAILED)


# ---- ipseg data -------------------------------------------------------------------------------------------------

_EXAMPLES = (
    "ipseg data check data/mine --format folder",
    "ipseg data check VOCdevkit/VOC2012 --format voc --scenario voc/15-1 --setting disjoint --json",
)
group = typer.Typer(
    help="Inspect a data set. `ipseg data check` reports its contents and problems.",
    epilog=cli.example(*_EXAMPLES),
    no_args_is_help=True,
    rich_markup_mode=None,
)


@group.callback()
def options() -> None:
    """Make it a group, although it has one command yet."""


@group.command(epilog=cli.example(*_EXAMPLES))
def check(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The data set's folder.")],
    *,
    kind: Annotated[cli.Format, typer.Option("--format", help="Layout of the data.")],
    scenario: Annotated[
        str | None, typer.Option("--scenario", metavar="NAME", help="Also count the images of its steps: voc/15-1.")
    ] = None,
    setting: cli.Setting = "overlap",
    changes: cli.Changes = None,
    as_json: cli.Json = False,
) -> None:
    """Read every file and report contents and problems. Exits with 2 if anything is wrong; masks alone are enough."""
    from ipseg.apps import data_check
    from ipseg.data.dataset import PROBLEM_KINDS

    report = data_check.check(path, kind, scenario, setting, changes or ())
    cli.render_or_json(report, data_check.as_tables(report), as_json=as_json)
    if problems := sum(len(report[kind]) for kind in PROBLEM_KINDS):
        cli.warn(f"{problems} {'problem' if problems == 1 else 'problems'} in {path}.")
        raise typer.Exit(WRONG)
    if not as_json:
        cli.echo("Nothing is wrong.")
