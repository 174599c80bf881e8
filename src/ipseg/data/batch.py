"""Pictures on their way to the network: one picture with this step's labels, and a batch of them on one canvas."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ipseg.data.source import Image, Mask, Saliency


@dataclass(frozen=True)
class Picture:
    """A picture as a step may see it."""

    image: Image
    labels: Mask
    """Learned indices of this step's classes, 0 for everything else, 255 not labelled."""
    salient: Saliency
    stored: NDArray[np.bool_] | None = None
    """Memory only: the stored image label over the seen classes."""
    full: Mask | None = None
    """Oracle only: labels of all classes seen so far."""


@dataclass(frozen=True)
class Batch:
    """B pictures on a canvas of one size, on the training device."""

    images: Tensor
    """(B, 3, H, W) in 0-1."""
    boxes: Tensor
    """(B, 4): where the picture lies; the rest is padding."""
    labels: Tensor
    """(B, H, W) long, 255 on padding too."""
    salient: Tensor
    """(B, H, W) bool."""
    stored: Tensor
    """(B, C) bool: stored image labels; all false for pictures that are not from memory."""
    full: Tensor | None = None
    """(B, H, W) long, oracle only."""

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class StepBatch:
    """What one iteration sees."""

    crops: Batch
    """Current pictures first, then rehearsed ones from memory; scaled, cropped, flipped."""
    current: int
    """How many of the crops are current pictures."""
    wholes: Batch | None = None
    """More images from memory for image-level learning: whole, unless the plan crops them too."""
    image_level: int = 0
    """How many of the current pictures, the first ones, join them there."""


@dataclass(frozen=True)
class BatchPlan:
    """How a method wants a batch made up. Replay is the method's choice, not the loader's."""

    current: int
    rehearsed: int = 0
    wholes: int = 0
    image_level: int = 0
    wholes_cropped: bool = False
    """Crop them as the others, instead of showing them whole."""


def join(batches: list[Batch]) -> Batch:
    """One batch of several on equal canvases."""
    names = ["images", "boxes", "labels", "salient", "stored"]
    if batches[0].full is not None:
        names.append("full")
    return Batch(**{name: torch.cat([getattr(batch, name) for batch in batches]) for name in names})
