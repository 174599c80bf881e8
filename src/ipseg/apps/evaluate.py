"""Evaluate a run again: other settings of inference, or other pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from ipseg.apps.model import finished_step, inference_recipe
from ipseg.data.folder import FolderConfig
from ipseg.data.source import Source
from ipseg.engine.experiment import measure, restore
from ipseg.engine.folder import RunFolder
from ipseg.engine.system import choose_device
from ipseg.engine.team import Team
from ipseg.errors import UserError
from ipseg.evaluation.results import StepResult
from ipseg.progress import silence
from ipseg.report.rows import percent


def evaluate_again(
    run: Path,
    step: int | None = None,
    assignments: Sequence[str] = (),
    data: Path | None = None,
    *,
    quiet: bool = False,
) -> StepResult:
    """Measure the model after a step. Nothing in the run's folder changes."""
    folder = RunFolder.open(run)
    recipe = inference_recipe(folder, assignments)
    device = choose_device(recipe.device)
    learned = folder.scenario(recipe)
    chosen = learned.steps[finished_step(folder, step)]
    source = recipe.source() if data is None else folder_source(data)
    missing = [name for name in chosen.seen if name not in source.classes]
    if missing and (data is not None or len(missing) == len(chosen.seen)):  # a grown run's own data may lack old ones
        raise UserError(
            f"the data has no class {', '.join(missing)}, which the model has learned. "
            f"Its classes: {', '.join(source.classes)}. Names in classes.txt must be those of the run."
        )
    scenario = replace(learned, data_classes=source.classes)  # mask values follow the data that is read now
    method = restore(recipe, folder, scenario, chosen.index, device)
    with silence(wanted=quiet):
        return measure(method, recipe, source, scenario, chosen, Team(device))


def folder_source(path: Path) -> Source:
    """A folder's validation pictures; all of its pictures where it has no val.txt. Measuring reads no maps."""
    return FolderConfig(path=str(path), saliency="none").measured()


def as_json(result: StepResult) -> dict[str, Any]:
    """The same layout as a step of results.json."""
    return vars(result) | {"new": list(result.new)}


def require_outside(out: Path, run: Path) -> None:
    """Raise if a file would be written into a run."""
    if out.resolve().is_relative_to(run.resolve()):
        raise UserError(f"--out {out} lies in the run, which evaluation leaves as it is. Choose another place.")
    if out.is_dir():
        raise UserError(f"--out {out} is a folder; name a file.")
    if not out.resolve().parent.is_dir():
        raise UserError(f"--out {out}: the folder {out.parent} is missing.")


def summary_table(result: StepResult) -> Table:
    """The mIoU of the groups, and how many pictures have exactly the classes that are said to be in them."""
    table = Table(box=box.SIMPLE_HEAD, caption=f"{result.images} pictures; in percent.", caption_justify="left")
    cells = []
    for group in ("base", "new", "all", "harmonic"):
        table.add_column(f"mIoU {group}", justify="right")
        cells.append(percent(result.miou.get(group)))
    for reading in ("posterior", "pixel", "both"):
        table.add_column(f"images right: {reading}", justify="right")
        cells.append(percent((result.image_accuracy or {}).get("all", {}).get(reading)))
    table.add_row(*cells)
    return table
