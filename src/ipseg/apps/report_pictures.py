"""The pictures of a report: the same validation pictures after every step of every run, and what runs remember."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from ipseg.apps.model import as_tensor, inference_recipe
from ipseg.data.memory import ReplayMemory
from ipseg.data.memory_io import load_memory
from ipseg.data.source import EmptyDataset, Source, require_equal
from ipseg.engine.folder import RunFolder
from ipseg.engine.recipe import Recipe
from ipseg.engine.start import load, restore
from ipseg.engine.system import choose_device
from ipseg.errors import UserError
from ipseg.methods.base import Method
from ipseg.report.chapter import Gallery, Remembered, SceneRow
from ipseg.report.compare import Line
from ipseg.scenario.split import BACKGROUND, IGNORE, Scenario

SHOWN = 32
"""Remembered pictures on the page, of each run."""
LOOKED_AT = 12
"""Pictures of equal merit whose masks are opened to choose the clearest."""
Labels = NDArray[np.uint8]
Chosen = list[int]
Choose = Callable[[Source, Scenario], Chosen]
"""Which of the validation pictures are shown."""


class Shelf:
    """Data sets that were opened, each once; and the device that models look with."""

    def __init__(self, device: str = "auto") -> None:
        self.device = choose_device(device)
        self._sources: dict[str, Source | str] = {}

    def source(self, recipe: Recipe) -> Source | str:
        """The pictures of a recipe, its validation pictures those that it is measured on; or why they cannot be had."""
        key = repr((recipe.data, recipe.evaluation.held_out))
        if key not in self._sources:
            try:
                self._sources[key] = recipe.source()
            except (UserError, OSError) as error:
                self._sources[key] = f"the data cannot be opened ({_brief(error)})"
        return self._sources[key]


def gallery(
    lines: Sequence[Line], choose: Choose, shelf: Shelf, tell: Callable[[str], None]
) -> tuple[Gallery, list[str]]:
    """The same pictures after every step of every run; and what keeps runs out of it."""
    found = {line.shown: _open(line) for line in lines}
    missing = said_once("Pictures", {name: why for name, why in found.items() if isinstance(why, str)})
    opened = {name: one for name, one in found.items() if not isinstance(one, str)}
    if not opened:
        return Gallery(()), missing
    _, recipe, learned = next(iter(opened.values()))
    source = shelf.source(recipe)
    if isinstance(source, str):
        return Gallery(()), [*missing, f"Pictures: {source}."]
    scenario = replace(learned, data_classes=source.classes)  # mask values follow the data that is read now
    names, truth = (BACKGROUND, *scenario.order), scenario.evaluation_table(scenario.steps[-1])
    try:
        chosen = choose(source, scenario)
        images = [source.val.image(index) for index in chosen]
        truths = [truth[source.val.mask(index)] for index in chosen]
        for index, image, mask in zip(chosen, images, truths, strict=True):
            require_equal(source.val.names[index], image=image, mask=mask)
    except (UserError, OSError) as error:
        return Gallery(()), [*missing, f"Pictures: {_brief(error)}."]
    maps, unread = {}, {}
    for name, run in opened.items():
        tell(f"{name} labels {len(chosen)} pictures after every step")
        try:
            maps[name] = label_maps(*run, images, names, shelf)
        except (UserError, OSError) as error:  # weights that may not be read leave out no other run
            unread[name] = f"{_brief(error)}."
    scenes = [
        SceneRow(
            image,
            truths[place],
            {name: [after[place] for after in steps] for name, steps in maps.items()},
            source.val.names[chosen[place]],
        )
        for place, image in enumerate(images)
    ]
    missing += said_once("Pictures", unread)
    return Gallery(names, scenes, IGNORE if scenario.unseen == "ignore" else 0), missing


def said_once(what: str, reasons: Mapping[str, str]) -> list[str]:
    """What is missing of each run and why: a line a reason, however many runs have it.

    >>> said_once("Memory", {"mib": "it keeps no pictures.", "plop": "it keeps no pictures."})
    ['Memory of each of mib, plop: it keeps no pictures.']
    """
    runs: dict[str, list[str]] = {}
    for name, why in reasons.items():
        runs.setdefault(why, []).append(name)
    return [f"{what} of {'each of ' if names[1:] else ''}{', '.join(names)}: {why}" for why, names in runs.items()]


def _open(line: Line) -> tuple[RunFolder, Recipe, Scenario] | str:
    """The first seed's run as it can be looked with, or why it cannot."""
    path = line.entries[0].folder
    if path is None:
        return "there are only its results, not its folder."
    try:
        folder = RunFolder.open(path)
        recipe = inference_recipe(folder)
        scenario = folder.scenario(recipe)
    except (UserError, KeyError, TypeError) as error:
        return f"its folder cannot be read ({_brief(error)})."
    files = [folder.step(step) / "weights.safetensors" for step in range(folder.finished())]
    if not files or not all(file.is_file() for file in files):
        return "its weights are not there."
    return folder, recipe, scenario


def label_maps(
    folder: RunFolder,
    recipe: Recipe,
    scenario: Scenario,
    images: Sequence[NDArray[np.uint8]],
    names: Sequence[str],
    shelf: Shelf,
) -> list[list[Labels]]:
    """For each finished step, the labels of the pictures as indices into the names."""
    maps, method = [], restore(recipe, folder, scenario, 0, shelf.device)
    for step in scenario.steps[: folder.finished()]:
        if step.index:  # a network is built once, and grows
            method.begin_step(step)
            load(method, folder, step.index)
        # a run may have learned the same classes in another order
        known = [0, *(names.index(name) if name in names else 0 for name in step.seen)]
        maps.append([np.array(known, dtype=np.uint8)[found] for found in _labels(method, images, shelf.device)])
    return maps


def _labels(method: Method, images: Sequence[NDArray[np.uint8]], device: torch.device) -> list[Labels]:
    """Of every picture; those of one size together."""
    found: dict[int, Labels] = {}
    for size in {image.shape for image in images}:
        places = [place for place, image in enumerate(images) if image.shape == size]
        labels = method.predict(torch.cat([as_tensor(images[place], device) for place in places])).labels
        found |= dict(zip(places, labels.byte().cpu().numpy(), strict=True))
    return [found[place] for place in range(len(images))]


def varied(source: Source, scenario: Scenario, *, pictures: int) -> Chosen:
    """Pictures that together show many classes, best two or three in each."""
    wanted = {value for value, name in enumerate(source.classes, start=1) if name in scenario.order}
    presence = [present & wanted for present in source.val.presence()]
    chosen: Chosen = []
    shown = dict.fromkeys(wanted, 0)
    for _ in range(min(pictures, len(presence))):
        rest = [index for index in range(len(presence)) if index not in chosen]
        most = max(_appeal(presence[index], shown) for index in rest)
        alike = [index for index in rest if _appeal(presence[index], shown) == most][:LOOKED_AT]
        best = max(alike, key=lambda index: _clarity(source.val.mask(index), presence[index]))
        chosen.append(best)
        for value in presence[best]:
            shown[value] += 1
    return chosen


def _appeal(present: frozenset[int], shown: dict[int, int]) -> float:
    """Classes that were rarely shown count most; many in one picture are hard to look at."""
    return sum(2.0 ** -shown[value] for value in present) - 2 * max(0, len(present) - 3)


def _clarity(mask: Labels, present: frozenset[int]) -> float:
    """The smallest class's share of the picture: a speck tells little."""
    return min((float((mask == value).mean()) for value in present), default=0.0)


# ---- memory ---------------------------------------------------------------------------------------------------------


def memory(line: Line, shelf: Shelf, *, pictures: bool) -> Remembered | str:
    """What the first seed's run remembers after its last step, or why there is nothing to show.

    Without pictures it is counts alone, whatever copies lie there.
    """
    path = line.entries[0].folder
    if path is None:
        return "there are only its results, not its folder."
    folder = RunFolder(path)
    place = folder.step(folder.finished() - 1) / "memory"
    if not (place / "manifest.json").is_file():
        return "it was deleted, or left out of a pack."
    try:
        kept = load_memory(place, EmptyDataset())
    except UserError as error:
        return f"it cannot be read ({_brief(error)})."
    if not len(kept):
        return "it keeps no pictures."
    counts = {name: sum(name in entry.classes for entry in kept.entries) for name in kept.order}
    if not pictures:
        return Remembered(
            pictures=len(kept), classes=counts, note="The pictures are not shown: --gallery 0 asks for none."
        )
    source: Source | str
    try:
        source = shelf.source(inference_recipe(RunFolder.open(path)))
    except UserError as error:
        source = _brief(error)
    if not isinstance(source, str):
        kept = load_memory(place, source.train)
    shown = _pictures(kept, has_data=not isinstance(source, str))
    note = "" if len(shown) == len(kept) else _note(len(shown), len(kept), source)
    return Remembered(pictures=len(kept), classes=counts, shown=shown, note=note)


def _pictures(kept: ReplayMemory, *, has_data: bool) -> list[tuple[str, NDArray[np.uint8]]]:
    """Some of the pictures that can be had, evenly over the memory."""
    only_in_data = set(kept.without_copy())
    there = [i for i, entry in enumerate(kept.entries) if has_data or entry.name not in only_in_data]
    shown = []
    for index in there[:: -(-len(there) // SHOWN) or 1]:
        entry = kept.entries[index]
        try:
            image = kept.sample(index).image
        except (UserError, OSError):
            continue  # the data has changed since; others may still be there
        shown.append((f"{entry.name}: {', '.join(entry.classes) or 'no class'}", image))
    return shown


def _note(shown: int, kept: int, source: Source | str) -> str:
    if shown:
        return f"{shown} of {kept} pictures are shown."
    return f"The pictures are not shown: {source}." if isinstance(source, str) else "The pictures are not in the data."


def _brief(error: Exception) -> str:
    """The first line of what went wrong; an error of data shows a whole tree below it."""
    return str(error).partition("\n")[0].removesuffix("Expected:").rstrip(" .:")
