"""`ipseg report`: runs as one page to look at."""

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
    title: Annotated[str | None, typer.Option("--title", help="Its title.")] = None,
    gallery: Annotated[
        int,
        typer.Option(
            "--gallery",
            metavar="N",
            min=0,
            help="Pictures to label after every step; 0: no pictures, remembered ones neither.",
        ),
    ] = 4,
    device: Device = "auto",
    _allow_code: AllowCode = False,
) -> None:
    """Write one page about runs. Tables, curves, look-alikes, memory and pictures; it works offline and prints."""
    from ipseg.apps.report import report as write

    write(runs, out, title=title, pictures=gallery, device=device, tell=lambda text: say(text, err=True))
    say(f"written: {out}")
