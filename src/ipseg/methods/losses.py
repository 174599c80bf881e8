"""Losses as small pure functions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ipseg.models.compiled import compilable
from ipseg.models.reduce import all_reduce_sum, world_size
from ipseg.scenario import IGNORE


def pixel_bce(logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Eq. 6: binary cross-entropy of every channel against one-hot labels.

    Summed over channels, averaged over counted pixels: over one-hot targets that is sum_c softplus(x_c) - x_label. Zero
    where no pixel counts. weights: (B, H, W), of every pixel's loss.
    """
    loss, counted = _summed_bce(logits, labels, weights)
    return loss / global_count(counted)


@compilable
def _summed_bce(logits: Tensor, labels: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    counted = labels != IGNORE
    channels = torch.arange(logits.shape[1], device=labels.device)[:, None, None]
    loss = (F.softplus(logits) - logits * (labels[:, None] == channels)).sum(1)
    each = loss * counted if weights is None else loss * counted * weights
    return each.sum(), counted.sum()


def image_bce(logits: Tensor, labels: Tensor) -> Tensor:
    """L_IP (Eq. 2): binary cross-entropy of the image labels, the mean over classes and images. Zero without any."""
    summed = F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="sum")
    return summed / (logits.shape[1] * global_count(logits.new_full((), len(logits))))


def pixel_ce(logits: Tensor, labels: Tensor) -> Tensor:
    """Softmax cross-entropy, averaged over counted pixels. Zero where no pixel counts.

    By hand: torch's own of maps has no deterministic form on a GPU.
    """
    counted = labels != IGNORE
    chosen = logits.float().log_softmax(1).gather(1, labels.where(counted, 0)[:, None])[:, 0]
    return -mean_over(chosen, counted)


def mean_over(values: Tensor, counted: Tensor) -> Tensor:
    """The mean over counted pixels; zero where there are none."""
    return values.where(counted, 0).sum() / global_count(counted.sum())


def global_count(count: Tensor) -> Tensor:
    """Divisor of a sum, at least one: the count, or with several processes the mean of their counts.

    Their gradients are averaged, so that every pixel weighs the same whichever process sees it.
    """
    size = world_size()
    return count.clamp(min=1) if size == 1 else (all_reduce_sum(count.float()) / size).clamp(min=1 / size)
