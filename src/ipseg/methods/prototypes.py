"""Means of features over the cells of a class, in a batch that several processes may share."""

from __future__ import annotations

import torch
from torch import Tensor

from ipseg.models.precision import autocast_disabled
from ipseg.models.reduce import all_reduce_sum


def class_masks(labels: Tensor, classes: range) -> Tensor:
    """(B, K, H, W): 1.0 where the label is the class, one map for each of K classes."""
    return (labels[:, None] == torch.arange(classes.start, classes.stop, device=labels.device)[:, None, None]).float()


def class_sums(features: Tensor, masks: Tensor) -> tuple[Tensor, Tensor]:
    """(K, C) sums of the features weighted by each mask, and (K,) sums of the weights, over all processes.

    features: (B, C, h, w); masks: (B, K, h, w), of ones or of shares. Gradients reach the features of every process.
    """
    sums = masked_sums(features, masks)
    found = all_reduce_sum(torch.cat([sums, masks.sum((0, 2, 3))[:, None]], dim=1))
    return found[:, :-1], found[:, -1]


def masked_sums(features: Tensor, masks: Tensor) -> Tensor:
    """(K, C) sums of the features weighted by each mask, of this process alone."""
    with autocast_disabled(features):
        return torch.einsum("bchw,bkhw->kc", features.float(), masks)


def class_means(features: Tensor, masks: Tensor) -> tuple[Tensor, Tensor]:
    """(K, C) mean features, zero of a class that is not there, and (K,) how many cells each has."""
    sums, counts = class_sums(features, masks)
    return sums / counts.where(counts > 0, 1)[:, None], counts
