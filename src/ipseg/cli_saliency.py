"""`ipseg saliency`: maps of what stands out, for data that has none."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from ipseg._command import Quiet, complain, example, say
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
    model: Annotated[
        Path | None, typer.Option("--model", metavar="FILE", help="An ONNX model that finds salient objects.")
    ] = None,
    fallback: Annotated[bool, typer.Option("--fallback", help="Without a model: rougher, but at once.")] = False,
    kind: Annotated[
        Literal["folder", "voc", "ade", "coco"], typer.Option("--format", help="How the data is laid out.")
    ] = "folder",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where the maps go; by default into the data.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option("--preset", help="What the model expects: u2net (the default), u2netp, isnet.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option("--threshold", help="What stands out has more than this; 0.5 by default.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting: model.size, data.train; may be repeated."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Write saliency maps for a data set. Maps that are there already stay: stopped, it goes on where it was."""
    from ipseg.apps import saliency as maps

    changes = changes or []
    detect = maps.detector(model, fallback=fallback, preset=preset, threshold=threshold, changes=changes)
    wanted = maps.wanted_maps(data, kind, out, changes)
    done = maps.write_maps(wanted, detect, quiet=quiet)
    for error in done.broken:
        complain(error)
    kept = f", {done.skipped} were there already" if done.skipped else ""
    say(f"{done.written} maps written{kept}: {', '.join(map(str, wanted.folders))}")
    if out is not None:
        say(f"use them: --set {quoted(f'data.saliency={out.resolve()}')}")
    if done.broken:
        raise typer.Exit(WRONG)
