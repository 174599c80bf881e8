"""`ipseg compare` and `ipseg report`: runs side by side, as a table or on one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from ipseg._command import AllowCode, Device, example, say, show

Runs = Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders, results.json files, sweep folders.")]


def mount(app: typer.Typer) -> None:
    """Make these commands commands of `ipseg`."""
    app.command(
        epilog=example("ipseg compare runs/one runs/two", "ipseg compare runs/grid --format latex > table.tex")
    )(compare)
    app.command(epilog=example("ipseg report runs/grid --out grid.html", "ipseg report runs/one runs/two --gallery 8"))(
        report
    )


def compare(
    runs: Runs,
    *,
    style: Annotated[
        Literal["table", "markdown", "latex", "csv"], typer.Option("--format", help="For whom it is.")
    ] = "table",
) -> None:
    """Put runs side by side. Mean and spread over seeds, the best in bold, the paper's number where it has one."""
    from ipseg.apps.compare import compare as load_tables
    from ipseg.report import formats

    tables = load_tables(runs)
    if style == "table":
        show(formats.rich_tables(tables))
    else:
        text = {"markdown": formats.markdown, "latex": formats.latex, "csv": formats.to_csv}[style]
        say(text(tables), end="")


def report(
    runs: Runs,
    *,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page.")] = Path("report.html"),
    title: Annotated[str, typer.Option("--title", help="Its title.")] = "ipseg report",
    gallery: Annotated[
        int, typer.Option("--gallery", metavar="N", min=0, help="Validation images with predictions; 0: none.")
    ] = 4,
    device: Device = "auto",
    _allow_code: AllowCode = False,
) -> None:
    """Write one HTML page about runs. Results first, then predictions, settings last. It works offline."""
    from ipseg.apps.report import report as write_report

    write_report(runs, out, title=title, images=gallery, device=device or "auto", say=lambda text: say(text, err=True))
    say(f"written: {out}")
