"""The `ipseg` command: parse, call, print. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer

from ipseg.cli import data, extend, runs, train
from ipseg.cli.common import CommandGroup, echo

app = typer.Typer(
    cls=CommandGroup,
    help="Teach a segmentation network new classes, step after step, without forgetting the old ones.",
    epilog="Begin with `ipseg demo --quick`. In Python: ipseg.train(recipe), ipseg.load(run).predict(image).",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
for commands in (train.app, extend.app, runs.app, data.app):
    app.add_typer(commands)
app.add_typer(data.group, name="data")


def main() -> None:
    os.environ.setdefault("PYTHONSAFEPATH", "1")  # child processes import nothing from the working directory
    for stream in (sys.stdout, sys.stderr):  # a table must not end in a traceback where its lines have no letters
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    app(prog_name="ipseg")


def _print_version(wanted: bool) -> None:
    if wanted:
        from ipseg import __version__

        echo(f"ipseg {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...
