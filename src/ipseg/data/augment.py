"""Random scale, crop and flip, for a whole batch at once on the training device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ipseg.data.batch import Batch
from ipseg.data.packed import PackedImages, to_device
from ipseg.scenario.split import IGNORE

Size = tuple[int, int]


@dataclass(frozen=True)
class CropTransform:
    """How one picture is laid on the canvas: scaled, shifted up and left (down and right if negative), mirrored."""

    scale: float
    top: float
    left: float
    flip: bool


@dataclass(frozen=True)
class AugmentParams:
    """What is random about a placement, drawn before anybody knows the picture's size."""

    scale: float
    top: float
    """0 to 1, as the next."""
    left: float
    flip: bool

    @classmethod
    def draw(cls, rng: np.random.Generator, scales: tuple[float, float], *, flip: bool) -> AugmentParams:
        """One picture's."""
        return cls(rng.uniform(*scales), rng.uniform(), rng.uniform(), flip=flip and bool(rng.integers(2)))


NO_AUGMENT = AugmentParams(1.0, 0.0, 0.0, flip=False)
"""For a picture that is laid in one way only."""


def random_crop(chance: AugmentParams, size: Size, crop: Size) -> CropTransform:
    """A random part of the scaled picture, or all of it at a random place where it is smaller."""
    return _anywhere(chance, chance.scale, size, crop)


def whole(chance: AugmentParams, size: Size, canvas: Size) -> CropTransform:
    """The whole picture at a random place; the chance's scale is a multiple of the largest that fits.

    Few pictures are remembered and each is seen often: were they always alike, the network would know them by heart.
    """
    scale = min(canvas[0] / size[0], canvas[1] / size[1]) * chance.scale
    return _anywhere(chance, scale, size, canvas)


def _anywhere(chance: AugmentParams, scale: float, size: Size, canvas: Size) -> CropTransform:
    scale = _visible(scale, size)
    top, left = chance.top * (size[0] * scale - canvas[0]), chance.left * (size[1] * scale - canvas[1])
    return CropTransform(scale, top, left, flip=chance.flip)


def unchanged(_chance: AugmentParams, size: Size, canvas: Size) -> CropTransform:
    """The whole picture in a corner, as large as it is, or as fits."""
    return CropTransform(_visible(min(1.0, canvas[0] / size[0], canvas[1] / size[1]), size), 0.0, 0.0, flip=False)


def _visible(scale: float, size: Size) -> float:
    """At least a pixel wide and high: of less no centre of a pixel may be left. The longer side is cut off then."""
    return max(scale, 1 / min(size))


def place(pile: PackedImages, rows: Sequence[int], placements: Sequence[CropTransform], canvas: Size) -> Batch:
    """Lay pictures of any sizes on canvases of one size: image bilinear, labels nearest, padding ignored."""
    told = [(row, p.scale, p.top, p.left, p.flip) for row, p in zip(rows, placements, strict=True)]
    layout = to_device(np.array(told, dtype=np.float32), pile.shapes.device)
    chosen = layout[:, 0].long()
    shapes = pile.shapes[chosen]
    y, x, boxes = _source_positions(shapes[:, 1:].float(), layout[:, 1:], canvas)
    height, width = shapes[:, 1:2], shapes[:, 2:]
    shown = ((y >= 0) & (y < height))[:, :, None] & ((x >= 0) & (x < width))[:, None, :]
    nearest = _pixels(shapes, _within(y.floor(), height), _within(x.floor(), width))
    full = None if pile.full is None else pile.full[nearest].long().where(shown, IGNORE)
    return Batch(
        images=_sample(pile.image, shapes, y, x) * shown[:, None],
        boxes=boxes,
        labels=pile.labels[nearest].long().where(shown, IGNORE),
        salient=pile.salient[nearest] & shown,
        stored=pile.stored[chosen],
        full=full,
    )


def _source_positions(sizes: Tensor, layout: Tensor, canvas: Size) -> tuple[Tensor, Tensor, Tensor]:
    """Which row and column of the picture each canvas row and column shows (pixel centres at .5), and the boxes."""
    scale, top, left, flip = layout.unbind(1)
    device = sizes.device
    y = (torch.arange(canvas[0], device=device) + 0.5 + top[:, None]) / scale[:, None]
    x = (torch.arange(canvas[1], device=device) + 0.5 + left[:, None]) / scale[:, None]
    height, width = sizes.unbind(1)
    edges = [-top, -left, height * scale - top, width * scale - left]
    boxes = torch.stack([edge.clamp(0, canvas[i % 2]) for i, edge in enumerate(edges)], 1)
    mirrored = width[:, None] - x  # in place, so the box stays
    return y, torch.where(flip[:, None] > 0, mirrored, x), boxes


def _sample(image: Tensor, shapes: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Bilinear. At a picture's edge the outermost pixels are repeated, so that nothing outside is mixed in."""
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
    """(B, H, W): where in the pile these rows and columns of the pictures lie."""
    start, width = shapes[:, :1, None], shapes[:, 2:, None]
    return start + rows[:, :, None] * width + columns[:, None, :]
