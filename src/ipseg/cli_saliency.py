"""`ipseg saliency`: generate saliency maps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from ipseg._command import Changes, Quiet, complain, example, say
from ipseg.errors import WRONG, quoted


def mount(app: typer.Typer) -> None:
    """Make it a command of `ipseg`."""
    app.command(
        epilog=example(
            "ipseg saliency data/mine --model u2netp.onnx",
            "ipseg saliency VOCdevkit/VOC2012 --format voc --model isnet.onnx --preset isnet",
            "ipseg saliency data/mine --fallback --out maps",
        )
    )(saliency)


def saliency(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="The data set's folder.")],
    *,
    model: Annotated[Path | None, typer.Option(metavar="FILE", help="A salient object detector in ONNX form.")] = None,
    fallback: Annotated[bool, typer.Option("--fallback", help="Without a model: rougher, but at once.")] = False,
    kind: Annotated[
        Literal["folder", "voc", "ade", "coco"], typer.Option("--format", help="The layout of the data.")
    ] = "folder",
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of the maps; by default in the data.")] = None,
    preset: Annotated[
        str | None, typer.Option(help="The model's input: u2net (also u2netp; the default), isnet.")
    ] = None,
    threshold: Annotated[float | None, typer.Option(help="Saliency threshold (default 0.5).")] = None,
    changes: Changes = None,
    quiet: Quiet = False,
) -> None:
    """Generate saliency maps. Existing maps are kept, so that the same command continues an interrupted one."""
    from ipseg.apps import saliency as maps

    detect = maps.detector(model, fallback=fallback, preset=preset, threshold=threshold)
    job = maps.plan_maps(data, kind, out, changes or [])
    result = maps.write_maps(job, detect, quiet=quiet)
    for error in result.broken:
        complain(error)
    kept = f", {result.skipped} were there already" if result.skipped else ""
    say(f"{result.written} maps written{kept}: {', '.join(map(str, job.folders))}")
    if out is not None:
        say(f"use them: --set {quoted(f'data.saliency={out.resolve()}')}")
    if result.broken:
        raise typer.Exit(WRONG)
