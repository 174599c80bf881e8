"""Images of any sizes on one device, their pixels in one flat tensor: any part of any is found by arithmetic."""

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
    """n images with P pixels in all: those of a whole step, or of one batch."""

    image: Tensor
    """(P, 3) uint8."""
    labels: Tensor
    """(P,) uint8."""
    salient: Tensor
    """(P,) bool."""
    full: Tensor | None
    """(P,) uint8, oracle only."""
    stored: Tensor
    """(n, C) bool: stored image labels; all false for images that are not from memory."""
    shapes: Tensor
    """(n, 3): where each image's pixels begin, its height, its width."""
    sizes: tuple[tuple[int, int], ...]
    """Heights and widths, without asking the device."""

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def bytes(self) -> int:
        """What it takes on the device, more or less."""
        return self.image.nbytes + 2 * self.labels.nbytes + (0 if self.full is None else self.full.nbytes)


def pack(samples: Sequence[Sample], classes: int, device: torch.device) -> PackedImages:
    """Copy samples to a device, without waiting for the transfer."""
    sizes = tuple((sample.labels.shape[0], sample.labels.shape[1]) for sample in samples)
    starts = np.cumsum([0, *(height * width for height, width in sizes)])[:-1]
    shapes = np.column_stack([starts, np.array(sizes).reshape(-1, 2)]).astype(np.int64)

    def flat(arrays: Iterable[NDArray[np.generic]], *shape: int) -> Tensor:
        return to_device(np.concatenate([array.reshape(-1, *shape) for array in arrays]), device)

    fulls = [sample.full for sample in samples if sample.full is not None]
    return PackedImages(
        image=flat((sample.image for sample in samples), 3),
        labels=flat(sample.labels for sample in samples),
        salient=flat(sample.salient for sample in samples),
        full=flat(fulls) if fulls else None,
        stored=to_device(_stored(samples, classes), device),
        shapes=to_device(shapes, device),
        sizes=sizes,
    )


def cat(packs: Sequence[PackedImages]) -> PackedImages:
    """One of several on one device."""
    pixels = np.cumsum([0, *(len(each.labels) for each in packs)])[:-1].tolist()
    begins = torch.tensor([1, 0, 0], device=packs[0].shapes.device)
    return PackedImages(
        image=torch.cat([each.image for each in packs]),
        labels=torch.cat([each.labels for each in packs]),
        salient=torch.cat([each.salient for each in packs]),
        full=None if packs[0].full is None else torch.cat([each.full for each in packs if each.full is not None]),
        stored=torch.cat([each.stored for each in packs]),
        shapes=torch.cat([each.shapes + start * begins for each, start in zip(packs, pixels, strict=True)]),
        sizes=tuple(size for each in packs for size in each.sizes),
    )


def to_device(array: NDArray[np.generic], device: torch.device) -> Tensor:
    """Through pinned memory on its way to a GPU, for the copy of any other would stop the program until it is done."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def _stored(samples: Sequence[Sample], classes: int) -> NDArray[np.bool_]:
    """Stored labels may be shorter than the seen classes: those learned since are false."""
    stored = np.zeros((len(samples), classes), dtype=bool)
    for row, sample in zip(stored, samples, strict=True):
        if sample.stored is not None:
            row[: len(sample.stored)] = sample.stored
    return stored
