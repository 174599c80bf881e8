"""Distillation losses: small pure functions of the student's and the teacher's logits and features, in float32.

Logits are (B, classes, H, W), background first. `counted` is (B, H, W) bool, of pixels or of a feature map's cells:
padding teaches nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ipseg.methods.losses import global_count, mean_over
from ipseg.models.compiled import compilable
from ipseg.models.precision import autocast_disabled
from ipseg.scenario import IGNORE


def distill(new: Tensor, old: Tensor, counted: Tensor) -> Tensor:
    """LwF: the old classes' softmax in both models, cross-entropy, the mean over classes and pixels."""
    log_p = new[:, : old.shape[1]].float().log_softmax(1)
    return -mean_over((old.float().softmax(1) * log_p).mean(1), counted)


def distill_sigmoid(new: Tensor, old: Tensor, counted: Tensor) -> Tensor:
    """LwF-MC: binary cross-entropy of each old class with the teacher's probability, summed over the classes."""
    logits = new[:, : old.shape[1]].float()
    each = F.binary_cross_entropy_with_logits(logits, old.float().sigmoid(), reduction="none")
    return mean_over(each.sum(1), counted)


def unbiased_ce(logits: Tensor, labels: Tensor, old: int) -> Tensor:
    """MiB's cross-entropy: label 0 says "none of the new classes", so it is matched by background or any old class.

    old: how many channels, the background's included, are older than the step. The mean over pixels that are not 255.
    """
    log_p = logits.float().log_softmax(1)
    counted = labels != IGNORE
    chosen = log_p.gather(1, labels.where(counted, 0)[:, None])[:, 0]
    return -mean_over(torch.where(labels == 0, log_p[:, :old].logsumexp(1), chosen), counted)


def unbiased_distill(new: Tensor, old: Tensor, counted: Tensor) -> Tensor:
    """MiB's distillation: the old model calls new classes background, so new ones count as background here."""
    return mean_over(unbiased_distances(new, old), counted)


def unbiased_distances(new: Tensor, old: Tensor) -> Tensor:
    """The same of every place: logits are (B, classes, ...)."""
    classes = old.shape[1]
    log_p = new.float().log_softmax(1)
    background = torch.cat([log_p[:, :1], log_p[:, classes:]], dim=1).logsumexp(1, keepdim=True)
    log_p = torch.cat([background, log_p[:, 1:classes]], dim=1)
    return -(old.float().softmax(1) * log_p).mean(1)


def feature_distance(new: Tensor, old: Tensor, counted: Tensor) -> Tensor:
    """ILT: the mean squared difference of two feature maps."""
    return mean_over((new.float() - old.float()).square().mean(1), counted)


def pod_distance(new: Tensor, old: Tensor, counted: Tensor, scales: Sequence[int] = (1, 2, 4)) -> Tensor:
    """PLOP's local POD: how far two squared feature maps are apart, seen as means over strips of tiles.

    The Euclidean distance of their embeddings, the mean over the batch. Means are linear, so the difference is taken
    first; on padding there is none.
    """
    distances: Tensor = torch.linalg.vector_norm(local_pod(squares_apart(new, old, counted), scales), dim=1)
    return distances.sum() / global_count(distances.new_full((), len(distances)))


@compilable
def squares_apart(new: Tensor, old: Tensor, counted: Tensor) -> Tensor:
    """The difference of two squared feature maps; 0 on what does not count."""
    return (new.float().square() - old.float().square()).where(counted[:, None], 0)


def local_pod(features: Tensor, scales: Sequence[int]) -> Tensor:
    """(B, n): at each scale s the map is cut into s x s tiles, and of each tile rows and columns are averaged.

    Rows of all tiles that stand one above the other are the rows of a strip, so s strips a direction give them all. The
    strips of all scales are one product of matrices: slices one by one would each be as large as the map on the way
    back.
    """
    last = features.permute(0, 2, 3, 1)  # as a map lies in memory
    down, across = (_strips(size, scales, features.device) for size in features.shape[-2:])
    with autocast_disabled(features):
        means = across @ last, down @ last.flatten(2)
    return torch.cat([each.flatten(1) for each in means], dim=1)


def _strips(size: int, scales: Sequence[int], device: torch.device) -> Tensor:
    """(strips of all scales, size): weights of the mean over each. Of more strips than cells some are empty."""
    cells = torch.arange(1, 1 + size, device=device)
    inside = torch.cat([(cells * s - 1) // size == torch.arange(s, device=device)[:, None] for s in scales])
    return inside / inside.sum(1, keepdim=True).clamp(min=1)


def background_takes_new(logits: Tensor, old: int) -> Tensor:
    """(B, old, h, w): the logits of new classes added to the background's, so that the map fits the old model's."""
    background = logits[:, :1] + logits[:, old:].sum(1, keepdim=True)
    return torch.cat([background, logits[:, 1:old]], dim=1)
