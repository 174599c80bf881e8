"""Where the image lies in a padded canvas, so that padding stays out of everything that pools over the whole image.

A box is (top, left, bottom, right) in pixels of the canvas. Crops, letterboxed images and images padded to a
multiple of the stride are all rectangles, so four numbers say it exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ipseg.models.precision import autocast_disabled

ROUNDING = 1e-4
"""A part that reaches less far into a cell does not touch it: its edge is there by rounding."""


def full_boxes(images: Tensor) -> Tensor:
    """Boxes of images that fill their canvas."""
    height, width = images.shape[-2:]
    edges = [torch.full((), edge, dtype=torch.float32, device=images.device) for edge in (0, 0, height, width)]
    return torch.stack(edges).expand(len(images), 4)  # made on the device: a CUDA graph can record that


def inside(boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """(B, H, W) bool: pixels whose center lies in the image."""
    rows = torch.arange(size[0], device=boxes.device) + 0.5
    columns = torch.arange(size[1], device=boxes.device) + 0.5
    top, left, bottom, right = (edge[:, None] for edge in boxes.unbind(1))
    in_rows = (rows >= top) & (rows < bottom)
    in_columns = (columns >= left) & (columns < right)
    return in_rows[:, :, None] & in_columns[:, None, :]


def touched(boxes: Tensor, canvas: tuple[int, int], cells: Sequence[int]) -> Tensor:
    """(B, h, w) bool: cells of a feature map over the canvas that show any of the image."""
    down, across = cells[0] / canvas[0], cells[1] / canvas[1]
    top, left, bottom, right = boxes.unbind(1)
    edges = [(top * down).floor(), (left * across).floor(), (bottom * down).ceil(), (right * across).ceil()]
    return inside(torch.stack(edges, dim=1), (cells[0], cells[1]))


def pool(features: Tensor, boxes: Tensor, canvas: tuple[int, int], bins: int) -> Tensor:
    """(B, C, bins, bins): the mean of the features over each of bins x bins equal parts of the image's box.

    Adaptive average pooling of the box: a cell on the line between two parts counts fully in both. Cells that are
    partly padding count by the share that is not.
    """
    return weighted(features, *pool_weights(boxes, canvas, features.shape[-2:], bins))


def weighted(features: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """(B, C, bins, bins): sums of the features with `pool_weights`; those of the parts of a map add up to its pool."""
    with autocast_disabled(features):  # a mean over thousands of cells needs more than bf16
        return torch.einsum("bchw,bih,bjw->bcij", features.float(), rows, columns)


def pool_weights(boxes: Tensor, canvas: tuple[int, int], cells: Sequence[int], bins: int) -> tuple[Tensor, Tensor]:
    """(B, bins, h) and (B, bins, w): the weights of the rows and columns of a feature map in each part."""
    rows = _shares(boxes[:, 0], boxes[:, 2], canvas[0], cells[0], bins)
    return rows, _shares(boxes[:, 1], boxes[:, 3], canvas[1], cells[1], bins)


def _shares(start: Tensor, end: Tensor, pixels: int, cells: int, bins: int) -> Tensor:
    """(B, bins, cells): the weight of each cell in each part, along one axis; rows sum to one."""
    scale = cells / pixels
    edges = torch.linspace(0, 1, bins + 1, device=start.device)
    cuts = (start[:, None] + (end - start)[:, None] * edges) * scale
    cell = torch.arange(cells, device=start.device)

    def overlap(low: Tensor, high: Tensor) -> Tensor:
        return (torch.minimum(high[..., None], cell + 1) - torch.maximum(low[..., None], cell)).clamp(min=0)

    touched = overlap(cuts[:, :-1], cuts[:, 1:]) > ROUNDING
    weights = overlap(cuts[:, :1], cuts[:, -1:]) * touched
    return weights / weights.sum(-1, keepdim=True).clamp(min=1e-6)
