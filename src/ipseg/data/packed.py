"""Pictures of any sizes on one device, their pixels in one flat heap: any part of any is found by arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ipseg.data.batch import Sample


@dataclass(frozen=True)
class PackedImages:
    """n pictures with P pixels in all. A step's pictures make one for the whole step, or those of a batch one each."""

    image: Tensor
    """(P, 3) uint8."""
    labels: Tensor
    """(P,) uint8."""
    salient: Tensor
    """(P,) bool."""
    full: Tensor | None
    """(P,) uint8, oracle only."""
    stored: Tensor
    """(n, C) bool: stored image labels; all false for pictures that are not from memory."""
    shapes: Tensor
    """(n, 3): where each picture's pixels begin, its height, its width."""
    sizes: tuple[tuple[int, int], ...]
    """Heights and widths, without asking the device."""

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def bytes(self) -> int:
        """What it takes on the device, more or less."""
        return self.image.nbytes + 2 * self.labels.nbytes + (0 if self.full is None else self.full.nbytes)


def pack(pictures: Sequence[Sample], classes: int, device: torch.device) -> PackedImages:
    """Put pictures on a device. Nobody waits for the transfer."""
    sizes = tuple((picture.labels.shape[0], picture.labels.shape[1]) for picture in pictures)
    starts = np.cumsum([0, *(height * width for height, width in sizes)])[:-1]
    shapes = np.column_stack([starts, np.array(sizes).reshape(-1, 2)]).astype(np.int64)

    def flat(arrays: Iterable[NDArray[np.generic]], *shape: int) -> Tensor:
        return to_device(np.concatenate([array.reshape(-1, *shape) for array in arrays]), device)

    fulls = [picture.full for picture in pictures if picture.full is not None]
    return PackedImages(
        image=flat((picture.image for picture in pictures), 3),
        labels=flat(picture.labels for picture in pictures),
        salient=flat(picture.salient for picture in pictures),
        full=flat(fulls) if fulls else None,
        stored=to_device(_stored(pictures, classes), device),
        shapes=to_device(shapes, device),
        sizes=sizes,
    )


def cat(piles: Sequence[PackedImages]) -> PackedImages:
    """One pile of several on one device."""
    pixels = np.cumsum([0, *(len(pile.labels) for pile in piles)])[:-1].tolist()
    begins = torch.tensor([1, 0, 0], device=piles[0].shapes.device)
    return PackedImages(
        image=torch.cat([pile.image for pile in piles]),
        labels=torch.cat([pile.labels for pile in piles]),
        salient=torch.cat([pile.salient for pile in piles]),
        full=None if piles[0].full is None else torch.cat([pile.full for pile in piles if pile.full is not None]),
        stored=torch.cat([pile.stored for pile in piles]),
        shapes=torch.cat([pile.shapes + start * begins for pile, start in zip(piles, pixels, strict=True)]),
        sizes=tuple(size for pile in piles for size in pile.sizes),
    )


def to_device(array: NDArray[np.generic], device: torch.device) -> Tensor:
    """Through pinned memory on its way to a GPU, for the copy of any other would stop the program until it is done."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def _stored(pictures: Sequence[Sample], classes: int) -> NDArray[np.bool_]:
    """Stored labels may be shorter than the seen classes: those learned since are false."""
    stored = np.zeros((len(pictures), classes), dtype=bool)
    for row, picture in zip(stored, pictures, strict=True):
        if picture.stored is not None:
            row[: len(picture.stored)] = picture.stored
    return stored
