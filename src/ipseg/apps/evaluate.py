"""Evaluate a run again: other settings of inference, or other pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from ipseg.apps.model import finished_step, inference_recipe, require_outside
from ipseg.data.dataset import DatasetSplits
from ipseg.data.folder import FolderConfig
from ipseg.errors import UserError
from ipseg.evaluation.results import BACKGROUND, StepResult
from ipseg.progress import silence
from ipseg.report.compare import percent
from ipseg.training.distributed import DistributedContext
from ipseg.training.experiment import measure
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import Recipe
from ipseg.training.setup import restore
from ipseg.training.system import choose_device


def evaluate_again(
    run: Path,
    step: int | None = None,
    assignments: Sequence[str] = (),
    data: Path | None = None,
    *,
    quiet: bool = False,
) -> StepResult:
    """Measure the model after a step, on the classes that the data annotates. Nothing in the run's folder changes."""
    folder = RunFolder.open(run)
    recipe = inference_recipe(folder, assignments)
    device = choose_device(recipe.device)
    learned = folder.scenario(recipe)
    chosen = learned.steps[finished_step(folder, step)]
    splits = recipe.splits() if data is None else pictures_of(data, recipe)[0]
    if not set(learned.order) & set(splits.classes):
        raise UserError(
            f"the data has none of the classes {', '.join(learned.order)}, which the run learns. "
            f"Its classes: {', '.join(splits.classes)}. Names in classes.txt must be those of the run."
        )
    scenario = replace(learned, data_classes=splits.classes)  # mask values follow the data that is read now
    if not set(chosen.seen) & set(splits.classes):
        raise UserError(  # background without classes would be right everywhere
            f"the data annotates none of the classes that step {chosen.index} knows ({', '.join(chosen.seen)}). "
            f"Its classes: {', '.join(splits.classes)}. Name pictures with masks of the others: "
            "--data FOLDER, or for the data that the run began with --set data.path=FOLDER."
        )
    method = restore(recipe, folder, scenario, chosen.index, device)
    with silence(wanted=quiet):
        return measure(method, recipe, splits, scenario, chosen, DistributedContext(device))


def pictures_of(path: Path, *recipes: Recipe) -> tuple[DatasetSplits, bool]:
    """A folder's pictures to measure on, and whether they are validation pictures of one of these runs.

    Of a run's own data these alone: the others it has learned from.
    """
    for recipe in recipes:
        own = getattr(recipe.data, "path", None)
        if own is None or Path(own).expanduser().resolve() != path.expanduser().resolve():
            continue
        listed = isinstance(recipe.data, FolderConfig) and (path.expanduser() / "val.txt").is_file()
        if listed and not recipe.evaluation.held_out:
            return folder_source(path), True  # the same pictures, without a look at those that may be gone
        return recipe.splits(), True
    return folder_source(path), False


def folder_source(path: Path) -> DatasetSplits:
    """The pictures of a folder's val.txt; all of its pictures where it has none. Measuring reads no maps."""
    return FolderConfig(path=str(path), saliency="none").measured()


def as_json(result: StepResult) -> dict[str, Any]:
    """The same layout as a step of results.json."""
    return vars(result) | {"new": list(result.new)}


def require_place(out: Path, run: Path) -> None:
    """Raise if the measurements cannot be written there."""
    require_outside(out, run)
    if out.is_dir():
        raise UserError(f"--out {out} is a folder; name a file.")
    if not out.resolve().parent.is_dir():
        raise UserError(f"--out {out}: the folder {out.parent} is missing.")


def summary_table(result: StepResult) -> Table:
    """The mIoU of the groups, and how many pictures have exactly the classes that are said to be in them."""
    table = Table(box=box.SIMPLE_HEAD, caption_justify="left")
    unknown = [name for name in result.iou if name not in result.measured and name != BACKGROUND]
    told = f"\nNot in their masks, so not measured: {', '.join(unknown)}." if unknown else ""
    table.caption = Text(f"{result.images} picture{'' if result.images == 1 else 's'}; in percent.{told}")
    cells = []
    for group in ("base", "new", "all", "harmonic"):
        table.add_column(f"mIoU {group}", justify="right")
        cells.append(percent(result.miou.get(group)))
    for reading in ("posterior", "pixel", "both"):
        table.add_column(f"images right: {reading}", justify="right")
        cells.append(percent((result.image_accuracy or {}).get("all", {}).get(reading)))
    table.add_row(*cells)
    return table
