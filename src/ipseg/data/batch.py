"""Samples and batches: one image with this step's labels, and several padded to one size on the training device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ipseg.data.dataset import Image, Mask, Regions, Saliency
from ipseg.saliency.regions import NO_REGION
from ipseg.scenario import IGNORE


@dataclass(frozen=True)
class Sample:
    """An image as a step may see it."""

    image: Image
    labels: Mask
    """Learned indices of this step's classes, 0 for everything else, 255 not labeled."""
    salient: Saliency
    stored: NDArray[np.bool_] | None = None
    """Memory only: the stored image label over the seen classes."""
    full: Mask | None = None
    """Oracle only: labels of all classes seen so far."""
    regions: Regions | None = None
    """Methods over regions only."""

    @property
    def maps(self) -> dict[str, NDArray[np.generic]]:
        """Those of its fields that have a value a pixel, by name."""
        return {name: value for name in MAPS if (value := getattr(self, name)) is not None}


MAPS = {"labels": IGNORE, "salient": False, "full": IGNORE, "regions": NO_REGION}
"""Fields of `Sample` and `Batch` with a value a pixel, and what they hold on padding."""


@dataclass(frozen=True)
class Batch:
    """B images padded to one size, on the training device."""

    images: Tensor
    """(B, 3, H, W) in 0-1."""
    boxes: Tensor
    """(B, 4): where the image lies; the rest is padding."""
    labels: Tensor
    """(B, H, W) long, 255 on padding too."""
    salient: Tensor
    """(B, H, W) bool."""
    stored: Tensor
    """(B, C) bool: stored image labels; all false for images that are not from memory."""
    full: Tensor | None = None
    """(B, H, W) long, oracle only."""
    regions: Tensor | None = None
    """(B, H, W) long, methods over regions only: 255 is no region, padding too."""

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class StepBatch:
    """What one iteration sees."""

    inputs: Batch
    """Images of the step first, then replayed ones; scaled, cropped, flipped."""
    num_new: int
    """How many of the inputs are images of the step."""
    replay_images: Batch | None = None
    """More images from memory, for the image posterior: uncropped, unless the plan says otherwise."""
    num_posterior: int = 0
    """How many of the step's images, the first ones, train the image posterior beside them."""


@dataclass(frozen=True)
class BatchPlan:
    """How a method wants a batch made up. Replay is the method's choice, not the loader's."""

    num_new: int
    num_replayed: int = 0
    num_replay_images: int = 0
    """Length of `StepBatch.replay_images`."""
    num_posterior: int = 0
    crop_replay_images: bool = False
    """Crop replay images as the inputs, instead of resizing them to fit."""


def join(batches: list[Batch]) -> Batch:
    """One batch of several of one padded size."""
    names = [name for name, value in vars(batches[0]).items() if value is not None]
    return Batch(**{name: torch.cat([getattr(batch, name) for batch in batches]) for name in names})
