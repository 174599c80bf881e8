"""`ipseg extend`, `pack`, `apply`, `memory`: more classes for a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ipseg.cli import common as cli
from ipseg.errors import quoted

app = typer.Typer()


@app.command(
    epilog=cli.example(
        "ipseg extend runs/mine --data new/sheep --classes sheep --out runs/mine-sheep",
        "ipseg extend runs/mine --data new/sheep --classes sheep --out runs/mine-sheep --resume",
    )
)
def extend(
    run: cli.Run,
    *,
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="Images with masks of the new classes.")],
    classes: Annotated[str, typer.Option("--classes", metavar="NAME[,NAME]", help="The new classes, by name.")],
    out: Annotated[Path, typer.Option("--out", metavar="RUN2", help="The new run's folder.")],
    data_format: Annotated[str, typer.Option("--format", help="Layout of the data.")] = "folder",
    val: Annotated[
        Path | None, typer.Option("--val", metavar="DIR", help="Evaluate on this folder's val.txt, or all its images.")
    ] = None,
    changes: cli.Changes = None,
    no_memory: Annotated[bool, typer.Option("--no-memory", help="Learn without the run's replay memory.")] = False,
    resume: cli.Resume = False,
    device: cli.Device = None,
    quiet: cli.Quiet = False,
    _allow_code: cli.AllowCode = False,
) -> None:
    """Add classes to a finished run. Does not need the original data or modify the run."""
    from ipseg.apps import extend as app
    from ipseg.apps.extend_report import BEFORE_AFTER, MIN_IOU, extension_lines, extension_table

    report = app.extend(
        run,
        data,
        classes,
        out,
        data_format=data_format,
        val=val,
        assignments=cli.with_device(changes, device),
        memory=not no_memory,
        resume=resume,
        quiet=quiet,
        warn=lambda note: cli.warn(f"note: {note}"),
    )
    cli.render(extension_table(report))
    cli.echo("\n".join(extension_lines(report)))
    if failed := report["not_learned"]:
        cli.warn(
            f"not learned: {', '.join(failed)}, with an IoU below {MIN_IOU:.0%} on validation images. "
            "More iterations (--set training.later_epochs=N and another --out), more images, or a check of the masks "
            f"(ipseg data check {quoted(data)}) may help. Measured: {out / 'extend.json'}"
        )
        raise typer.Exit(cli.FAILED)
    cli.echo(f"measured: {out / 'extend.json'}")
    if (out / BEFORE_AFTER).is_file():
        cli.echo(f"images before and after: {out / BEFORE_AFTER}")
    if unknown := report["not_measured"]:
        cli.echo(f"measure {', '.join(unknown)} on images that show it: ipseg evaluate {quoted(out)} --data FOLDER")
    else:
        cli.echo(f"share it: ipseg pack {quoted(out)}")


@app.command(epilog=cli.example("ipseg pack runs/mine-sheep --out sheep.zip"))
def pack(
    run: cli.Run,
    *,
    step: cli.StepOf = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The pack; by default RUN_step_K.zip here.")
    ] = None,
    no_memory: Annotated[bool, typer.Option("--no-memory", help="Leave out the replay memory, for privacy.")] = False,
    _allow_code: cli.AllowCode = False,
) -> None:
    """Pack a step's files into one file. It upgrades a copy of the run as it was before that step."""
    from rich import filesize

    from ipseg.apps.pack import pack as write_pack

    made = write_pack(run, step, out, memory=not no_memory)
    memory = f"memory {filesize.decimal(made.memory)}" if made.memory else "no memory"
    cli.echo(
        f"packed: {made.path}, {filesize.decimal(made.bytes)} (weights {filesize.decimal(made.weights)}, {memory}): "
        f"step {made.step.index}, {', '.join(made.step.new)}\n"
        f"upgrade a copy: ipseg apply {quoted(made.path)} RUN --out RUN2"
    )


@app.command(epilog=cli.example("ipseg apply sheep.zip runs/mine --out runs/mine-upgraded"))
def apply(
    pack: Annotated[Path, typer.Argument(metavar="PACK", help="A file made by `ipseg pack`.")],
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A copy of the run that the pack was learned on.")],
    *,
    out: Annotated[Path, typer.Option("--out", metavar="RUN2", help="The upgraded run's folder.")],
    _allow_code: cli.AllowCode = False,
) -> None:
    """Upgrade a copy of a run with a pack. Refuses a pack for another run. Does not modify the run."""
    from ipseg.apps.pack import apply_pack

    scenario = apply_pack(pack, run, out)
    cli.echo(
        f"upgraded: {out} knows {', '.join(scenario.order)}\n"
        f"label images: ipseg predict {quoted(out)} IMAGE... --out DIR"
    )


@app.command(epilog=cli.example("ipseg memory runs/mine --json"))
def memory(
    run: cli.Run, *, step: cli.StepOf = None, as_json: cli.Json = False, _allow_code: cli.AllowCode = False
) -> None:
    """Show the replay memory of a run. Images, classes, bytes, and what that means for privacy."""
    from ipseg.apps.memory_report import memory_lines, memory_report, memory_table

    report = memory_report(run, step)
    cli.render_or_json(report, memory_table(report), "\n".join(memory_lines(report)), as_json=as_json)
