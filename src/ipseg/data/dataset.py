"""Where pixels come from: what every data set offers, and how a recipe names one."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from ipseg.errors import UserError

Image = NDArray[np.uint8]
Mask = NDArray[np.uint8]
Saliency = NDArray[np.bool_]


ProblemKind = Literal["missing", "unreadable", "size_mismatches", "unknown_values", "in_both_splits"]
PROBLEM_KINDS: tuple[ProblemKind, ...] = get_args(ProblemKind)


class DataError(UserError):
    """What is wrong with a data set's files. Who opens or reads it raises the first, `data check` lists all of them."""

    def __init__(self, kind: ProblemKind, text: str) -> None:
        super().__init__(kind, text)  # both, so that it travels between processes
        self.kind: ProblemKind = kind

    def __str__(self) -> str:
        return str(self.args[1])


class Dataset(Protocol):
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

    def class_presence(self) -> Sequence[frozenset[int]]:
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

    def class_presence(self) -> list[frozenset[int]]:
        """Of no image."""
        return []


@dataclass(frozen=True)
class DatasetSplits:
    """A data set: its foreground classes and its two splits."""

    name: str
    classes: tuple[str, ...]
    train: Dataset
    val: Dataset

    def split(self, name: str) -> Dataset:
        """The split of that name: train or val."""
        return {"train": self.train, "val": self.val}[name]


class DataConfig(Protocol):
    """What a data set's settings must offer."""

    name: str

    def build(self) -> DatasetSplits:
        """Open the data set, checked."""
        ...


def present_classes(mask: Mask) -> frozenset[int]:
    """The class values in a mask.

    >>> sorted(present(np.array([[0, 2], [255, 2]], dtype=np.uint8)))
    [2]
    """
    found = np.flatnonzero(np.bincount(mask.ravel(), minlength=256))
    return frozenset(int(value) for value in found if value not in (0, 255))


def require_same_size(name: str, **parts: Image | Mask | Saliency | None) -> None:
    """Raise unless the parts of an image (its mask, its saliency_map) are of one size."""
    require_same_sizes(name, {what: part.shape[:2] for what, part in parts.items() if part is not None})


def require_same_sizes(name: str, sizes: Mapping[str, tuple[int, ...]]) -> None:
    """The same by (height, width)."""
    if len(set(sizes.values())) > 1:
        said = ", ".join(f"its {what.replace('_', ' ')} {width}x{height}" for what, (height, width) in sizes.items())
        raise DataError("size_mismatches", f"{name}: {said}; they must be equal.")


def index_of(split: Dataset, name: str) -> int:
    """Where a picture of that name stands in the split."""
    try:
        return list(split.names).index(name)
    except ValueError as error:
        like = f'; names look like "{split.names[0]}"' if split.names else ", which has none there"
        raise UserError(f'no picture "{name}" in the data{like}.') from error


class Subset:
    """Some pictures of a split."""

    def __init__(self, whole: Dataset, indices: Sequence[int]) -> None:
        self.whole, self.indices = whole, indices
        self.names: Sequence[str] = [whole.names[index] for index in indices]

    def image(self, index: int) -> Image:
        """The picture."""
        return self.whole.image(self.indices[index])

    def mask(self, index: int) -> Mask:
        """Its classes."""
        return self.whole.mask(self.indices[index])

    def saliency(self, index: int) -> Saliency:
        """What stands out."""
        return self.whole.saliency(self.indices[index])

    def class_presence(self) -> list[frozenset[int]]:
        """Those of the whole split, once more."""
        found = self.whole.class_presence()
        return [found[index] for index in self.indices]


def hold_out(splits: DatasetSplits, share: float) -> DatasetSplits:
    """The data set without its validation pictures: a share of the training pictures is measured on, the rest learned.

    Which ones follows from their names alone, so they are the same in every run, whatever its seed.
    """
    train = splits.train
    chosen = [index for index, name in enumerate(train.names) if _place(name) < share]
    kept = [index for index, name in enumerate(train.names) if _place(name) >= share]
    if not chosen or not kept:
        raise UserError(
            f"evaluation.held_out is {share}, but of {len(train.names)} training pictures that leaves {len(kept)} to "
            f"learn from and {len(chosen)} to measure on. Choose another share."
        )
    return replace(splits, train=Subset(train, kept), val=Subset(train, chosen))


def _place(name: str) -> float:
    """Where a name falls between 0 and 1: anywhere, but always there."""
    return zlib.crc32(name.encode()) / 2**32
