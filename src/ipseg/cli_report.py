"""`ipseg report`: runs on one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ipseg._command import AllowCode, Device, example, say


def mount(app: typer.Typer) -> None:
    """Make it a command of `ipseg`."""
    app.command(epilog=example("ipseg report runs/grid --out grid.html", "ipseg report runs/one runs/two --gallery 8"))(
        report
    )


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders, results.json files, sweep folders.")],
    *,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page.")] = Path("report.html"),
    title: Annotated[str, typer.Option("--title", help="Its title.")] = "ipseg report",
    gallery: Annotated[
        int,
        typer.Option(
            "--gallery",
            metavar="N",
            min=0,
            help="Images with predictions; 0: no images, replayed ones neither.",
        ),
    ] = 4,
    device: Device = "auto",
    _allow_code: AllowCode = False,
) -> None:
    """Write one HTML page about runs. Results first, then predictions, memory, losses, settings. It works offline."""
    from ipseg.apps.report import report as write

    write(runs, out, title=title, images=gallery, device=device, say=lambda text: say(text, err=True))
    say(f"written: {out}")
