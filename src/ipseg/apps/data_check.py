"""Is a data set whole, and what is in it? Every file is read; all that is wrong is listed, not only the first of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, cast

import numpy as np
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ipseg.config import override
from ipseg.data.dataset import PROBLEM_KINDS, DataError, DatasetSplits, ProblemKind, require_same_sizes
from ipseg.data.file_dataset import FileDataset, in_both, require_exists, truncate, without_mask
from ipseg.data.image_io import read_image, read_salient
from ipseg.data.mask_index import MaskInfo, scan_masks
from ipseg.data.parallel import parallel_map
from ipseg.data.registry import data_config
from ipseg.errors import UserError
from ipseg.scenario.split import Scenario, ScenarioConfig, Setting

FIRST = 10
"""Problems of a kind that a person is shown; a program gets all."""
Size = tuple[int, int]
"""Height and width."""
T = TypeVar("T")


@dataclass(frozen=True)
class SplitFindings:
    """What is in the files of a split."""

    pictures: int
    """Names."""
    images: int
    """Files that are there, whole or not; the same for the next two."""
    masks: int
    saliency_maps: int
    class_presence: tuple[frozenset[int], ...]
    """The classes in each mask that could be read."""
    errors: tuple[UserError, ...]


@dataclass(frozen=True)
class Findings:
    """What is in a data set."""

    path: Path
    format: str
    classes: tuple[str, ...]
    splits: dict[str, SplitFindings]
    """train and val."""
    scenario: Scenario | None
    in_both: tuple[DataError, ...]
    without_mask: tuple[str, ...]
    """Images that are left out."""

    def problems(self, kind: ProblemKind) -> list[str]:
        """All of a kind, of the training pictures first."""
        every = [*chain.from_iterable(split.errors for split in self.splits.values()), *self.in_both]
        return [str(error) for error in every if _kind(error) == kind]

    def total(self, what: Literal["images", "masks", "saliency_maps"]) -> int:
        """Files of both splits."""
        return sum(getattr(split, what) for split in self.splits.values())

    def images_per_step(self) -> list[int] | None:
        """How many training pictures each step of the scenario has; none without a scenario."""
        return self.scenario.images_per_step(self.splits["train"].class_presence) if self.scenario else None

    def classes_per_image(self, split: str) -> dict[int, int]:
        """How many of a split's pictures hold no class, one class, two classes ..."""
        return dict(sorted(Counter(len(found) for found in self.splits[split].class_presence).items()))

    def images_per_class(self, split: str) -> dict[str, int]:
        """How many of a split's pictures hold each class."""
        counts = Counter(value for found in self.splits[split].class_presence for value in found)
        return {name: counts[value] for value, name in enumerate(self.classes, start=1)}

    def notes(self) -> list[str]:
        """What is no mistake in itself, but stands in the way of training."""
        said = []
        if not self.total("images"):
            said.append("no images: masks alone were looked at")
        said += [f"the split {name} is empty" for name, split in self.splits.items() if not split.pictures]
        if self.without_mask:
            said.append(f"images without a mask are left out: {len(self.without_mask)} ({truncate(self.without_mask)})")
        for name, absent in self._absent().items():
            said.append(f"no picture of the split {name} holds {truncate(absent)}")
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

    def open(self) -> DatasetSplits:
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
    opened = data.open()
    planned = ScenarioConfig(name=scenario, setting=setting).build(opened.name, opened.classes) if scenario else None
    splits = {name: cast(FileDataset, opened.split(name)) for name in ("train", "val")}
    with_images = any(name in split.images.paths for split in splits.values() for name in split.names)
    found = {
        name: _look_at(split, with_images=with_images, maps_needed=name == "train") for name, split in splits.items()
    }
    # VOC has thousands of images for other tasks, and lists that say which are meant
    alone = [] if kind == "voc" else [image.relative_to(root).as_posix() for image in without_mask(*splits.values())]
    both = tuple(in_both(splits["train"], splits["val"]))
    return Findings(path, kind, tuple(opened.classes), found, planned, both, tuple(alone))


def _look_at(split: FileDataset, *, with_images: bool, maps_needed: bool) -> SplitFindings:
    """Read every image (unless masks alone are there), mask and saliency map."""
    maps = split.saliency_source.files
    needed = maps_needed and split.saliency_source.mode == "given"  # others that are there are looked at, too
    image_path = split.images.path if with_images else lambda _: None
    images = _read_each(split.names, image_path, partial(_sizes, read_image, "looking at images"))
    salient = partial(_sizes, read_salient, "looking at saliency maps")
    found_maps = _read_each(split.names, maps.path if needed else maps.paths.get, salient)
    # Through the index: a mask that it knows is not read again, and training finds what was read here.
    facts = _read_each(split.names, split.masks.path, lambda paths: scan_masks(paths, split.read_mask))
    masks = [one.size if isinstance(one, MaskInfo) else one for one in facts]
    errors: list[UserError] = []
    for name, *outcomes in zip(split.names, images, masks, found_maps, strict=True):
        named = dict(zip(("image", "mask", "saliency map"), outcomes, strict=True))
        errors += [one for one in outcomes if isinstance(one, UserError)]
        try:
            require_same_sizes(name, {what: one for what, one in named.items() if isinstance(one, tuple)})
        except DataError as error:
            errors.append(error)
    return SplitFindings(
        pictures=len(split.names),
        images=_count(images),
        masks=_count(masks),
        saliency_maps=_count(found_maps),
        class_presence=tuple(one.values for one in facts if isinstance(one, MaskInfo)),
        errors=tuple(errors),
    )


def _read_each(
    names: Sequence[str],
    path_of: Callable[[str], Path | None],
    read: Callable[[list[Path]], Sequence[T | UserError]],
) -> list[T | UserError | None]:
    """What was read of each name's file, or why it is missing or wrong."""
    paths: list[Path | UserError | None] = []
    for name in names:
        try:
            paths.append(path_of(name))
        except UserError as error:
            paths.append(error)
    results = iter(read([path for path in paths if isinstance(path, Path)]))
    return [next(results) if isinstance(path, Path) else path for path in paths]


def _sizes(read: Callable[[Path], np.ndarray], title: str, paths: list[Path]) -> list[Size | UserError]:
    return parallel_map(partial(_size, read), paths, title)


def _size(read: Callable[[Path], np.ndarray], path: Path) -> Size | UserError:
    """Of the whole file: one that is cut off still says its size at the beginning."""
    try:
        height, width = read(path).shape[:2]
    except UserError as error:
        return error
    return height, width


def _kind(error: UserError) -> ProblemKind:
    return error.kind if isinstance(error, DataError) else "unreadable"


def _count(outcomes: Sequence[Size | UserError | None]) -> int:
    """Files that are there, whole or not."""
    return sum(one is not None and not (isinstance(one, UserError) and _kind(one) == "missing") for one in outcomes)


# ---- for people and for programs ------------------------------------------------------------------------------------


def as_json(found: Findings) -> dict[str, Any]:
    """Plain values; the keys are documented in docs/data.md."""
    per_step, scenario = found.images_per_step(), found.scenario
    return {
        "path": str(found.path),
        "format": found.format,
        "images": found.total("images"),
        "masks": found.total("masks"),
        "saliency_maps": found.total("saliency_maps"),
        "splits": {name: split.pictures for name, split in found.splits.items()},
        "classes_per_image": {name: found.classes_per_image(name) for name in found.splits},
        "images_per_class": {name: found.images_per_class(name) for name in found.splits},
        **{kind: found.problems(kind) for kind in PROBLEM_KINDS},
        "notes": found.notes(),
        "scenario": scenario and scenario.name,
        "setting": scenario and scenario.setting,
        "images_per_step": per_step,
    }


def as_tables(found: Findings) -> RenderableType:
    """The same to look at, with the first problems of each kind."""
    parts: list[RenderableType] = [_splits_table(found), _classes_table(found)]
    if found.scenario:
        parts.append(_steps_table(found))
    parts += [Text(f"Note: {note}.") for note in found.notes()]
    for kind in PROBLEM_KINDS:
        problems = found.problems(kind)
        if problems:
            more = [f"... and {len(problems) - FIRST} more"] if len(problems) > FIRST else []
            title = f"{kind.replace('_', ' ').capitalize()}: {len(problems)}"
            parts.append(Text("\n  ".join([title, *problems[:FIRST], *more])))
    return Group(*parts)


def _splits_table(found: Findings) -> Table:
    table = _table("split", "pictures", "images", "masks", "saliency maps", "classes in a picture: pictures")
    for name, split in found.splits.items():
        shares = ", ".join(f"{classes}: {count}" for classes, count in found.classes_per_image(name).items())
        counts = (split.pictures, split.images, split.masks, split.saliency_maps)
        table.add_row(name, *map(str, counts), shares)
    return table


def _classes_table(found: Findings) -> Table:
    table = _table("class", "train", "val")
    train, val = (found.images_per_class(name) for name in ("train", "val"))
    for name in found.classes:
        table.add_row(Text(name), str(train[name]), str(val[name]))  # a name in brackets is no markup
    return table


def _steps_table(found: Findings) -> Table:
    assert found.scenario is not None
    table = _table("step", "learns", "pictures")
    table.title, table.title_justify = f"{found.scenario.name} {found.scenario.setting}", "left"
    for step, count in zip(found.scenario.steps, found.images_per_step() or (), strict=True):
        table.add_row(str(step.index), Text(", ".join(step.new)), str(count))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
