"""Random scale, crop and flip, for a whole batch at once on the training device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ipseg.data.batch import Batch, Picture
from ipseg.scenario.split import IGNORE


@dataclass(frozen=True)
class Placement:
    """How one picture is laid on the canvas: scaled, shifted up and left (down and right if negative), mirrored."""

    scale: float
    top: float
    left: float
    flip: bool


def random_crop(
    rng: np.random.Generator, height: int, width: int, crop: tuple[int, int], scales: tuple[float, float], *, flip: bool
) -> Placement:
    """Scale at random, then show a random part of the picture, or all of it at a random place where it is smaller."""
    scale = rng.uniform(*scales)
    top = rng.uniform() * (height * scale - crop[0])
    left = rng.uniform() * (width * scale - crop[1])
    return Placement(scale, top, left, flip=flip and bool(rng.integers(2)))


def whole(
    rng: np.random.Generator,
    height: int,
    width: int,
    canvas: tuple[int, int],
    scales: tuple[float, float],
    *,
    flip: bool,
) -> Placement:
    """The whole picture at a random place, between the smallest scale and the largest that fits.

    Few pictures are remembered and each is seen often: were they always alike, the network would know them by heart.
    """
    fits = min(canvas[0] / height, canvas[1] / width)
    scale = fits * rng.uniform(min(scales[0], 1.0), 1.0)
    top, left = rng.uniform() * (height * scale - canvas[0]), rng.uniform() * (width * scale - canvas[1])
    return Placement(scale, top, left, flip=flip and bool(rng.integers(2)))


def place(
    pictures: Sequence[Picture],
    placements: Sequence[Placement],
    canvas: tuple[int, int],
    classes: int,
    device: torch.device,
) -> Batch:
    """Lay pictures of any sizes on canvases of one size: image bilinear, labels nearest, padding ignored."""
    sizes = torch.tensor([picture.labels.shape for picture in pictures], dtype=torch.float32)
    layout = torch.tensor([(p.scale, p.top, p.left, p.flip) for p in placements], dtype=torch.float32)
    sizes, layout = sizes.to(device), layout.to(device)
    rows, columns, boxes = _source_positions(sizes, layout, canvas)
    images = _stack([picture.image for picture in pictures], device)
    labels = _stack([picture.labels for picture in pictures], device)
    salient = _stack([picture.salient for picture in pictures], device)
    shown = ((rows >= 0) & (rows < sizes[:, :1]))[:, :, None] & ((columns >= 0) & (columns < sizes[:, 1:]))[:, None, :]
    nearest = _nearest_index(rows, columns, sizes)
    full = None
    if pictures[0].full is not None:
        fulls = _stack([picture.full for picture in pictures if picture.full is not None], device)
        full = fulls[nearest].long().where(shown, IGNORE)
    return Batch(
        images=_sample(images, rows, columns, sizes) * shown[:, None],
        boxes=boxes,
        labels=labels[nearest].long().where(shown, IGNORE),
        salient=salient[nearest] & shown,
        stored=_stored(pictures, classes).to(device),
        full=full,
    )


def _source_positions(sizes: Tensor, layout: Tensor, canvas: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Which row and column of the picture each canvas row and column shows (pixel centres at .5), and the boxes."""
    scale, top, left, flip = layout.unbind(1)
    device = sizes.device
    rows = (torch.arange(canvas[0], device=device) + 0.5 + top[:, None]) / scale[:, None]
    columns = (torch.arange(canvas[1], device=device) + 0.5 + left[:, None]) / scale[:, None]
    height, width = sizes.unbind(1)
    low = torch.stack([-top, -left], 1).clamp(min=0)
    high = torch.stack([height * scale - top, width * scale - left], 1)
    high = torch.minimum(high, torch.tensor(canvas, dtype=high.dtype, device=device))
    mirrored = width[:, None] - columns  # in place, so the box stays
    columns = torch.where(flip[:, None] > 0, mirrored, columns)
    return rows, columns, torch.cat([low, high], 1)


def _sample(images: Tensor, rows: Tensor, columns: Tensor, sizes: Tensor) -> Tensor:
    """Bilinear. Positions are kept half a pixel inside the picture, so that nothing outside is mixed in."""
    height, width = images.shape[1:3]
    y = torch.minimum(rows.clamp(min=0.5), sizes[:, :1] - 0.5) * (2 / height) - 1
    x = torch.minimum(columns.clamp(min=0.5), sizes[:, 1:] - 0.5) * (2 / width) - 1
    grid = torch.stack([x[:, None, :].expand(-1, y.shape[1], -1), y[:, :, None].expand(-1, -1, x.shape[1])], -1)
    pixels = images.permute(0, 3, 1, 2).float() / 255
    return F.grid_sample(pixels, grid, mode="bilinear", align_corners=False)


def _nearest_index(rows: Tensor, columns: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y = torch.minimum(rows.floor().clamp(min=0), sizes[:, :1] - 1).long()
    x = torch.minimum(columns.floor().clamp(min=0), sizes[:, 1:] - 1).long()
    return torch.arange(len(y), device=y.device)[:, None, None], y[:, :, None], x[:, None, :]


def _stack(arrays: Sequence[np.ndarray], device: torch.device) -> Tensor:
    """Arrays of different sizes in one tensor, each in the upper left corner."""
    height, width = (max(array.shape[axis] for array in arrays) for axis in (0, 1))
    stacked = np.zeros((len(arrays), height, width, *arrays[0].shape[2:]), dtype=arrays[0].dtype)
    for row, array in zip(stacked, arrays, strict=True):
        row[: array.shape[0], : array.shape[1]] = array
    return torch.from_numpy(stacked).to(device)


def _stored(pictures: Sequence[Picture], classes: int) -> Tensor:
    """Stored labels may be shorter than the seen classes: those learned since are false."""
    stored = np.zeros((len(pictures), classes), dtype=bool)
    for row, picture in zip(stored, pictures, strict=True):
        if picture.stored is not None:
            row[: len(picture.stored)] = picture.stored
    return torch.from_numpy(stored)
