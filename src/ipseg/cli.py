"""The `ipseg` command: parse, call, print. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from ipseg import cli_data, cli_report, cli_saliency, cli_sweep
from ipseg._command import (
    AllowCode,
    Changes,
    Commands,
    Device,
    Json,
    Quiet,
    Recipe,
    Resume,
    Run,
    StepOf,
    complain,
    example,
    say,
    show,
    with_device,
)  # fmt: skip
from ipseg.errors import WRONG, quoted

NOT_LEARNED = 1
"""The exit code of `ipseg extend` where a new class has not been learned."""

app = typer.Typer(
    cls=Commands,
    help="Teach a segmentation network new classes, step after step, without forgetting the old ones.",
    epilog="Begin with `ipseg demo --quick`. In Python: ipseg.train(recipe), ipseg.load(run).predict(image).",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)


def main() -> None:
    """The entry point."""
    os.environ.setdefault("PYTHONSAFEPATH", "1")  # no process that this one starts imports from the working directory
    for stream in (sys.stdout, sys.stderr):  # a table must not end in a traceback where its lines have no letters
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    app(prog_name="ipseg")


def _version(value: bool) -> None:
    if value:
        from ipseg import __version__

        say(f"ipseg {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of every command."""


# ---- train and measure ------------------------------------------------------------------------------------------


@app.command(epilog=example("ipseg demo --quick"))
def demo(
    quick: Annotated[bool, typer.Option("--quick", help="About 30 seconds instead of a few minutes.")] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Where runs and report go. [runs/demo; --quick: runs/demo-quick]"),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Other seeds, other images and weights.")] = 0,
) -> None:
    """Compare four methods on drawn scenes. Trains several steps with each and writes a page with all results."""
    from ipseg.apps.demo import run_demo

    run_demo(out or Path("runs/demo-quick" if quick else "runs/demo"), quick=quick, seed=seed)


@app.command(
    epilog=example(
        "ipseg train scenes_6-2_ipseg --set method.alpha_nf=0.6 --out runs/mine", "ipseg train runs/mine --resume"
    )
)
def train(
    recipe: Recipe,
    *,
    changes: Changes = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="RUN", help="The run's folder; by default runs/NAME.")
    ] = None,
    resume: Resume = False,
    steps: Annotated[int | None, typer.Option("--steps", help="Stop after this many; --resume trains more.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done; write nothing.")] = False,
    device: Device = None,
    quiet: Quiet = False,
    _allow_code: AllowCode = False,
) -> None:
    """Train every step of a recipe. Measures the model after each, and keeps it."""
    from ipseg.apps.train import default_folder, describe_plan, resolve
    from ipseg.report.formats import steps_table
    from ipseg.training.experiment import run

    made = resolve(recipe, with_device(changes, device))
    folder = out or default_folder(recipe, made)
    if dry_run:
        plan, problem = describe_plan(made, folder, resume=resume)
        say(plan)
        if problem:
            raise problem
        return
    for note in made.unused_settings():
        complain(f"note: {note}")
    show(steps_table(run(made, folder, resume=resume, quiet=quiet, steps=steps)))
    say(f"results: {folder / 'results.json'}\nlabel images: ipseg predict {quoted(folder)} IMAGE... --out DIR")


@app.command(epilog=example("ipseg evaluate runs/mine --step 2 --set method.alpha_nf=1"))
def evaluate(
    run: Run,
    *,
    step: StepOf = None,
    changes: Changes = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="PATH", help="Measure on this folder's images (images/, masks/, ...)."),
    ] = None,
    as_json: Json = False,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Also write the result as JSON.")] = None,
    _allow_code: AllowCode = False,
) -> None:
    """Measure a run again, with other inference settings or on other images. Does not modify the run."""
    from ipseg.apps.evaluate import evaluate_again, result_json, summary_table
    from ipseg.apps.run import require_file_place
    from ipseg.files import require_output, write_json
    from ipseg.report.formats import class_table

    if out is not None:
        require_file_place(out, run)
        require_output(out, (".json",), b'{\n  "step": ')  # so the result begins, and no file of a run
    result = evaluate_again(run, step, changes or (), data, quiet=as_json)
    values = result_json(result)
    if out is not None:
        write_json(out, values)
    if as_json:
        say(json.dumps(values, indent=2))
    else:
        show(class_table(result))
        show(summary_table(result))


@app.command(epilog=example("ipseg predict runs/mine photo.jpg holiday/ --out labeled --unknown"))
def predict(
    run: Run,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE", help="Images, and folders of images.")],
    *,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where label maps and overlays go.")],
    step: StepOf = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Also NAME_scores.npz: every class's scores.")
    ] = False,
    unknown: Annotated[
        bool, typer.Option("--unknown", help="Also NAME_unknown.png: the probability of unknown objects.")
    ] = False,
    changes: Changes = None,
    device: Device = None,
    _allow_code: AllowCode = False,
) -> None:
    """Label images. Writes NAME.png (a label map), NAME_overlay.png (for people), and classes.txt."""
    from ipseg.apps import run as runs
    from ipseg.apps.predict import Wanted, predict_all

    runs.require_outside(out, run)
    model = runs.Run.open(run, changes or ()).model(step, device or "auto")
    failed = predict_all(model, images, out, Wanted(probabilities, unknown), say)
    if failed:
        complain("\n  ".join([f"{len(failed)} of the images were not labeled:", *failed.values()]))
        raise typer.Exit(WRONG)


@app.command(epilog=example("ipseg explain runs/mine val/000003 --step 1 --out why.png"))
def explain(
    run: Run,
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="A file, or train/NAME or val/NAME of the run's data.")],
    *,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The PNG to write.")],
    step: StepOf = None,
    device: Device = None,
    _allow_code: AllowCode = False,
) -> None:
    """Visualize labels, heads, posterior and prediction of IPSeg for one image."""
    from ipseg.apps import explain as explaining
    from ipseg.apps.explain_sheet import draw
    from ipseg.apps.run import require_outside

    require_outside(out, run)
    explaining.require_place(out, Path(image))
    sheet = explaining.explain(run, image, step=step, device=device or "auto")
    explaining.save_sheet(draw(sheet), out)
    for note in sheet.notes:
        say(note)
    say(f"drawn: {out}")


# ---- add classes ------------------------------------------------------------------------------------------------


@app.command(
    epilog=example(
        "ipseg extend runs/mine --data new/sheep --classes sheep --out runs/mine-sheep",
        "ipseg extend runs/mine --data new/sheep --classes sheep --out runs/mine-sheep --resume",
    )
)
def extend(
    run: Run,
    *,
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="Images with masks of the new classes.")],
    classes: Annotated[str, typer.Option("--classes", metavar="NAME[,NAME]", help="The new classes, by name.")],
    out: Annotated[Path, typer.Option("--out", metavar="RUN2", help="The new run's folder.")],
    data_format: Annotated[str, typer.Option("--format", help="How the data is laid out.")] = "folder",
    val: Annotated[
        Path | None, typer.Option("--val", metavar="DIR", help="Measure on this folder's val.txt, or all its images.")
    ] = None,
    changes: Changes = None,
    no_memory: Annotated[bool, typer.Option("--no-memory", help="Learn without the run's replay memory.")] = False,
    resume: Resume = False,
    device: Device = None,
    quiet: Quiet = False,
    _allow_code: AllowCode = False,
) -> None:
    """Add classes to a finished run. Does not need the original data or modify the run."""
    from ipseg.apps import extend as extending
    from ipseg.apps.extend_report import MIN_IOU, extension_lines, extension_table

    report = extending.extend(
        run,
        data,
        classes,
        out,
        data_format=data_format,
        val=val,
        assignments=with_device(changes, device),
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
            f"not learned: {', '.join(failed)}, with an IoU below {MIN_IOU:.0%} on the validation images of {data}. "
            "More iterations (--set training.later_epochs=N and another --out), more images, or a look at the masks "
            f"(ipseg data check {quoted(data)}) may help. Measured: {out / 'extend.json'}"
        )
        raise typer.Exit(NOT_LEARNED)
    say(f"measured: {out / 'extend.json'}\nhand it on: ipseg pack {quoted(out)}")


@app.command(epilog=example("ipseg pack runs/mine-sheep --out sheep.zip"))
def pack(
    run: Run,
    *,
    step: StepOf = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The pack; by default RUN_step_K.zip here.")
    ] = None,
    no_memory: Annotated[bool, typer.Option("--no-memory", help="Leave out the replay memory, for privacy.")] = False,
    _allow_code: AllowCode = False,
) -> None:
    """Put a step's files into one file. It upgrades a copy of the run as it was before that step."""
    from ipseg.apps import pack as packing
    from ipseg.apps.memory_report import format_bytes

    made = packing.pack(run, step, out, memory=not no_memory)
    memory = f"memory {format_bytes(made.memory)}" if made.memory else "no memory"
    say(
        f"packed: {made.path}, {format_bytes(made.bytes)} (weights {format_bytes(made.weights)}, {memory}): "
        f"step {made.step.index}, {', '.join(made.step.new)}\n"
        f"upgrade a copy: ipseg apply {quoted(made.path)} RUN --out RUN2"
    )


@app.command(epilog=example("ipseg apply sheep.zip runs/mine --out runs/mine-upgraded"))
def apply(
    pack: Annotated[Path, typer.Argument(metavar="PACK", help="A file made by `ipseg pack`.")],
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A copy of the run that the pack was learned on.")],
    *,
    out: Annotated[Path, typer.Option("--out", metavar="RUN2", help="The upgraded run's folder.")],
    _allow_code: AllowCode = False,
) -> None:
    """Upgrade a copy of a run with a pack. Refuses a pack for another run. Does not modify the run."""
    from ipseg.apps.pack import apply_pack

    scenario = apply_pack(pack, run, out)
    say(
        f"upgraded: {out} knows {', '.join(scenario.order)}\n"
        f"label images: ipseg predict {quoted(out)} IMAGE... --out DIR"
    )


@app.command(epilog=example("ipseg memory runs/mine --json"))
def memory(run: Run, *, step: StepOf = None, as_json: Json = False) -> None:
    """Show the replay memory of a run. Images, classes, bytes, and what that means for privacy."""
    from ipseg.apps.memory_report import memory_lines, memory_report, memory_table

    report = memory_report(run, step)
    if as_json:
        say(json.dumps(report, indent=2))
        return
    show(memory_table(report))
    for line in memory_lines(report):
        say(line)


# ---- many runs, and data ----------------------------------------------------------------------------------------

cli_sweep.mount(app)
cli_report.mount(app)
app.add_typer(cli_data.data, name="data")
cli_saliency.mount(app)


# ---- before a run -----------------------------------------------------------------------------------------------


@app.command(epilog=example("ipseg scenarios", "ipseg scenarios voc/15-1 --setting disjoint --json"))
def scenarios(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One scenario, such as voc/15-1.")] = None,
    setting: Annotated[
        Literal["overlap", "disjoint"], typer.Option("--setting", help="Which images a step has.")
    ] = "overlap",
    as_json: Json = False,
) -> None:
    """List the named scenarios, or the steps of one."""
    from ipseg.apps.scenarios import all_scenarios, list_table, named_scenario, steps_table

    if name is None:
        found = all_scenarios(setting)
        values: object = [scenario.to_json() for scenario in found]
        table = list_table(found)
    else:
        one = named_scenario(name, setting)
        values, table = one.to_json(), steps_table(one)
    if as_json:
        say(json.dumps(values, indent=2))
    else:
        show(table)


@app.command(epilog=example("ipseg cost voc_15-1_ipseg_swin-b --json"))
def cost(
    recipe: Recipe,
    size: Annotated[int, typer.Option("--size", help="Side of the image that is labeled.")] = 512,
    as_json: Json = False,
    changes: Changes = None,
    device: Device = None,
    _allow_code: AllowCode = False,
) -> None:
    """Report parameters, MACs and throughput of every step. Speed and memory are measured on a GPU only."""
    from ipseg.apps import cost as costs
    from ipseg.apps.train import resolve
    from ipseg.training.system import choose_device

    made = resolve(recipe, with_device(changes, device))
    report = costs.cost(made, size, choose_device(made.device), costs.run_at(recipe))
    if as_json:
        say(json.dumps(report, indent=2))
    else:
        show(costs.cost_table(report))


@app.command(epilog=example("ipseg doctor > report.txt"))
def doctor() -> None:
    """Describe this machine for a bug report. Exits with 1 if a network does not run here."""
    from ipseg.apps.doctor import examine

    findings, works = examine()
    for topic, finding in findings.items():
        say(f"{topic:<12} {finding}")
    raise typer.Exit(0 if works else 1)
