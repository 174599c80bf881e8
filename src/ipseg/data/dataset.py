"""What every data set offers: two splits of images with masks and saliency maps."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NoReturn, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from ipseg.errors import UserError

Image = NDArray[np.uint8]
Mask = NDArray[np.uint8]
Saliency = NDArray[np.bool_]
Regions = NDArray[np.uint8]
"""0 to 99: the region; 255: none."""

ProblemKind = Literal["missing", "unreadable", "size_mismatches", "unknown_values", "in_both_splits"]
PROBLEM_KINDS: tuple[ProblemKind, ...] = get_args(ProblemKind)


class DataError(UserError):
    """A problem with a data set's files. Opening or reading raises the first one, `data check` lists all of them."""

    def __init__(self, kind: ProblemKind, text: str) -> None:
        super().__init__(kind, text)  # both, so that it travels between processes
        self.kind: ProblemKind = kind

    def __str__(self) -> str:
        return str(self.args[1])


class Dataset(Protocol):
    """Images with masks in the data set's own values: 0 background, i + 1 for class i, 255 not labeled.

    The same index always gives the same image, and several threads may read at once (`training.workers`).
    """

    names: Sequence[str]

    def image(self, index: int) -> Image:
        """(H, W, 3) RGB."""
        ...

    def mask(self, index: int) -> Mask:
        """(H, W) values."""
        ...

    def saliency(self, index: int) -> Saliency:
        """(H, W), true where something is salient: S(x) of the paper."""
        ...

    def regions(self, index: int) -> Regions:
        """(H, W), which region each pixel belongs to. Only methods over regions ask."""
        ...

    def class_presence(self) -> Sequence[frozenset[int]]:
        """The class values in each image's mask, without 0 and 255."""
        ...


class EmptyDataset:
    """Stands in for a data set that is gone, or whose images are not wanted."""

    names: Sequence[str] = ()

    def image(self, index: int) -> NoReturn:
        raise IndexError(index)

    mask = saliency = regions = image

    def class_presence(self) -> list[frozenset[int]]:
        return []


class Subset:
    """Some images of a dataset."""

    def __init__(self, dataset: Dataset, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices
        self.names: Sequence[str] = [dataset.names[index] for index in indices]

    def image(self, index: int) -> Image:
        return self.dataset.image(self.indices[index])

    def mask(self, index: int) -> Mask:
        return self.dataset.mask(self.indices[index])

    def saliency(self, index: int) -> Saliency:
        return self.dataset.saliency(self.indices[index])

    def regions(self, index: int) -> Regions:
        return self.dataset.regions(self.indices[index])

    def class_presence(self) -> list[frozenset[int]]:
        presence = self.dataset.class_presence()
        return [presence[index] for index in self.indices]


@dataclass(frozen=True)
class DatasetSplits:
    """A data set: its foreground classes and its two splits."""

    name: str
    classes: tuple[str, ...]
    train: Dataset
    val: Dataset

    def split(self, name: str) -> Dataset:
        """The split called train or val."""
        return {"train": self.train, "val": self.val}[name]


class DataConfig(Protocol):
    """What a data set's settings must offer."""

    name: str

    def build(self) -> DatasetSplits:
        """Open the data set and check that it is complete."""
        ...


def hold_out(splits: DatasetSplits, share: float) -> DatasetSplits:
    """Validate on a fixed share of the training images, to choose settings while the validation images stay unseen.

    Which ones follows from their names alone, so they are the same in every run, whatever its seed.
    """
    names = splits.train.names
    held = [zlib.crc32(name.encode()) / 2**32 < share for name in names]
    train, val = ([index for index in range(len(names)) if held[index] == wanted] for wanted in (False, True))
    if not train or not val:
        raise UserError(
            f"evaluation.held_out is {share}, but of {len(names)} training images that leaves {len(train)} to "
            f"learn from and {len(val)} to measure on. Choose another share."
        )
    return replace(splits, train=Subset(splits.train, train), val=Subset(splits.train, val))


def present_classes(mask: Mask) -> frozenset[int]:
    """The class values in a mask.

    >>> sorted(present_classes(np.array([[0, 2], [255, 2]], dtype=np.uint8)))
    [2]
    """
    found = np.flatnonzero(np.bincount(mask.ravel(), minlength=256))
    return frozenset(int(value) for value in found if value not in (0, 255))


def require_same_size(name: str, **shapes: tuple[int, ...]) -> None:
    """Raise unless image, mask and saliency map, given by their shapes, have one height and width."""
    sizes = {part: shape[:2] for part, shape in shapes.items()}
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"its {part.replace('_', ' ')} {width}x{height}" for part, (height, width) in sizes.items())
        raise DataError("size_mismatches", f"{name}: {listed}; they must be equal.")
