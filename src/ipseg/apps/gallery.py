"""The gallery of a report: predictions of several runs on the same validation images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from ipseg.apps.model import as_tensor
from ipseg.apps.run import inference_recipe
from ipseg.data.dataset import DatasetSplits, require_same_size
from ipseg.errors import UserError
from ipseg.report.compare import Run, TableRow
from ipseg.report.page import Gallery, GalleryImage
from ipseg.scenario import BACKGROUND, IGNORE, Scenario
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import Recipe
from ipseg.training.setup import load, restore

MOST_STEPS = 4
"""Steps whose predictions are shown: the first, the last and between them, so that images stay wide."""
Labels = NDArray[np.uint8]


def make_gallery(
    rows: Sequence[TableRow], count: int, device: torch.device, say: Callable[[str], None]
) -> tuple[Gallery, dict[str, str]]:
    """Predictions of the first seed of every row on the same images; and why a row has none."""
    runs, missing = {}, {}
    for row in rows:
        try:
            runs[row.label] = _open(row.runs[0])
        except (UserError, OSError, KeyError, TypeError) as error:
            missing[row.label] = f"{_first_line(error)}."
    if not runs:
        return Gallery(), missing
    _, recipe, learned = next(iter(runs.values()))
    try:
        splits = recipe.splits()  # its validation split is the one that the run is measured on
        scenario = replace(learned, data_classes=splits.classes)  # mask values follow the data that is read now
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
        say(f"{label} predicts {len(chosen)} images")
        try:
            predictions[label] = _predict(*run, images, names, device)
        except (UserError, OSError) as error:  # damaged weights leave out no other run
            missing[label] = f"{_first_line(error)}."
    shown = []
    for place, index in enumerate(chosen):
        found = {label: {step: maps[place] for step, maps in steps.items()} for label, steps in predictions.items()}
        shown.append(GalleryImage(splits.val.names[index], images[place], truths[place], found))
    return Gallery(names, shown, IGNORE if scenario.unseen == "ignore" else 0), missing


def _open(run: Run) -> tuple[RunFolder, Recipe, Scenario]:
    if run.folder is None:
        raise UserError("there are only its results, not its folder.")
    folder = RunFolder.open(run.folder)
    recipe = inference_recipe(folder)
    files = [folder.step(step) / "weights.safetensors" for step in range(folder.finished())]
    if not files or not all(file.is_file() for file in files):
        raise UserError("its weights are not there.")
    return folder, recipe, folder.scenario(recipe)


def _predict(
    folder: RunFolder,
    recipe: Recipe,
    scenario: Scenario,
    images: Sequence[NDArray[np.uint8]],
    names: Sequence[str],
    device: torch.device,
) -> dict[int, list[Labels]]:
    """Step -> the labels of the images as indices into the names, for at most MOST_STEPS steps."""
    finished = folder.finished()
    shown = {round(place) for place in np.linspace(0, finished - 1, min(MOST_STEPS, finished))}
    method, found = restore(recipe, folder, scenario, 0, device), {}
    for step in scenario.steps[:finished]:
        if step.index:  # the network is built once, and grows
            method.begin_step(step)
        if step.index in shown:
            load(method, folder, step.index)
            # another run may have learned the same classes in another order
            table = [0, *(names.index(name) if name in names else 0 for name in step.seen)]
            labels = [method.predict(as_tensor(image, device)).labels[0].cpu().numpy() for image in images]
            found[step.index] = [np.array(table, dtype=np.uint8)[one] for one in labels]
    return found


def spread_over_data(splits: DatasetSplits, scenario: Scenario, count: int) -> list[int]:
    """An image of each of `count` equal parts of the split, for neighbors may be frames of one video.

    In each part the one with the classes that were shown least, by its annotation alone; of equal ones the one whose
    smallest class is largest.
    """
    wanted = {value for value, name in enumerate(splits.classes, start=1) if name in scenario.order}
    presence = [present & wanted for present in splits.val.class_presence()]
    chosen: list[int] = []
    shown: Counter[int] = Counter()

    def appeal(index: int) -> float:
        crowded = max(0, len(presence[index]) - 3)  # many classes in one image are hard to look at
        return sum(2.0 ** -shown[value] for value in presence[index]) - 2 * crowded

    def clarity(index: int) -> float:
        mask = splits.val.mask(index)
        return min((float((mask == value).mean()) for value in presence[index]), default=0.0)

    for part in np.array_split(np.arange(len(presence)), min(count, len(presence)) or 1):
        most = max(map(appeal, part.tolist()), default=0)
        alike = [index for index in part.tolist() if appeal(index) == most][:12]  # their masks are read
        chosen += [max(alike, key=clarity)] if alike else []
        shown.update(presence[chosen[-1]] if alike else ())
    return chosen


def _first_line(error: Exception) -> str:
    """An error of data lists a whole tree below its first line."""
    return str(error).partition("\n")[0].removesuffix("Expected:").rstrip(" .:")
