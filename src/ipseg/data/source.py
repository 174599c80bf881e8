"""Where pixels come from: what every data set offers, and how a recipe names one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from ipseg.errors import UserError

Image = NDArray[np.uint8]
Mask = NDArray[np.uint8]
Saliency = NDArray[np.bool_]


Kind = Literal["missing", "unreadable", "size_mismatches", "unknown_values", "in_both_splits"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class DataError(UserError):
    """What is wrong with a data set's files. Who opens or reads it raises the first, `data check` lists all of them."""

    def __init__(self, kind: Kind, text: str) -> None:
        super().__init__(kind, text)  # both, so that it travels between processes
        self.kind: Kind = kind

    def __str__(self) -> str:
        return str(self.args[1])


class Split(Protocol):
    """Pictures with masks in the data set's own values: 0 background, i + 1 for class i, 255 not labeled.

    The same index always gives the same picture, and several threads may ask at once (`training.workers`).
    """

    names: Sequence[str]

    def image(self, index: int) -> Image:
        """(H, W, 3) RGB."""
        ...

    def mask(self, index: int) -> Mask:
        """(H, W) values."""
        ...

    def saliency(self, index: int) -> Saliency:
        """(H, W), true where something stands out: S(x) of the paper."""
        ...

    def presence(self) -> Sequence[frozenset[int]]:
        """Which class values each picture's mask holds (0 and 255 left out)."""
        ...


class EmptyDataset:
    """Stands for a data set that is gone, or of which no image is wanted."""

    names: Sequence[str] = ()

    def image(self, index: int) -> Image:
        """There is none."""
        raise IndexError(index)

    mask = image

    def saliency(self, index: int) -> Saliency:
        """There is none."""
        raise IndexError(index)

    def presence(self) -> list[frozenset[int]]:
        """Of no image."""
        return []


@dataclass(frozen=True)
class Source:
    """A data set: its foreground classes and its two splits."""

    name: str
    classes: tuple[str, ...]
    train: Split
    val: Split

    def split(self, name: str) -> Split:
        """The split of that name: train or val."""
        return {"train": self.train, "val": self.val}[name]


class DataConfig(Protocol):
    """What a data set's settings must offer."""

    name: str

    def build(self) -> Source:
        """Open the data set, checked."""
        ...


def present(mask: Mask) -> frozenset[int]:
    """The class values in a mask.

    >>> sorted(present(np.array([[0, 2], [255, 2]], dtype=np.uint8)))
    [2]
    """
    found = np.flatnonzero(np.bincount(mask.ravel(), minlength=256))
    return frozenset(int(value) for value in found if value not in (0, 255))


def require_equal(name: str, **parts: Image | Mask | Saliency | None) -> None:
    """Raise unless the parts of an image (its mask, its saliency_map) are of one size."""
    require_equal_sizes(name, {what: part.shape[:2] for what, part in parts.items() if part is not None})


def require_equal_sizes(name: str, sizes: Mapping[str, tuple[int, ...]]) -> None:
    """The same by (height, width)."""
    if len(set(sizes.values())) > 1:
        said = ", ".join(f"its {what.replace('_', ' ')} {width}x{height}" for what, (height, width) in sizes.items())
        raise DataError("size_mismatches", f"{name}: {said}; they must be equal.")


def position(split: Split, name: str) -> int:
    """Where a picture of that name stands in the split."""
    try:
        return list(split.names).index(name)
    except ValueError as error:
        like = f'; names look like "{split.names[0]}"' if split.names else ", which has none there"
        raise UserError(f'no picture "{name}" in the data{like}.') from error
