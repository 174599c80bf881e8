"""Your own data: a folder of images, masks and a file with the names of the classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ipseg.data.pictures import IMAGE_SUFFIXES, read_image, read_labels
from ipseg.data.source import Image, Mask, Saliency, Source, present
from ipseg.errors import UserError, require_between

TREE = """\
    PATH/
      classes.txt    one name a line; line 1 is mask value 1 (0 is background, 255 is not labelled)
      images/        NAME.jpg, .png, ...
      masks/         NAME.png, one byte a pixel: the class
      saliency/      NAME.png, not zero where something stands out (optional)
      train.txt      names of the training pictures (optional, together with val.txt)
      val.txt        names of the validation pictures"""


@dataclass(frozen=True, kw_only=True)
class FolderConfig:
    """A folder with images/, masks/ and classes.txt."""

    path: str
    """The folder."""

    name: str = "folder"
    """The data set."""

    val_share: float = 0.2
    """Where there is no train.txt and val.txt: this share of the pictures, spread evenly over the names, validates."""

    def __post_init__(self) -> None:
        require_between("data.val_share", self.val_share, 0, 0.9)

    def build(self) -> Source:
        """Check the tree and list its pictures; pixels are read when they are needed."""
        root = Path(self.path).expanduser()
        if not root.is_dir() or not (root / "images").is_dir() or not (root / "masks").is_dir():
            raise UserError(f"data.path: {root} is not a data folder. Expected:\n{TREE}")
        classes = _classes(root / "classes.txt")
        train, val = _names(root, self.val_share)
        return Source(self.name, classes, *(FolderSplit(root, names, classes) for names in (train, val)))


class FolderSplit:
    """Some of a folder's pictures."""

    def __init__(self, root: Path, names: Sequence[str], classes: Sequence[str]) -> None:
        self.root, self.names, self.classes = root, names, classes
        self._has_saliency = (root / "saliency").is_dir()

    def image(self, index: int) -> Image:
        """RGB, turned as its EXIF says."""
        return read_image(_image_path(self.root, self.names[index]))

    def mask(self, index: int) -> Mask:
        """Checked: known values, the image's size."""
        path = self.root / "masks" / f"{self.names[index]}.png"
        mask = read_labels(path)
        unknown = sorted(value for value in present(mask) if value > len(self.classes))
        if unknown:
            raise UserError(
                f"{path} holds the values {unknown}, but classes.txt names {len(self.classes)} classes: "
                f"valid are 0 to {len(self.classes)} and 255."
            )
        return mask

    def saliency(self, index: int) -> Saliency:
        """The given map. Without one nothing stands out, so that all background is pure background."""
        if not self._has_saliency:
            return np.zeros(self.mask(index).shape, dtype=bool)
        return read_labels(self.root / "saliency" / f"{self.names[index]}.png") > 0

    @cached_property
    def _presence(self) -> list[frozenset[int]]:
        return [present(self.mask(index)) for index in range(len(self.names))]

    def presence(self) -> list[frozenset[int]]:
        """Read once from the masks."""
        return self._presence


def _classes(path: Path) -> tuple[str, ...]:
    if not path.is_file():
        raise UserError(f"{path} is missing. Expected:\n{TREE}")
    names = tuple(_lines(path))
    if not names or len(set(names)) != len(names) or len(names) > 254 or "background" in names:
        raise UserError(f"{path} must name 1 to 254 different classes, one a line, without the background.")
    return names


def _lines(path: Path) -> list[str]:
    """The lines that say something; a byte order mark, as some editors write, is no part of the first."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a text file in UTF-8 ({error}).") from error
    return [line.strip() for line in text.splitlines() if line.strip()]


def _image_path(root: Path, name: str) -> Path:
    for suffix in IMAGE_SUFFIXES:
        for path in (root / "images" / f"{name}{suffix}", root / "images" / f"{name}{suffix.upper()}"):
            if path.is_file():
                return path
    raise UserError(f"{root / 'images' / name} is missing (looked for {', '.join(IMAGE_SUFFIXES)}).")


def _names(root: Path, val_share: float) -> tuple[list[str], list[str]]:
    lists = [root / "train.txt", root / "val.txt"]
    if all(path.is_file() for path in lists):
        train, val = ([_checked(line, path) for line in _lines(path)] for path in lists)
    else:
        every = sorted(path.stem for path in (root / "masks").glob("*.png"))
        val = [name for i, name in enumerate(every) if int((i + 1) * val_share) > int(i * val_share)]
        train = sorted(set(every) - set(val))
    if not train or not val:
        raise UserError(f"{root} has {len(train)} training and {len(val)} validation pictures. Expected:\n{TREE}")
    return train, val


def _checked(name: str, path: Path) -> str:
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise UserError(f'{path} names "{name}"; a name must stay inside the folder.')
    return name
