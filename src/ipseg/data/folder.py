"""Your own data: a folder of images, masks and a file with the names of the classes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path

from ipseg.config import scoped
from ipseg.data.dataset import DatasetSplits
from ipseg.data.file_dataset import (
    FileDataset,
    Files,
    MaskReader,
    read_lines,
    read_names,
    require_complete,
    require_files,
    require_folders,
)
from ipseg.data.image_io import Color, ColorMasks, IndexMasks
from ipseg.data.saliency_source import SaliencyFrom, SaliencySetting, SaliencySource
from ipseg.errors import UserError, require_between
from ipseg.scenario.split import BACKGROUND, IGNORE, MAX_CLASSES, is_background

TREE = """\
    PATH/
      classes.txt    one name a line; line 1 is mask value 1 (0 is background, 255 is not labeled)
                     for masks in colors each with its color: cow 64 128 0, or cow #408000
      images/        NAME.jpg, .png, ...
      masks/         NAME.png, one byte a pixel: the class; or colors
      saliency/      NAME.png, not zero where something stands out (optional)
      train.txt      names of the training pictures, one a line, without suffix (optional, together with val.txt)
      val.txt        names of the validation pictures"""

IGNORED = "ignore"
"""In a list with colors: the name of the color that is neither trained on nor counted."""
LABELME_IGNORED = "__ignore__"
"""What labelme calls it. Its lists begin with this and `_background_`, which would make them the classes 1 and 2."""


@dataclass(frozen=True, kw_only=True)
class FolderConfig(SaliencySetting):
    """A folder with images/, masks/ and classes.txt."""

    path: str = scoped(MISSING, "place")
    """The folder."""

    name: str = "folder"
    """The data set."""

    val_share: float = 0.2
    """Where there is no train.txt and val.txt: this share of the pictures, spread evenly over the names, validates."""

    def __post_init__(self) -> None:
        require_between("data.val_share", self.val_share, 0, 0.9)

    def build(self) -> DatasetSplits:
        """The data set, every file in its place. Pixels are read when they are needed."""
        return require_complete(self.open(), TREE)

    def open(self) -> DatasetSplits:
        """The same with pictures missing: masks alone tell which classes are where."""
        root = Path(self.path).expanduser()
        whole = _every_picture(root, self.saliency)
        train, val = _listed(root) or _shared_out(root, whole.names, self.val_share)
        return DatasetSplits(self.name, tuple(whole.classes), whole.having(train), whole.having(val))

    def measured(self) -> DatasetSplits:
        """Pictures to measure on alone: those of val.txt, all where there are no lists. Maps need not be there."""
        root = Path(self.path).expanduser()
        whole, lists = _every_picture(root, self.saliency), _listed(root)
        split = whole.having(lists[1]) if lists else whole
        require_files(split, "val", TREE)
        return DatasetSplits(self.name, tuple(whole.classes), split, split)


def _every_picture(root: Path, saliency: SaliencyFrom) -> FileDataset:
    """All that has a mask."""
    require_folders(root, ("masks",), "folder", TREE)
    classes, reader = _classes(root)
    masks = Files.below(root / "masks", root, (".png",))
    if not masks.paths:
        raise UserError(f"{masks.folder} holds no .png. Expected:\n{TREE}")
    return FileDataset(
        sorted(masks.paths),
        classes,
        images=Files.below(root / "images", root),
        masks=masks,
        read_mask=reader,
        saliency_source=SaliencySource.chosen(saliency, root, "saliency"),
    )


def _classes(root: Path) -> tuple[tuple[str, ...], MaskReader]:
    """The names in the list, and the way to read masks that goes with it: by color if it has colors."""
    path = root / "classes.txt"
    lines = read_lines(path, root, TREE)
    pairs = [_split_color(line) for line in lines]
    colors = [pair for pair in pairs if pair is not None]
    if not colors:
        _require_classes(path, lines)
        return tuple(lines), IndexMasks(len(lines))
    if len(colors) < len(lines):
        raise UserError(f'{path}: "{lines[pairs.index(None)]}" has no color, but "{colors[0][0]}" has one.')
    colors = [(_meant(name), color) for name, color in colors]
    names = [name for name, _ in colors if name not in (BACKGROUND, IGNORED)]
    _require_classes(path, names)
    return tuple(names), _color_masks(path, names, colors)


def _meant(name: str) -> str:
    """The name, or ours for what is no class."""
    return BACKGROUND if is_background(name) else IGNORED if name == LABELME_IGNORED else name


def _split_color(line: str) -> tuple[str, Color] | None:
    """A name and its color.

    >>> _split_color("dining table 64 128 0"), _split_color("cow #408000"), _split_color("cow")
    (('dining table', (64, 128, 0)), ('cow', (64, 128, 0)), None)
    """
    found = re.fullmatch(r"(.*\S)\s+(?:#([0-9a-fA-F]{6})|([0-9]{1,3})[\s,]+([0-9]{1,3})[\s,]+([0-9]{1,3}))", line)
    if found is None:
        return None
    name, code, *numbers = found.groups()
    red, green, blue = bytes.fromhex(code) if code else map(int, numbers)
    return name, (red, green, blue)


def _color_masks(path: Path, names: Sequence[str], colors: Sequence[tuple[str, Color]]) -> ColorMasks:
    given = [*colors]
    if BACKGROUND not in dict(given):
        given.append((BACKGROUND, (0, 0, 0)))
    owner: dict[Color, str] = {}
    for name, color in given:
        if max(color) > 255:
            raise UserError(f"{path}: the color of {name} is {color}; red, green and blue are 0 to 255.")
        if color in owner:
            raise UserError(
                f"{path}: {owner[color]} and {name} have the same color {color}. "
                f"({BACKGROUND} is black where no line gives it another color.)"
            )
        owner[color] = name
    values = {BACKGROUND: 0, IGNORED: IGNORE} | {name: value for value, name in enumerate(names, start=1)}
    return ColorMasks(tuple((color, values[name]) for name, color in given))


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


def _listed(root: Path) -> tuple[list[str], list[str]] | None:
    """The names in train.txt and val.txt; none where neither is there."""
    lists = [root / "train.txt", root / "val.txt"]
    given = [path.is_file() for path in lists]
    if not any(given):
        return None
    if not all(given):
        raise UserError(f"{lists[given.index(False)]} is missing; train.txt and val.txt go together. Expected:\n{TREE}")
    train, val = (read_names(path, root, TREE) for path in lists)
    return train, val


def _shared_out(root: Path, every: Sequence[str], val_share: float) -> tuple[list[str], list[str]]:
    val = [name for i, name in enumerate(every) if int((i + 1) * val_share) > int(i * val_share)]
    train = sorted(set(every) - set(val))
    if not train or not val:
        raise UserError(
            f"{root} has {len(train)} training and {len(val)} validation pictures, with data.val_share={val_share}; "
            f"both must have some. Choose another share, or name them in train.txt and val.txt. Expected:\n{TREE}"
        )
    return train, val
