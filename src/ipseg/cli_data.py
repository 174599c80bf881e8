"""`ipseg data`: commands about data sets, before anything is learned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from ipseg._command import Json, complain, example, say, show
from ipseg.errors import WRONG

_EXAMPLES = (
    "ipseg data check data/mine --format folder",
    "ipseg data check VOCdevkit/VOC2012 --format voc --scenario voc/15-1 --setting disjoint --json",
)

data = typer.Typer(
    help="Look at a data set. `ipseg data check` says what is in it and what is wrong.",
    epilog=example(*_EXAMPLES),
    no_args_is_help=True,
    rich_markup_mode=None,
)


@data.callback()
def options() -> None:
    """A group, although it has one command yet."""


@data.command(epilog=example(*_EXAMPLES))
def check(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The data set's folder.")],
    *,
    kind: Annotated[Literal["voc", "ade", "coco", "folder"], typer.Option("--format", help="How it is laid out.")],
    scenario: Annotated[
        str | None, typer.Option("--scenario", metavar="NAME", help="Also count the images of its steps: voc/15-1.")
    ] = None,
    setting: Annotated[
        Literal["overlap", "disjoint"], typer.Option("--setting", help="Which images a step has.")
    ] = "overlap",
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="data.KEY=VALUE", help="Change a setting of the data set; may be repeated."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Read every file and say what is there. Ends with 2 if anything is wrong; masks alone are enough."""
    from ipseg.apps import data_check
    from ipseg.data.dataset import PROBLEM_KINDS

    report = data_check.check(path, kind, scenario, setting, changes or ())
    if as_json:
        say(json.dumps(report, indent=2))
    else:
        show(data_check.as_tables(report))
    problems = sum(len(report[kind]) for kind in PROBLEM_KINDS)
    if problems:
        complain(f"{problems} {'problem' if problems == 1 else 'problems'} in {path}.")
        raise typer.Exit(WRONG)
    if not as_json:
        say("Nothing is wrong.")
