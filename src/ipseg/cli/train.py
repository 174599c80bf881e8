"""`ipseg demo`, `train`, `evaluate`, `predict`, `explain`: one run, and its model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ipseg.cli import common as cli
from ipseg.errors import WRONG, quoted

app = typer.Typer()


@app.command(epilog=cli.example("ipseg demo --quick"))
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
    epilog=cli.example(
        "ipseg train scenes_6-2_ipseg --set method.alpha_nf=0.6 --out runs/mine", "ipseg train runs/mine --resume"
    )
)
def train(
    recipe: cli.Recipe,
    *,
    changes: cli.Changes = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="RUN", help="The run's folder; by default runs/NAME.")
    ] = None,
    resume: cli.Resume = False,
    steps: Annotated[int | None, typer.Option("--steps", help="Stop after this many; --resume trains more.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan; write nothing.")] = False,
    device: cli.Device = None,
    quiet: cli.Quiet = False,
    _allow_code: cli.AllowCode = False,
) -> None:
    """Train every step of a recipe. Evaluates the model after each step and saves it."""
    from ipseg.apps.train import default_folder, describe_plan, resolve
    from ipseg.report.formats import steps_table
    from ipseg.training.experiment import run

    made = resolve(recipe, cli.with_device(changes, device))
    folder = out or default_folder(recipe, made)
    if dry_run:
        plan, problem = describe_plan(made, folder, resume=resume)
        cli.echo(plan)
        if problem:
            raise problem
        return
    for note in made.unused_settings():
        cli.warn(f"note: {note}")
    cli.render(steps_table(run(made, folder, resume=resume, quiet=quiet, steps=steps)))
    cli.echo(f"results: {folder / 'results.json'}\nlabel images: ipseg predict {quoted(folder)} IMAGE... --out DIR")


@app.command(epilog=cli.example("ipseg evaluate runs/mine --step 2 --set method.alpha_nf=1"))
def evaluate(
    run: cli.Run,
    *,
    step: cli.StepOf = None,
    changes: cli.Changes = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="PATH", help="Use this folder's images (images/, masks/, ...).")
    ] = None,
    as_json: cli.Json = False,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Also write the result as JSON.")] = None,
    device: cli.Device = None,
    _allow_code: cli.AllowCode = False,
) -> None:
    """Evaluate a run again, with other inference settings or on other images. Does not modify the run."""
    from ipseg.apps.evaluate import evaluate_again
    from ipseg.apps.run import require_outside, require_parent
    from ipseg.files import require_output, write_json
    from ipseg.report.formats import class_table, summary_table

    if out is not None:
        require_outside(out, run)
        require_parent(out)
        require_output(out, (".json",), b'{\n  "step": ')  # so the result begins, and no file of a run
    result = evaluate_again(run, step, cli.with_device(changes, device), data, quiet=as_json)
    if out is not None:
        write_json(out, result.to_json())
    cli.render_or_json(result.to_json(), class_table(result), summary_table(result), as_json=as_json)


@app.command(epilog=cli.example("ipseg predict runs/mine photo.jpg holiday/ --out labeled --unknown"))
def predict(
    run: cli.Run,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE", help="Images, and folders of images.")],
    *,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the label maps and overlays.")],
    step: cli.StepOf = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Also NAME_scores.npz: every class's scores.")
    ] = False,
    unknown: Annotated[
        bool, typer.Option("--unknown", help="Also NAME_unknown.png: the probability of unknown objects.")
    ] = False,
    changes: cli.Changes = None,
    device: cli.Device = None,
    _allow_code: cli.AllowCode = False,
) -> None:
    """Label images. Writes NAME.png (a label map), NAME_overlay.png (for people), and classes.txt."""
    from ipseg.apps import run as runs
    from ipseg.apps.predict import predict_all

    runs.require_outside(out, run)
    model = runs.Run.open(run, changes or ()).model(step, device or "auto")
    failed = predict_all(model, images, out, probabilities=probabilities, unknown=unknown, log=cli.echo)
    if failed:
        cli.warn("\n  ".join([f"{len(failed)} of the images were not labeled:", *failed.values()]))
        raise typer.Exit(WRONG)


@app.command(
    epilog=cli.example("ipseg export runs/mine model.onnx", "ipseg export runs/swin model.onnx --size 512x512")
)
def export(
    run: cli.Run,
    out: Annotated[Path, typer.Argument(metavar="FILE", help="The ONNX file to write.")],
    *,
    step: cli.StepOf = None,
    size: Annotated[
        str | None, typer.Option("--size", metavar="HxW", help="The only size of images that it takes, as for Swin.")
    ] = None,
    _allow_code: cli.AllowCode = False,
) -> None:
    """Export a model to ONNX, and check that its labels agree with torch's."""
    from ipseg.apps import export as exporting

    checks = exporting.export(run, out, step, None if size is None else exporting.parse_size(size))
    for check in checks:
        cli.echo(
            f"{check.size[0]:>4} x {check.size[1]:<4} {check.agreement:.3%} of the labels as with torch, "
            f"scores within {check.difference:.1e}"
        )
    cli.echo(f"exported: {out}")


@app.command(epilog=cli.example("ipseg explain runs/mine val/000003 --step 1 --out why.png"))
def explain(
    run: cli.Run,
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="A file, or train/NAME or val/NAME of the run's data.")],
    *,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The PNG to write.")],
    step: cli.StepOf = None,
    device: cli.Device = None,
    _allow_code: cli.AllowCode = False,
) -> None:
    """Visualize labels, heads, posterior and prediction of IPSeg for one image."""
    from ipseg.apps import explain as app
    from ipseg.apps.explain_sheet import draw
    from ipseg.apps.run import require_outside

    require_outside(out, run)
    app.require_writable(out, Path(image))
    sheet = app.explain(run, image, step=step, device=device or "auto")
    app.save_sheet(draw(sheet), out)
    for note in sheet.notes:
        cli.echo(note)
    cli.echo(f"drawn: {out}")
