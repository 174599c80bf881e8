"""The `ipseg` command: parse, call, print. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from ipseg import cli_data, cli_extend, cli_report, cli_saliency, cli_sweep
from ipseg._command import AllowCode, Changes, Commands, Device, Json, Quiet, Run, StepOf, complain, example, say, show
from ipseg.errors import WRONG, quoted

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


@app.command(epilog=example("ipseg demo --quick"))
def demo(
    quick: Annotated[bool, typer.Option("--quick", help="About 30 seconds instead of a few minutes.")] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Where runs and report go. [runs/demo; --quick: runs/demo-quick]"),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Other seeds, other pictures and weights.")] = 0,
) -> None:
    """Compare four methods on drawn scenes. Learns several steps with each and writes a page with all results."""
    from ipseg.apps.demo import run_demo

    run_demo(out or Path("runs/demo-quick" if quick else "runs/demo"), quick=quick, seed=seed)


@app.command(
    epilog=example(
        "ipseg train scenes_6-2_ipseg --set method.alpha_nf=0.6 --out runs/mine", "ipseg train runs/mine --resume"
    )
)
def train(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A YAML file, a shipped recipe's name, or a run's folder.")
    ],
    *,
    changes: Changes = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="RUN", help="The run's folder; by default runs/NAME.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")] = False,
    steps: Annotated[int | None, typer.Option("--steps", help="Stop after this many; --resume trains more.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done; write nothing.")] = False,
    quiet: Quiet = False,
    _allow_code: AllowCode = False,
) -> None:
    """Learn every step of a recipe. The model is measured after each, and kept."""
    from ipseg.apps.train import default_folder, describe_plan, resolve
    from ipseg.report.formats import steps_table
    from ipseg.training.experiment import run

    made = resolve(recipe, changes or ())
    folder = out or default_folder(recipe, made)
    if dry_run:
        plan = describe_plan(made, folder, resume=resume)
        say(plan.text)
        if plan.problem:
            raise plan.problem
        return
    for note in made.unused_settings():
        complain(f"note: {note}")
    result = run(made, folder, resume=resume, quiet=quiet, steps=steps)
    show(steps_table(result))
    say(f"results: {folder / 'results.json'}\nlabel pictures: ipseg predict {quoted(folder)} IMAGE... --out DIR")


@app.command(epilog=example("ipseg evaluate runs/mine --step 2 --set method.alpha_nf=1"))
def evaluate(
    run: Run,
    *,
    step: StepOf = None,
    changes: Changes = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="PATH", help="Measure on this folder's pictures (images/, masks/, ...)."),
    ] = None,
    as_json: Json = False,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Also write the result as JSON.")] = None,
    _allow_code: AllowCode = False,
) -> None:
    """Measure a run again. Other settings of inference, or other pictures; the run stays as it is."""
    from ipseg.apps import evaluate as again
    from ipseg.files import require_output, write_json
    from ipseg.report.formats import class_table

    if out is not None:
        again.require_place(out, run)
        require_output(out, (".json",), b'{\n  "step": ')  # so `as_json` begins, and no file of a run
    result = again.evaluate_again(run, step, changes or (), data, quiet=as_json)
    values = again.as_json(result)
    if out is not None:
        write_json(out, values)
    if as_json:
        say(json.dumps(values, indent=2))
        return
    show(class_table(result))
    show(again.summary_table(result))


@app.command(epilog=example("ipseg predict runs/mine photo.jpg holiday/ --out labeled --unknown"))
def predict(
    run: Run,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE", help="Pictures, and folders of pictures.")],
    *,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where label maps and overlays go.")],
    step: StepOf = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Also NAME_scores.npz: every class's scores.")
    ] = False,
    unknown: Annotated[
        bool, typer.Option("--unknown", help="Also NAME_unknown.png: where unknown objects are.")
    ] = False,
    changes: Changes = None,
    device: Device = "auto",
    _allow_code: AllowCode = False,
) -> None:
    """Label pictures. Writes NAME.png (a label map), NAME_overlay.png (for people), and classes.txt."""
    from ipseg.apps.model import load_model, require_outside
    from ipseg.apps.predict import Wanted, predict_all

    require_outside(out, run)
    model = load_model(run, step, device, changes or ())
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
    device: Device = "auto",
    _allow_code: AllowCode = False,
) -> None:
    """Draw heads, posterior and prediction of IPSeg for one image, and the label maps of a step."""
    from ipseg.apps.explain import explain as make_sheet
    from ipseg.apps.explain import require_place, save_sheet
    from ipseg.apps.explain_sheet import draw
    from ipseg.apps.model import require_outside

    require_outside(out, run)
    require_place(out, Path(image))
    sheet = make_sheet(run, image, step=step, device=device)
    save_sheet(draw(sheet), out)
    for note in sheet.notes:
        say(note)
    say(f"drawn: {out}")


cli_extend.mount(app)
cli_sweep.mount(app)
cli_report.mount(app)
app.add_typer(cli_data.data, name="data")
cli_saliency.mount(app)


@app.command(epilog=example("ipseg scenarios", "ipseg scenarios voc/15-1 --setting disjoint --json"))
def scenarios(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One scenario, such as voc/15-1.")] = None,
    setting: Annotated[
        Literal["overlap", "disjoint"], typer.Option("--setting", help="Which images a step has.")
    ] = "overlap",
    as_json: Json = False,
) -> None:
    """List the named scenarios, or the steps of one."""
    from ipseg.apps import scenarios as known

    if name is None:
        found = known.every(setting)
        if as_json:
            say(json.dumps([scenario.to_json() for scenario in found], indent=2))
        else:
            show(known.list_table(found))
    elif as_json:
        say(json.dumps(known.one(name, setting).to_json(), indent=2))
    else:
        show(known.steps_table(known.one(name, setting)))


@app.command(epilog=example("ipseg cost voc_15-1_ipseg_swin-b --json"))
def cost(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A YAML file, a shipped recipe's name, or a run's folder.")
    ],
    size: Annotated[int, typer.Option("--size", help="Side of the picture that is labeled.")] = 512,
    as_json: Json = False,
    changes: Changes = None,
    _allow_code: AllowCode = False,
) -> None:
    """Count what a recipe costs. Parameters and multiply-adds, on a GPU also speed and memory, of every step."""
    from ipseg.apps.cost import cost as count
    from ipseg.apps.cost import cost_table, run_at
    from ipseg.apps.train import resolve
    from ipseg.training.system import choose_device

    made = resolve(recipe, changes or ())
    report = count(made, size, choose_device(made.device), run_at(recipe))
    if as_json:
        say(json.dumps(report, indent=2))
    else:
        show(cost_table(report))


@app.command(epilog=example("ipseg doctor > report.txt"))
def doctor() -> None:
    """Describe this machine for a bug report. Exits with 1 if a network does not run here."""
    from ipseg.apps.doctor import examine

    lines, works = examine()
    for topic, finding in lines:
        say(f"{topic:<12} {finding}")
    raise typer.Exit(0 if works else 1)
