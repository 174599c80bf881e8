"""Teach a segmentation network new classes, step after step, without forgetting the old ones.

>>> import ipseg
>>> result = ipseg.train("scenes_6-2_ipseg", "runs/mine", training={"epochs": 2})  # doctest: +SKIP
>>> ipseg.load("runs/mine").predict("photo.jpg")  # doctest: +SKIP
Result(640 x 480, cow 21.4 %, bus 8.0 %; posterior: cow 0.98, bus 0.91)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipseg.errors import UserError
from ipseg.own_code import code_allowed

if TYPE_CHECKING:  # torch is imported when it is needed, so that `import ipseg` and `ipseg --help` are quick
    from matplotlib.figure import Figure

    from ipseg.apps.export import Check
    from ipseg.apps.model import Model
    from ipseg.evaluation.results import RunResult, StepResult
    from ipseg.report.compare import ResultTable
    from ipseg.training.recipe import Recipe

__version__ = "0.1.0"
__all__ = ["UserError", "__version__", "compare", "evaluate", "explain", "export", "extend", "load", "train"]


def train(
    recipe: Recipe | str | Path | Mapping[str, Any],
    out: Path | str | None = None,
    *,
    resume: bool = False,
    quiet: bool = False,
    allow_code: bool = False,
    **settings: Any,
) -> RunResult:
    """Train every step of a recipe: its file, its name, its settings, or a `Recipe`.

    out: the run's folder; by default runs/NAME. resume: resume an interrupted run. quiet: no progress. allow_code: run
    code that a run's folder names, see `load`. settings: changes, such as seed=1, device="cpu" or
    method={"alpha_nf": 0.6}.
    """
    from ipseg.apps.train import default_folder, resolve
    from ipseg.training.experiment import run

    with code_allowed(wanted=allow_code):
        made = resolve(recipe, _assignments(settings))
        return run(made, Path(out) if out else default_folder(recipe, made), resume=resume, quiet=quiet)


def extend(
    run: Path | str,
    data: Path | str,
    classes: str | Sequence[str],
    out: Path | str,
    *,
    val: Path | str | None = None,
    resume: bool = False,
    quiet: bool = False,
    allow_code: bool = False,
    **settings: Any,
) -> dict[str, Any]:
    """Add classes to a finished run, from a folder of images with masks of them, in a run of its own.

    val: a folder with masks to measure on. settings: changes, such as training={"later_epochs": 5}. allow_code: see
    `load`. Returns the content of extend.json: the old classes before and after, and how good the new ones are.
    """
    from ipseg.apps import extend as extending

    with code_allowed(wanted=allow_code):
        return extending.extend(
            Path(run),
            Path(data),
            [classes] if isinstance(classes, str) else list(classes),
            Path(out),
            val=None if val is None else Path(val),
            assignments=_assignments(settings),
            resume=resume,
            quiet=quiet,
        )


def load(
    run: Path | str, step: int | None = None, device: str = "auto", *, allow_code: bool = False, **settings: Any
) -> Model:
    """Load the model of a run after a step; by default after the last finished one.

    settings: other inference settings, such as method={"alpha_nf": 1}. allow_code: a run whose method or data set is
    not one of this package (`module:Class`) is refused without it, for its code can do whatever you can.
    """
    from ipseg.apps.run import Run

    with code_allowed(wanted=allow_code):
        return Run.open(run, _assignments(settings)).model(step, device)


def evaluate(
    run: Path | str,
    data: Path | str | None = None,
    *,
    step: int | None = None,
    quiet: bool = False,
    allow_code: bool = False,
    **settings: Any,
) -> StepResult:
    """Evaluate the model after a step again, on a folder's images or the run's own data. Does not modify the run.

    settings: other inference settings; allow_code: see `load`.
    """
    from ipseg.apps.evaluate import evaluate_again

    with code_allowed(wanted=allow_code):
        return evaluate_again(
            Path(run), step, _assignments(settings), None if data is None else Path(data), quiet=quiet
        )


def compare(*runs: Path | str) -> list[ResultTable]:
    """Tables of runs, or of folders of runs: means and deviations over seeds, and the paper's numbers."""
    from ipseg.apps.compare import compare as tables

    return tables([Path(run) for run in runs])


def explain(
    run: Path | str, image: Path | str, *, step: int | None = None, device: str = "auto", allow_code: bool = False
) -> Figure:
    """Draw labels, heads, posterior and prediction of IPSeg for one image: a file, or train/NAME or val/NAME."""
    from ipseg.apps.explain import explain as sheet_of
    from ipseg.apps.explain_sheet import draw

    with code_allowed(wanted=allow_code):
        return draw(sheet_of(Path(run), str(image), step=step, device=device))


def export(
    run: Path | str,
    out: Path | str,
    *,
    step: int | None = None,
    size: tuple[int, int] | None = None,
    allow_code: bool = False,
) -> list[Check]:
    """Write the model of a run to an ONNX file, and compare it with torch on images of several sizes.

    The file takes (height, width, 3) uint8 RGB and gives `labels` and `scores` of that size. size: the only height and
    width that it takes; any by default, which Swin cannot. allow_code: see `load`.
    """
    from ipseg.apps.export import export as write

    with code_allowed(wanted=allow_code):
        return write(run, Path(out), step, size)


def _assignments(settings: Mapping[str, Any]) -> list[str]:
    """Settings as the command's `section.key=value`, with values in YAML."""
    import yaml

    def leaves(section: Mapping[str, Any], prefix: str) -> Iterator[str]:
        for key, value in section.items():
            if isinstance(value, Mapping):
                yield from leaves(value, f"{prefix}{key}.")
            else:
                plain = str(value) if isinstance(value, Path) else value
                text = yaml.safe_dump(plain, default_flow_style=True, width=1_000_000)
                text = text.removesuffix("...\n").strip()  # the end that YAML sets after a plain value
                yield f"{prefix}{key}={text}"

    try:
        return list(leaves(settings, ""))
    except yaml.YAMLError as error:
        raise UserError(f"a setting is a number, a text, a list or a section of these, not that: {error}.") from error
