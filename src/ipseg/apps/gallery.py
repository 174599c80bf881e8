"""The gallery of a report: predictions of several runs on the same validation images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ipseg.apps.model import as_tensor
from ipseg.apps.run import Run
from ipseg.data.dataset import DatasetSplits, require_same_size
from ipseg.errors import UserError
from ipseg.report.compare import TableRow
from ipseg.report.page import Gallery, GalleryImage
from ipseg.scenario import BACKGROUND, IGNORE, Scenario

MAX_STEPS = 4
"""Steps with predictions: the first, the last and some between, so that images stay wide."""
Labels = NDArray[np.uint8]


def make_gallery(
    rows: Sequence[TableRow], count: int, device: torch.device, log: Callable[[str], None]
) -> tuple[Gallery, dict[str, str]]:
    """Predictions of the first seed of every row on the same images; and why a row has none."""
    runs: dict[str, Run] = {}
    missing: dict[str, str] = {}
    for row in rows:
        try:
            runs[row.label] = _open(row.runs[0].folder)
        except (UserError, OSError, KeyError, TypeError) as error:
            missing[row.label] = f"{_first_line(error)}."
    if not runs:
        return Gallery(), missing
    try:
        run = next(iter(runs.values()))
        splits = run.recipe.splits()
        scenario = run.with_classes_of(splits).scenario
        table = scenario.evaluation_table(scenario.steps[-1])
        chosen = spread_over_data(splits, scenario, count)
        images = [splits.val.image(index) for index in chosen]
        truths = [table[splits.val.mask(index)] for index in chosen]
        for index, image, truth in zip(chosen, images, truths, strict=True):
            require_same_size(splits.val.names[index], image=image.shape, mask=truth.shape)
    except (UserError, OSError) as error:
        return Gallery(), missing | dict.fromkeys(runs, f"the data cannot be read ({_first_line(error)}).")
    names, predictions = (BACKGROUND, *scenario.order), {}
    for label, run in runs.items():
        log(f"{label} predicts {len(chosen)} images")
        try:
            predictions[label] = _predict(run, images, names, device)
        except (UserError, OSError) as error:  # damaged weights leave out no other run
            missing[label] = f"{_first_line(error)}."
    gallery = []
    for place, index in enumerate(chosen):
        maps = {label: {step: found[place] for step, found in steps.items()} for label, steps in predictions.items()}
        gallery.append(GalleryImage(splits.val.names[index], images[place], truths[place], maps))
    return Gallery(names, gallery, IGNORE if scenario.unseen == "ignore" else 0), missing


def _open(folder: Path | None) -> Run:
    if folder is None:
        raise UserError("there are only its results, not its folder.")
    run = Run.open(folder)
    files = [run.folder.step(step) / "weights.safetensors" for step in range(run.folder.finished())]
    if not files or not all(file.is_file() for file in files):
        raise UserError("its weights are not there.")
    return run


def _predict(
    run: Run, images: Sequence[NDArray[np.uint8]], names: Sequence[str], device: torch.device
) -> dict[int, list[Labels]]:
    """Step -> the labels of the images as indices into the names, for at most MAX_STEPS steps."""
    last = run.folder.finished() - 1
    places = sorted({round(place) for place in np.linspace(0, last, min(MAX_STEPS, last + 1))})
    found = {}
    for step, method in run.methods([run.scenario.steps[place] for place in places], device):
        # another run may have learned the same classes in another order
        table = np.array([0, *(names.index(name) if name in names else 0 for name in step.seen)], dtype=np.uint8)
        labels = [method.predict(as_tensor(image, device)).labels[0].cpu().numpy() for image in images]
        found[step.index] = [table[one] for one in labels]
    return found


def spread_over_data(splits: DatasetSplits, scenario: Scenario, count: int) -> list[int]:
    """An image of each of `count` equal parts of the split, for neighbors may be frames of one video.

    In each part the one whose classes were chosen least, by its annotation alone; of equal ones the one whose smallest
    class is largest.
    """
    wanted = {value for value, name in enumerate(splits.classes, start=1) if name in scenario.order}
    presence = [present & wanted for present in splits.val.class_presence()]
    chosen: list[int] = []
    used: Counter[int] = Counter()

    def appeal(index: int) -> float:
        crowded = max(0, len(presence[index]) - 3)  # an image of many classes is hard to read
        return sum(2.0 ** -used[value] for value in presence[index]) - 2 * crowded

    def clarity(index: int) -> float:
        mask = splits.val.mask(index)
        return min((float((mask == value).mean()) for value in presence[index]), default=0.0)

    for part in np.array_split(np.arange(len(presence)), min(count, len(presence)) or 1):
        most = max(map(appeal, part.tolist()), default=0)
        alike = [index for index in part.tolist() if appeal(index) == most][:12]  # their masks are read
        chosen += [max(alike, key=clarity)] if alike else []
        used.update(presence[chosen[-1]] if alike else ())
    return chosen


def _first_line(error: Exception) -> str:
    """An error of data lists a whole tree below its first line."""
    return str(error).partition("\n")[0].removesuffix("Expected:").rstrip(" .:")
