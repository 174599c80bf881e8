"""Random scale, crop and flip, for a whole batch at once on the training device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ipseg.data.batch import MAPS, Batch, Sample

Size = tuple[int, int]
Resize = Literal["crop", "full", "shrink"]
"""What a scale of 1 is: the image's own size; the largest size that fits; its own size, or the largest that fits."""


@dataclass(frozen=True)
class CropTransform:
    """Scale an image, shift it up and left (down and right if negative), mirror it."""

    scale: float
    top: float
    left: float
    flip: bool


@dataclass(frozen=True)
class AugmentParams:
    """What is random about a transform, drawn before the image's size is known."""

    scale: float
    top: float
    """0 to 1, as the next: where in the free play between image and crop."""
    left: float
    flip: bool
    resize: Resize = "crop"

    @classmethod
    def draw(
        cls, rng: np.random.Generator, scales: tuple[float, float], *, flip: bool, resize: Resize = "crop"
    ) -> AugmentParams:
        """For one image."""
        return cls(rng.uniform(*scales), rng.uniform(), rng.uniform(), flip and bool(rng.integers(2)), resize)

    def transform(self, size: Size, padded: Size) -> CropTransform:
        """A part of the scaled image where it is larger than the padded size, all of it at a random place where not.

        Full images vary in scale and place as well: few are in memory and each is seen often, so that the network would
        learn them by heart.
        """
        fits = min(padded[0] / size[0], padded[1] / size[1])
        scale = self.scale * {"crop": 1.0, "full": fits, "shrink": min(1.0, fits)}[self.resize]
        scale = max(scale, 1 / min(size))  # at least a pixel of the shorter side: of less no pixel's center may be left
        top, left = self.top * (size[0] * scale - padded[0]), self.left * (size[1] * scale - padded[1])
        return CropTransform(scale, top, left, flip=self.flip)


def apply_transform(
    packed: PackedImages, rows: Sequence[int], transforms: Sequence[CropTransform], size: Size
) -> Batch:
    """Cut images of any sizes to one padded size: image bilinear, labels and other maps nearest, padding ignored.

    A row's position y in the batch shows (y + 0.5 + top) / scale of its image, so every target pixel is one gather.
    """
    values = [(row, t.scale, t.top, t.left, t.flip) for row, t in zip(rows, transforms, strict=True)]
    params = to_device(np.array(values, dtype=np.float32), packed.shapes.device)
    chosen = params[:, 0].long()
    shapes = packed.shapes[chosen]
    y, x, boxes = _source_positions(shapes[:, 1:].float(), params[:, 1:], size)
    height, width = shapes[:, 1:2], shapes[:, 2:]
    shown = ((y >= 0) & (y < height))[:, :, None] & ((x >= 0) & (x < width))[:, None, :]
    nearest = _pixels(shapes, _within(y.floor(), height), _within(x.floor(), width))
    maps = {name: pixels[nearest].where(shown, MAPS[name]) for name, pixels in packed.maps.items()}
    return Batch(
        images=_sample(packed.image, shapes, y, x) * shown[:, None],
        boxes=boxes,
        stored=packed.stored[chosen],
        **{name: pixels if pixels.dtype == torch.bool else pixels.long() for name, pixels in maps.items()},
    )


def as_batch(sample: Sample, classes: int, device: torch.device) -> Batch:
    """A batch of one image as it is."""
    size = (sample.labels.shape[0], sample.labels.shape[1])
    return apply_transform(pack([sample], classes, device), [0], [CropTransform(1.0, 0.0, 0.0, flip=False)], size)


def _source_positions(sizes: Tensor, params: Tensor, padded: Size) -> tuple[Tensor, Tensor, Tensor]:
    """Which row and column of the image each target row and column shows (pixel centers at .5), and the boxes."""
    scale, top, left, flip = params.unbind(1)
    device = sizes.device
    y = (torch.arange(padded[0], device=device) + 0.5 + top[:, None]) / scale[:, None]
    x = (torch.arange(padded[1], device=device) + 0.5 + left[:, None]) / scale[:, None]
    height, width = sizes.unbind(1)
    edges = [-top, -left, height * scale - top, width * scale - left]
    boxes = torch.stack([edge.clamp(0, padded[i % 2]) for i, edge in enumerate(edges)], 1)
    mirrored = width[:, None] - x  # in place, so the box stays
    return y, torch.where(flip[:, None] > 0, mirrored, x), boxes


def _sample(image: Tensor, shapes: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Bilinear. At an image's edge the outermost pixels are repeated, so that nothing outside is mixed in."""
    height, width = shapes[:, 1:2], shapes[:, 2:]
    top, left = (y - 0.5).floor(), (x - 0.5).floor()
    rows = [_within(top, height), _within(top + 1, height)]
    columns = [_within(left, width), _within(left + 1, width)]
    down, right = (y - 0.5 - top)[:, :, None, None], (x - 0.5 - left)[:, None, :, None]

    def row(y: Tensor) -> Tensor:
        start, end = (image[_pixels(shapes, y, column)].float() for column in columns)
        return start.lerp(end, right)

    return row(rows[0]).lerp(row(rows[1]), down).permute(0, 3, 1, 2) / 255


def _within(index: Tensor, end: Tensor) -> Tensor:
    return index.long().clamp(min=0).minimum(end - 1)


def _pixels(shapes: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """(B, H, W): where these rows and columns of the images are packed."""
    start, width = shapes[:, :1, None], shapes[:, 2:, None]
    return start + rows[:, :, None] * width + columns[:, None, :]


@dataclass(frozen=True)
class PackedImages:
    """n images with P pixels in all: those of a whole step, or of one batch."""

    image: Tensor
    """(P, 3) uint8."""
    maps: dict[str, Tensor]
    """`Sample.maps`, each (P,)."""
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
        """What its pixels take on the device."""
        return self.image.nbytes + sum(pixels.nbytes for pixels in self.maps.values())


def pack(samples: Sequence[Sample], classes: int, device: torch.device) -> PackedImages:
    """Copy samples to a device, without waiting for the transfer."""
    sizes = tuple((sample.labels.shape[0], sample.labels.shape[1]) for sample in samples)
    starts = np.cumsum([0, *(height * width for height, width in sizes)])[:-1]
    shapes = np.column_stack([starts, np.array(sizes).reshape(-1, 2)]).astype(np.int64)
    stored = np.zeros((len(samples), classes), dtype=bool)
    for row, sample in zip(stored, samples, strict=True):
        if sample.stored is not None:  # may be shorter than the seen classes: those learned since are false
            row[: len(sample.stored)] = sample.stored
    maps = [sample.maps for sample in samples]
    return PackedImages(
        image=to_device(np.concatenate([sample.image.reshape(-1, 3) for sample in samples]), device),
        maps={name: to_device(np.concatenate([each[name].ravel() for each in maps]), device) for name in maps[0]},
        stored=to_device(stored, device),
        shapes=to_device(shapes, device),
        sizes=sizes,
    )


def cat(packs: Sequence[PackedImages]) -> PackedImages:
    """One of several on one device."""
    pixels = np.cumsum([0, *(len(each.image) for each in packs)])[:-1].tolist()
    begins = torch.tensor([1, 0, 0], device=packs[0].shapes.device)
    return PackedImages(
        image=torch.cat([each.image for each in packs]),
        maps={name: torch.cat([each.maps[name] for each in packs]) for name in packs[0].maps},
        stored=torch.cat([each.stored for each in packs]),
        shapes=torch.cat([each.shapes + start * begins for each, start in zip(packs, pixels, strict=True)]),
        sizes=tuple(size for each in packs for size in each.sizes),
    )


def to_device(array: NDArray[np.generic], device: torch.device) -> Tensor:
    """Through pinned memory on its way to a GPU, for the copy of any other would stop the program until it is done."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
