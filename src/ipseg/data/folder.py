"""Your own data: a folder of images, masks and a file with the names of the classes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from ipseg.data.dataset import DatasetSplits
from ipseg.data.file_dataset import FileDataConfig, FileDataset, MaskReader
from ipseg.data.file_tree import Files, LayoutError, read_lines, read_names, require_folders
from ipseg.data.image_io import Color, ColorMasks, IndexMasks
from ipseg.data.saliency_source import SaliencySource
from ipseg.errors import UserError, require_between
from ipseg.scenario import BACKGROUND, IGNORE, MAX_CLASSES, is_background

IGNORED = "ignore"
"""In a list with colors: the name of the color that is neither trained on nor counted."""
LABELME_IGNORED = "__ignore__"
"""What labelme calls it. Its lists begin with this and `_background_`, which would make them the classes 1 and 2."""


@dataclass(frozen=True, kw_only=True)
class FolderConfig(FileDataConfig):
    """A folder with images/, masks/ and classes.txt."""

    tree: ClassVar[str] = """\
    PATH/
      classes.txt    one name a line; line 1 is mask value 1 (0 is background, 255 is not labeled)
                     for masks in colors each with its color: cow 64 128 0, or cow #408000
      images/        NAME.jpg, .png, ...
      masks/         NAME.png, one byte a pixel: the class; or colors
      saliency/      NAME.png, not zero where something is salient (optional)
      train.txt      names of the training images, one a line, without suffix (optional, together with val.txt)
      val.txt        names of the validation images"""

    name: str = "folder"
    """The data set."""

    val_share: float = 0.2
    """Where there is no train.txt and val.txt: this share of the images, spread evenly over the names, validates."""

    def __post_init__(self) -> None:
        require_between("data.val_share", self.val_share, 0, 0.9)

    def _open(self) -> DatasetSplits:
        classes, every = self._every_image()
        train, val = self._listed() or self._shared_out(every.names)
        return DatasetSplits(self.name, classes, replace(every, names=train), replace(every, names=val))

    def measured(self) -> DatasetSplits:
        """Images to measure on alone: those of val.txt, all where there are no lists. Maps need not be there."""
        with self._showing_tree():
            classes, every = self._every_image()
            lists = self._listed()
            dataset = replace(every, names=lists[1]) if lists else every
            dataset.require_files("val")
            return DatasetSplits(self.name, classes, dataset, dataset)

    def _every_image(self) -> tuple[tuple[str, ...], FileDataset]:
        """The classes, and all images that have a mask."""
        root = self.root
        require_folders(root, ["masks"])
        classes, reader = _read_classes(root)
        masks = Files.below(root / "masks", root, (".png",))
        if not masks.paths:
            raise LayoutError(f"{masks.folder} holds no .png.")
        saliency = SaliencySource.choose(self.saliency, root, "saliency")
        images = Files.below(root / "images", root)
        return classes, FileDataset(sorted(masks.paths), images, masks, reader, saliency, self.region_maps())

    def _listed(self) -> tuple[list[str], list[str]] | None:
        """The names in train.txt and val.txt; none where neither is there."""
        train, val = lists = self.root / "train.txt", self.root / "val.txt"
        missing = [path for path in lists if not path.is_file()]
        if len(missing) == 2:
            return None
        if missing:
            raise LayoutError(f"{missing[0]} is missing; train.txt and val.txt go together.")
        return read_names(train, self.root), read_names(val, self.root)

    def _shared_out(self, every: Sequence[str]) -> tuple[list[str], list[str]]:
        share = self.val_share
        val = [name for i, name in enumerate(every) if int((i + 1) * share) > int(i * share)]
        train = sorted(set(every) - set(val))
        if not train or not val:
            raise LayoutError(
                f"{self.root} has {len(train)} training and {len(val)} validation images, with data.val_share={share}; "
                "both must have some. Choose another share, or name them in train.txt and val.txt."
            )
        return train, val


def _read_classes(root: Path) -> tuple[tuple[str, ...], MaskReader]:
    """The names in classes.txt, and the way to read masks that goes with it: by color if it has colors."""
    path = root / "classes.txt"
    lines = read_lines(path, root)
    pairs = [_split_color(line) for line in lines]
    colors = [pair for pair in pairs if pair is not None]
    if not colors:
        _require_classes(path, lines)
        return tuple(lines), IndexMasks(len(lines))
    if len(colors) < len(lines):
        raise UserError(f'{path}: "{lines[pairs.index(None)]}" has no color, but "{colors[0][0]}" has one.')
    names = [name for name, _ in colors if name not in (BACKGROUND, IGNORED)]
    _require_classes(path, names)
    return tuple(names), _color_masks(path, names, colors)


def _split_color(line: str) -> tuple[str, Color] | None:
    """A name and its color; background and ignored pixels by our names for them.

    >>> _split_color("dining table 64 128 0"), _split_color("cow #408000"), _split_color("cow")
    (('dining table', (64, 128, 0)), ('cow', (64, 128, 0)), None)
    """
    match = re.fullmatch(r"(.*\S)\s+(?:#([0-9a-fA-F]{6})|([0-9]{1,3})[\s,]+([0-9]{1,3})[\s,]+([0-9]{1,3}))", line)
    if match is None:
        return None
    name, code, *numbers = match.groups()
    red, green, blue = bytes.fromhex(code) if code else map(int, numbers)
    name = BACKGROUND if is_background(name) else IGNORED if name == LABELME_IGNORED else name
    return name, (red, green, blue)


def _color_masks(path: Path, names: Sequence[str], colors: Sequence[tuple[str, Color]]) -> ColorMasks:
    default = [] if BACKGROUND in dict(colors) else [(BACKGROUND, (0, 0, 0))]
    values = {BACKGROUND: 0, IGNORED: IGNORE} | {name: value for value, name in enumerate(names, start=1)}
    owners: dict[Color, str] = {}
    for name, color in [*colors, *default]:
        if max(color) > 255:
            raise UserError(f"{path}: the color of {name} is {color}; red, green and blue are 0 to 255.")
        if color in owners:
            raise UserError(
                f"{path}: {owners[color]} and {name} have the same color {color}. "
                f"({BACKGROUND} is black where no line gives it another color.)"
            )
        owners[color] = name
    return ColorMasks(tuple((color, values[name]) for color, name in owners.items()))


def _require_classes(path: Path, names: Sequence[str]) -> None:
    for value, name in enumerate(names, start=1):
        if is_background(name) or name == LABELME_IGNORED:
            raise UserError(
                f'{path} names "{name}" as class {value}. Take that line out: background is mask value 0 and not '
                "labeled is 255 without being named, and the first line is mask value 1."
            )
    most, count = Counter(names).most_common(1)[0] if names else ("", 0)
    if count > 1:
        places = " and ".join(str(value) for value, name in enumerate(names, start=1) if name == most)
        raise UserError(f'{path} names "{most}" more than once, as classes {places}. Give each a name of its own.')
    if not 1 <= len(names) <= MAX_CLASSES:
        room = " A mask's byte has no room for more." if names else ""
        raise UserError(f"{path} must name 1 to {MAX_CLASSES} classes, one a line; it names {len(names)}.{room}")
