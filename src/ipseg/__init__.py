"""Teach a segmentation network new classes, step after step, without forgetting the old ones.

>>> import ipseg
>>> result = ipseg.train("scenes_6-2_ipseg", "runs/mine")  # doctest: +SKIP
>>> ipseg.load("runs/mine").predict("photo.jpg").present  # doctest: +SKIP
('cow', 'bus')
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipseg.errors import UserError
from ipseg.own_code import code_allowed

if TYPE_CHECKING:  # torch is imported when it is needed, so that `import ipseg` and `ipseg --help` are quick
    from ipseg.apps.export import Check
    from ipseg.apps.model import Model
    from ipseg.evaluation.results import RunResult
    from ipseg.training.recipe import Recipe

__version__ = "0.1.0"
__all__ = ["UserError", "__version__", "export", "extend", "load", "train"]


def train(
    recipe: Recipe | str | Path | Mapping[str, Any],
    out: Path | str | None = None,
    *,
    resume: bool = False,
    device: str | None = None,
    set: Sequence[str] = (),  # noqa: A002 - as the command's option
    quiet: bool = False,
    allow_code: bool = False,
) -> RunResult:
    """Train every step of a recipe: its file, its name, its settings, or a `Recipe`.

    out: the run's folder; by default runs/NAME. resume: resume an interrupted run. device: by default the recipe's.
    set: changes such as "method.alpha_nf=0.6". quiet: no progress. allow_code: run code that a run's folder names, see
    `load`.
    """
    from ipseg.apps.train import default_folder, resolve
    from ipseg.training.experiment import run

    with code_allowed(wanted=allow_code):
        made = resolve(recipe, _changes(set, device))
        return run(made, Path(out) if out else default_folder(recipe, made), resume=resume, quiet=quiet)


def extend(
    run: Path | str,
    data: Path | str,
    classes: Sequence[str],
    out: Path | str,
    *,
    val: Path | str | None = None,
    resume: bool = False,
    device: str | None = None,
    set: Sequence[str] = (),  # noqa: A002 - as the command's option
    quiet: bool = False,
    allow_code: bool = False,
) -> dict[str, Any]:
    """Add classes to a finished run, from a folder of images with masks of them, in a run of its own.

    val: a folder with masks to measure on. device: by default the run's. set: changes such as
    "training.later_epochs=5". allow_code: see `load`. Returns the content of extend.json: the old classes before and
    after, and how good the new ones are.
    """
    from ipseg.apps import extend as extending

    with code_allowed(wanted=allow_code):
        return extending.extend(
            Path(run),
            Path(data),
            _as_list(classes),
            Path(out),
            val=None if val is None else Path(val),
            assignments=_changes(set, device),
            resume=resume,
            quiet=quiet,
        )


def load(
    run: Path | str,
    step: int | None = None,
    device: str = "auto",
    *,
    set: Sequence[str] = (),  # noqa: A002 - as the command's option
    allow_code: bool = False,
) -> Model:
    """Load the model of a run after a step; by default after the last finished one.

    set: other inference settings, such as "method.alpha_nf=1". allow_code: a run whose method or data set is
    not one of this package (`module:Class`) is refused without it, for its code can do whatever you can.
    """
    from ipseg.apps.run import Run

    with code_allowed(wanted=allow_code):
        return Run.open(run, _changes(set)).model(step, device)


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


def _changes(given: Sequence[str], device: str | None = None) -> list[str]:
    """`key=value` changes; one may be given without a list around it."""
    changes = _as_list(given)
    return changes if device is None else [*changes, f"device={device}"]


def _as_list(given: Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)
