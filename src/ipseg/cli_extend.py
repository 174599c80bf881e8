"""The commands around one more class: learn it, hand the step on, look at what is remembered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ipseg._command import AllowCode, Changes, Json, Quiet, Run, complain, example, say, show
from ipseg.errors import quoted

NOT_LEARNED = 1
"""The exit code where a new class has not been learned."""


def mount(app: typer.Typer) -> None:
    """Make these commands commands of `ipseg`."""
    app.command(
        epilog=example(
            "ipseg extend runs/mine --data new/sheep --classes sheep --out runs/mine-sheep",
            "ipseg extend runs/mine --data new/sheep --classes sheep --out runs/mine-sheep --resume",
        )
    )(extend)
    app.command(epilog=example("ipseg pack runs/mine-sheep --out sheep.zip"))(pack)
    app.command(epilog=example("ipseg apply sheep.zip runs/mine --out runs/mine-upgraded"))(apply)
    app.command(epilog=example("ipseg memory runs/mine --json"))(memory)


def extend(
    run: Run,
    *,
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="Pictures with masks of the new classes.")],
    classes: Annotated[str, typer.Option("--classes", metavar="NAME[,NAME]", help="The new classes, by name.")],
    out: Annotated[Path, typer.Option("--out", metavar="RUN2", help="The new run's folder.")],
    data_format: Annotated[str, typer.Option("--format", help="What kind of data it is.")] = "folder",
    val: Annotated[
        Path | None, typer.Option("--val", metavar="DIR", help="Measure on this folder's val.txt, or all its pictures.")
    ] = None,
    changes: Changes = None,
    no_memory: Annotated[bool, typer.Option("--no-memory", help="Learn without what the run remembers.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where it was stopped.")] = False,
    quiet: Quiet = False,
    _allow_code: AllowCode = False,
) -> None:
    """Teach a finished run one more class. The old data may be gone; the run stays as it is."""
    from ipseg.apps.extend import extend as extend_run
    from ipseg.apps.extend_report import LEAST_IOU, extension_lines, extension_table

    report = extend_run(
        run,
        data,
        classes,
        out,
        data_format=data_format,
        val=val,
        assignments=changes or (),
        memory=not no_memory,
        resume=resume,
        quiet=quiet,
        warn=lambda note: complain(f"note: {note}"),
    )
    show(extension_table(report))
    for line in extension_lines(report):
        say(line)
    if failed := report["not_learned"]:
        complain(
            f"not learned: {', '.join(failed)}, with an IoU below {LEAST_IOU:.0%} on the validation pictures of "
            f"{data}. More iterations (--set training.later_epochs=N and another --out), more pictures, or a look at "
            f"the masks (ipseg data check {quoted(data)}) may help. Measured: {out / 'extend.json'}"
        )
        raise typer.Exit(NOT_LEARNED)
    say(f"measured: {out / 'extend.json'}\nhand it on: ipseg pack {quoted(out)}")


def pack(
    run: Run,
    *,
    step: Annotated[int | None, typer.Option("--step", help="The step; by default the last finished one.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The pack; by default RUN_step_K.zip here.")
    ] = None,
    no_memory: Annotated[bool, typer.Option("--no-memory", help="Leave out what is remembered, for privacy.")] = False,
    _allow_code: AllowCode = False,
) -> None:
    """Put a step's files into one file. It upgrades a copy of the run as it was before that step."""
    from ipseg.apps.memory_report import say_bytes
    from ipseg.apps.pack import pack as write

    made = write(run, step, out, memory=not no_memory)
    memory = f"memory {say_bytes(made.memory)}" if made.memory else "no memory"
    say(
        f"packed: {made.path}, {say_bytes(made.bytes)} (weights {say_bytes(made.weights)}, {memory}): "
        f"step {made.step.index}, {', '.join(made.step.new)}\n"
        f"upgrade a copy: ipseg apply {quoted(made.path)} RUN --out RUN2"
    )


def apply(
    pack: Annotated[Path, typer.Argument(metavar="PACK", help="A file made by `ipseg pack`.")],
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A copy of the run that the pack was learned on.")],
    *,
    out: Annotated[Path, typer.Option("--out", metavar="RUN2", help="The upgraded run's folder.")],
    _allow_code: AllowCode = False,
) -> None:
    """Upgrade a copy of a run with a pack. A pack for another run is refused; the run stays as it is."""
    from ipseg.apps.apply import apply_pack

    scenario = apply_pack(pack, run, out)
    say(
        f"upgraded: {out} knows {', '.join(scenario.order)}\n"
        f"label pictures: ipseg predict {quoted(out)} IMAGE... --out DIR"
    )


def memory(
    run: Run,
    *,
    step: Annotated[int | None, typer.Option("--step", help="After this step; by default the last one.")] = None,
    as_json: Json = False,
) -> None:
    """Say what a run remembers. Pictures, classes, bytes, and what that means for privacy."""
    from ipseg.apps.memory_report import memory_lines, memory_report, memory_table

    report = memory_report(run, step)
    if as_json:
        say(json.dumps(report, indent=2))
        return
    show(memory_table(report))
    for line in memory_lines(report):
        say(line)
