"""Losses as small pure functions."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from ipseg.scenario.split import IGNORE


def pixel_bce(logits: Tensor, labels: Tensor) -> Tensor:
    """Eq. 6: binary cross-entropy of every channel against one-hot labels.

    Summed over channels, averaged over counted pixels: over one-hot targets that is sum_c softplus(x_c) - x_label. A
    label without a channel (NEITHER) is a negative for all of them. Zero where no pixel counts.
    """
    counted, positive = labels != IGNORE, labels < logits.shape[1]
    chosen = logits.gather(1, labels.where(positive, 0)[:, None])[:, 0]
    loss = F.softplus(logits).sum(1) - chosen * positive
    return (loss * counted).sum() / counted.sum().clamp(min=1)


def image_bce(logits: Tensor, labels: Tensor) -> Tensor:
    """L_IP (Eq. 2): binary cross-entropy of the image labels, the mean over classes and pictures."""
    return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))


def pixel_ce(logits: Tensor, labels: Tensor) -> Tensor:
    """Softmax cross-entropy, averaged over counted pixels. Zero where no pixel counts."""
    summed = F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="sum")
    return summed / (labels != IGNORE).sum().clamp(min=1)
