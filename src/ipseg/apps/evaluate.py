"""Evaluate a run again: with other settings of inference, or on other images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from ipseg.apps.run import Run
from ipseg.data.dataset import DatasetSplits
from ipseg.data.folder import FolderConfig
from ipseg.errors import UserError
from ipseg.evaluation.results import StepResult
from ipseg.progress import silence
from ipseg.report.compare import percent
from ipseg.scenario import BACKGROUND
from ipseg.training.distributed import DistributedContext
from ipseg.training.experiment import measure
from ipseg.training.system import choose_device


def evaluate_again(
    path: Path,
    step: int | None = None,
    assignments: Sequence[str] = (),
    data: Path | None = None,
    *,
    quiet: bool = False,
) -> StepResult:
    """Measure the model after a step, on the classes that the data annotates. Nothing in the run's folder changes."""
    run = Run.open(path, assignments)
    device = choose_device(run.recipe.device)
    chosen = run.step(step)
    splits, _ = evaluation_source(data, run)
    if not set(chosen.seen) & set(splits.classes):
        raise UserError(  # background without classes would be right everywhere
            f"the data annotates none of the classes that step {chosen.index} knows ({', '.join(chosen.seen)}). "
            f"Its classes: {', '.join(splits.classes)}. Name images with masks of the others: "
            "--data FOLDER, or for the data that the run began with --set data.path=FOLDER."
        )
    scenario = replace(run.scenario, data_classes=splits.classes)  # mask values follow the data that is read now
    with silence(wanted=quiet):
        method = replace(run, scenario=scenario).method(chosen, device)
        return measure(method, run.recipe, splits, scenario, chosen, DistributedContext(device))


def evaluation_source(data: Path | None, *runs: Run) -> tuple[DatasetSplits, bool]:
    """The images to measure on, and whether they are validation images of one of these runs.

    data: a folder; by default the first run's own data. Of a run's data only validation images are taken: it has
    learned from the others.
    """
    splits, own = _images_of(data, runs)
    order = runs[0].scenario.order
    if not set(order) & set(splits.classes):
        raise UserError(
            f"{data or 'the data'} has none of the classes {', '.join(order)}, which the run learns. "
            f"Its classes: {', '.join(splits.classes)}. Names in classes.txt must be those of the run."
        )
    return splits, own


def _images_of(data: Path | None, runs: Sequence[Run]) -> tuple[DatasetSplits, bool]:
    if data is None:
        return runs[0].recipe.splits(), True
    folder = FolderConfig(path=str(data), saliency="none")  # measuring reads no maps
    for recipe in (run.recipe for run in runs):
        own = getattr(recipe.data, "path", None)
        if own is None or Path(own).expanduser().resolve() != data.expanduser().resolve():
            continue
        listed = isinstance(recipe.data, FolderConfig) and (data.expanduser() / "val.txt").is_file()
        if listed and not recipe.evaluation.held_out:
            return folder.measured(), True  # the same images, without a look at those that may be gone
        return recipe.splits(), True
    return folder.measured(), False


def result_json(result: StepResult) -> dict[str, Any]:
    """The same layout as a step of results.json."""
    return vars(result) | {"new": list(result.new)}


def summary_table(result: StepResult) -> Table:
    """The mIoU of the groups, and the share of images whose set of classes is right."""
    table = Table(box=box.SIMPLE_HEAD, caption_justify="left")
    unmeasured = [name for name in result.iou if name not in result.measured and name != BACKGROUND]
    note = f"\nNot in their masks, so not measured: {', '.join(unmeasured)}." if unmeasured else ""
    table.caption = Text(f"{result.images} image{'' if result.images == 1 else 's'}; in percent.{note}")
    accuracy = (result.image_accuracy or {}).get("all", {})
    cells = {f"mIoU {group}": result.miou.get(group) for group in ("base", "new", "all", "harmonic")}
    cells |= {f"images right: {name}": accuracy.get(name) for name in ("posterior", "pixel", "both")}
    for column in cells:
        table.add_column(column, justify="right")
    table.add_row(*map(percent, cells.values()))
    return table
