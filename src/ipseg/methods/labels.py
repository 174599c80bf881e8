"""Label reassignment: the targets of each branch, from ground truth, the teacher and saliency (Eq. 5).

Ground truth y holds the learned indices of this step's classes, 0 for everything else (c_b), 255 where nothing counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ipseg.models.features import Canvas
from ipseg.models.heads import OTHER_FOREGROUND, PURE_BACKGROUND, UNKNOWN
from ipseg.scenario import IGNORE


def permanent_labels(y: Tensor, old: Tensor, salient: Tensor) -> Tensor:
    """Eq. 5, first half: y~^p, for the permanent branch.

    c_i (ignored) on this step's classes and where the teacher predicts an old class, c'_u where another object is
    salient, c'_b elsewhere. `old` is true where f_{t-1}(x) is in C_1:t-1.
    """
    labels = torch.where(salient, UNKNOWN, PURE_BACKGROUND)
    return labels.masked_fill((y != 0) | old, IGNORE)


def temporary_labels(y: Tensor, salient: Tensor, first: int) -> Tensor:
    """Eq. 5, second half: y~^t, for the step's own branch, whose channels are c_f, c'_b and then its classes.

    `first` is the learned index of the step's first class.
    """
    labels = torch.where(salient, OTHER_FOREGROUND, PURE_BACKGROUND)
    labels = torch.where(y > 0, y - first + 2, labels)
    return labels.masked_fill(y == IGNORE, IGNORE)


def coupled_labels(y: Tensor, old_class: Tensor, salient: Tensor) -> Tensor:
    """SSUL's targets: unknown, background and all classes in one label map (channels c_u, c_b, C_1:t).

    `old_class` holds the learned index of an old class where the teacher predicts one, 0 elsewhere.
    """
    labels = torch.where(salient, UNKNOWN, PURE_BACKGROUND)
    labels = torch.where(old_class > 0, old_class + 1, labels)
    labels = torch.where(y > 0, y + 1, labels)
    return labels.masked_fill(y == IGNORE, IGNORE)


def confident_old_classes(logits: Tensor, least: float) -> Tensor:
    """SSUL's pseudo-labels, (B, H, W): the old class that wins a pixel with at least this probability; 0 elsewhere.

    logits: of the previous model, (B, 2 + old classes, H, W). Unknown and background are rivals like the others.
    """
    best, winner = logits.max(1)
    return (winner - PURE_BACKGROUND).clamp(min=0).where(best.sigmoid() >= least, 0)


def where_unlabeled(found: Tensor, y: Tensor) -> Tensor:
    """(B, H, W): a model's labels where the annotation is background: what is annotated is not an old class."""
    return found.where(y == 0, 0).where(y != IGNORE, IGNORE)


def labels_at_cells(
    labels: Tensor, canvas: Canvas, cells: Sequence[int], mode: Literal["nearest", "nearest-exact"] = "nearest"
) -> Tensor:
    """(B, h, w): the label of one pixel of each cell of a feature map; padding has 255.

    nearest: its first pixel, as most published code has it; nearest-exact: the one in its middle.
    """
    return nearest_labels(padded_labels(labels, canvas), cells, mode)


def padded_labels(labels: Tensor, canvas: Canvas) -> Tensor:
    """(B, H, W) labels of the images on the canvas that feature maps cover; padding has 255."""
    down, right = (padded - side for padded, side in zip(canvas.padded, canvas.original, strict=True))
    return F.pad(labels, (0, right, 0, down), value=IGNORE)


def nearest_labels(
    labels: Tensor, size: Sequence[int], mode: Literal["nearest", "nearest-exact"] = "nearest"
) -> Tensor:
    """(B, h, w) labels of a canvas at another size."""
    return F.interpolate(labels[:, None].float(), tuple(size), mode=mode)[:, 0].long()


def classes_present(labels: Tensor, classes: int, min_area: float = 0.0) -> Tensor:
    """(B, classes) bool: which learned indices cover more than `min_area`, a share of the whole map, of each map."""
    lines = labels.masked_fill((labels < 0) | (labels > classes), 0).flatten(0, 1)
    counts = torch.zeros(len(lines), classes + 1, device=labels.device)
    counts.scatter_add_(1, lines, torch.ones_like(lines, dtype=counts.dtype))  # line by line: a GPU adds side by side
    counts = counts.view(*labels.shape[:2], classes + 1).sum(1)
    return counts[:, 1:] > min_area * labels.shape[1:].numel()
