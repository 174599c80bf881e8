"""Is a data set whole, and what is in it? Every file is read; all that is wrong is listed, not only the first of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, cast, get_args

import numpy as np

from ipseg.config import override
from ipseg.data.filed import FileSplit, in_both, require_exists, some, without_mask
from ipseg.data.index import MaskFacts, mask_facts
from ipseg.data.masks import UnknownValueError
from ipseg.data.parallel import on_all_cores
from ipseg.data.pictures import read_image, read_salient
from ipseg.data.registry import data_config
from ipseg.data.source import Source, unequal
from ipseg.errors import UserError
from ipseg.scenario.split import Scenario, ScenarioConfig, Setting

Kind = Literal["missing", "unreadable", "size_mismatches", "unknown_values", "in_both_splits"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with one picture."""

    kind: Kind
    text: str


Size = tuple[int, int]
"""Height and width."""
Outcome = Size | Problem | None
"""A file that was read, one that is wrong, and one that need not be there."""


@dataclass(frozen=True)
class SplitFindings:
    """What is in the files of a split."""

    pictures: int
    """Names."""
    images: int
    """Files that are there, whole or not; the same for the next two."""
    masks: int
    saliency_maps: int
    presence: tuple[frozenset[int], ...]
    """The classes in each mask that could be read."""
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class Findings:
    """What is in a data set."""

    path: Path
    format: str
    classes: tuple[str, ...]
    splits: dict[str, SplitFindings]
    """train and val."""
    scenario: Scenario | None
    in_both: tuple[Problem, ...]
    """Pictures of both splits."""
    without_mask: tuple[str, ...]
    """Images that are left out."""

    def problems(self, kind: Kind) -> list[str]:
        """All of a kind, of the training pictures first."""
        every = [found for split in self.splits.values() for found in split.problems]
        return [found.text for found in (*every, *self.in_both) if found.kind == kind]

    def total(self, what: Literal["images", "masks", "saliency_maps"]) -> int:
        """Files of both splits."""
        return sum(getattr(split, what) for split in self.splits.values())

    def images_per_step(self) -> list[int] | None:
        """How many training pictures each step of the scenario has; none without a scenario."""
        return self.scenario.images_per_step(self.splits["train"].presence) if self.scenario else None

    def classes_per_image(self, split: str) -> dict[int, int]:
        """How many of a split's pictures hold no class, one class, two classes ..."""
        return dict(sorted(Counter(len(found) for found in self.splits[split].presence).items()))

    def images_per_class(self, split: str) -> dict[str, int]:
        """How many of a split's pictures hold each class."""
        counts = Counter(value for found in self.splits[split].presence for value in found)
        return {name: counts[value] for value, name in enumerate(self.classes, start=1)}

    def notes(self) -> list[str]:
        """What is no mistake in itself, but stands in the way of training."""
        said = []
        if not self.total("images"):
            said.append("no images: masks alone were looked at")
        said += [f"the split {name} is empty" for name, split in self.splits.items() if not split.pictures]
        if self.without_mask:
            said.append(f"images without a mask are left out: {len(self.without_mask)} ({some(self.without_mask)})")
        for name, absent in self._absent().items():
            said.append(f"no picture of the split {name} holds {some(absent)}")
        if not self.total("saliency_maps"):
            said.append("no saliency maps; `ipseg saliency` makes them")
        empty = [str(index) for index, count in enumerate(self.images_per_step() or ()) if not count]
        if empty:
            said.append(f"no training picture for step {', '.join(empty)}")
        return said

    def _absent(self) -> dict[str, list[str]]:
        """The classes, of the scenario if there is one, that no picture of a split holds."""
        wanted = self.scenario.order if self.scenario else self.classes
        counts = {name: self.images_per_class(name) for name, split in self.splits.items() if split.pictures}
        absent = {name: [one for one in wanted if not count[one]] for name, count in counts.items()}
        return {name: classes for name, classes in absent.items() if classes}


class OnFiles(Protocol):
    """Settings of a data set that lies in files."""

    path: str

    def open(self) -> Source:
        """Open it, also where pictures are missing."""
        ...


def check(
    path: Path, kind: str, scenario: str | None = None, setting: Setting = "overlap", changes: Sequence[str] = ()
) -> Findings:
    """Open a data set of a format and look at every file. Raises where the tree is wrong."""
    for change in changes:
        if not change.strip().startswith("data."):
            raise UserError(f"--set {change}: settings here are data.*, such as data.val=val.")
        if change.partition("=")[0].strip() in ("data.path", "data.name"):
            raise UserError(f"--set {change}: the folder is the command's argument, and its kind --format.")
    settings: dict[str, Any] = {"data": {"name": kind, "path": str(path)}}
    data = cast(OnFiles, data_config(override(settings, changes)["data"]))
    root = Path(data.path).expanduser()
    require_exists(root)
    source = data.open()
    planned = ScenarioConfig(name=scenario, setting=setting).build(source.name, source.classes) if scenario else None
    splits = {name: cast(FileSplit, source.split(name)) for name in ("train", "val")}
    with_images = any(_has_images(split) for split in splits.values())
    found = {
        name: _look_at(split, with_images=with_images, maps_needed=name == "train") for name, split in splits.items()
    }
    twice = [
        Problem("in_both_splits", f"{name} is in train and in val; what is learned from must not be measured on.")
        for name in in_both(splits["train"], splits["val"])
    ]
    # VOC has thousands of images for other tasks, and lists that say which are meant
    alone = [] if kind == "voc" else [image.relative_to(root).as_posix() for image in without_mask(*splits.values())]
    return Findings(path, kind, tuple(source.classes), found, planned, tuple(twice), tuple(alone))


def _has_images(split: FileSplit) -> bool:
    return any(not isinstance(_path(split.image_path, index), Problem) for index in range(len(split.names)))


def _look_at(split: FileSplit, *, with_images: bool, maps_needed: bool) -> SplitFindings:
    """Look at each picture's image (unless masks alone are there), mask and saliency map."""
    every = range(len(split.names))
    masks, facts = _look_at_masks(split)
    pictures = [_path(split.image_path, index) if with_images else None for index in every]
    images = _sizes(pictures, read_image, "looking at images")
    salient = [_path(partial(_map_path, split, needed=maps_needed), index) for index in every]
    maps = _sizes(salient, read_salient, "looking at saliency maps")
    return SplitFindings(
        pictures=len(split.names),
        images=_there(images),
        masks=_there(masks),
        saliency_maps=_there(maps),
        presence=tuple(one.values for one in facts),
        problems=tuple(
            problem
            for name, *outcomes in zip(split.names, images, masks, maps, strict=True)
            for problem in _problems(name, *outcomes)
        ),
    )


def _look_at_masks(split: FileSplit) -> tuple[list[Outcome], list[MaskFacts]]:
    """Through the index: a mask that it knows is not read again, and training finds what was read here."""
    paths = [_path(split.mask_path, index) for index in range(len(split.names))]
    found = iter(mask_facts([path for path in paths if isinstance(path, Path)], split.read_mask))
    looked = [next(found) if isinstance(path, Path) else path for path in paths]
    outcomes = [
        one.size if isinstance(one, MaskFacts) else _wrong(one) if isinstance(one, UserError) else one for one in looked
    ]
    return outcomes, [one for one in looked if isinstance(one, MaskFacts)]


def _map_path(split: FileSplit, index: int, *, needed: bool) -> Path | None:
    """Maps that are there are looked at; only those that a step learns from can be missing."""
    name, maps = split.names[index], split.maps
    return maps.files.path(name) if needed and maps.way == "given" else maps.files.paths.get(name)


def _path(path_of: Callable[[int], Path | None], index: int) -> Path | Problem | None:
    try:
        return path_of(index)
    except UserError as error:
        return Problem("missing", str(error))


def _sizes(paths: Sequence[Path | Problem | None], read: Callable[[Path], np.ndarray], title: str) -> list[Outcome]:
    found = iter(on_all_cores(partial(_size, read), [path for path in paths if isinstance(path, Path)], title))
    return [next(found) if isinstance(path, Path) else path for path in paths]


def _size(read: Callable[[Path], np.ndarray], path: Path) -> Outcome:
    """Read the whole file: one that is cut off still says its size at the beginning."""
    try:
        height, width = read(path).shape[:2]
    except UserError as error:
        return _wrong(error)
    return height, width


def _wrong(error: UserError) -> Problem:
    return Problem("unknown_values" if isinstance(error, UnknownValueError) else "unreadable", str(error))


def _there(outcomes: Sequence[Outcome]) -> int:
    return sum(not (one is None or (isinstance(one, Problem) and one.kind == "missing")) for one in outcomes)


def _problems(name: str, image: Outcome, mask: Outcome, salient: Outcome) -> list[Problem]:
    """Of one picture."""
    named = {"image": image, "mask": mask, "saliency map": salient}
    sizes = {what: one for what, one in named.items() if isinstance(one, tuple)}
    found = [one for one in named.values() if isinstance(one, Problem)]
    said = unequal(name, sizes)
    if said:
        found.append(Problem("size_mismatches", said))
    return found
