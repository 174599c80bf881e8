"""PLOP's pseudo-labels: where the teacher is more certain of a class than usual, its label replaces the background."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ipseg.methods.losses import global_count
from ipseg.models.reduce import all_reduce_sum
from ipseg.scenario import IGNORE

BINS = 10_000
"""Of the histograms that medians are read from: their error is below a ten-thousandth of the largest entropy."""
OFFICIAL_BINS = 100
"""Of those in the authors' code."""


def entropy(logits: Tensor) -> Tensor:
    """(B, H, W) in 0 to 1: the entropy of the softmax over (B, classes, H, W) logits, divided by its largest value."""
    log_p = logits.float().log_softmax(1)
    return -(log_p.exp() * log_p).sum(1) / math.log(logits.shape[1])


class ClassHistograms:
    """Histograms of a number in 0 to 1 for each class, over more pixels than fit in memory."""

    def __init__(self, classes: int, bins: int, device: torch.device) -> None:
        self.bins = bins
        self.counts = torch.zeros(classes, bins, dtype=torch.int64, device=device)

    def add(self, classes: Tensor, values: Tensor) -> None:
        """Pixels, each with its class and its number."""
        bins = (values * self.bins).long().clamp(0, self.bins - 1)
        self.counts += torch.bincount(classes * self.bins + bins, minlength=self.counts.numel()).view_as(self.counts)

    def medians(self) -> Tensor:
        """(classes,): 0 for a class that no pixel had."""
        counts = all_reduce_sum(self.counts)
        below = counts.cumsum(1) - counts
        half = counts.sum(1, keepdim=True) / 2
        return self._within(half, below, counts, below + counts >= half)

    def official_thresholds(self) -> Tensor:
        """(classes,): what the authors' code takes for medians; 0 for a class that no pixel had.

        Below bin i it counts i (i - 1) / 2 pixels, whatever the histogram says. Where no bin reaches half of the
        pixels, it divides by the last one's zero: infinity with many pixels, minus infinity with few.
        """
        counts = all_reduce_sum(self.counts)
        bins = torch.arange(self.bins, device=counts.device)
        below = (bins * (bins - 1) // 2).expand_as(counts)
        half = counts.sum(1, keepdim=True) / 2
        return self._within(half, below, counts, (below <= half) & (half <= below + counts))

    def _within(self, half: Tensor, below: Tensor, counts: Tensor, reached: Tensor) -> Tensor:
        """Where `half` of a class's pixels lie below, in the first bin that reaches them or else in the last."""
        reached[:, -1] = True
        place = reached.int().argmax(1, keepdim=True)
        share = (half - below.gather(1, place)) / counts.gather(1, place)
        return ((place + share) / self.bins).where(half > 0, 0)[:, 0].float()


def pseudo_labels(labels: Tensor, old: Tensor, thresholds: Tensor) -> tuple[Tensor, Tensor]:
    """PLOP's targets, and nu: the share of an image's background that the teacher is certain of.

    labels: (B, H, W), 0 where nothing is annotated; what is annotated stays. old: the old model's logits. thresholds:
    (old classes,), the entropy below which a class's label counts; above it the pixel is ignored. nu: (B,), 1 for a
    image without background: nothing in it is uncertain.
    """
    unlabeled = labels == 0
    guess = old.argmax(1)
    sure = entropy(old) < thresholds[guess]
    targets = torch.where(unlabeled, guess.where(sure, IGNORE), labels)
    count = unlabeled.sum((1, 2))
    nu = (unlabeled & sure).sum((1, 2)) / count.clamp(min=1)
    return targets, nu.where(count > 0, 1)


def weighted_ce(logits: Tensor, targets: Tensor, weights: Tensor, counted: Tensor) -> Tensor:
    """Cross-entropy times weights, (B, 1, 1) or (B, H, W). Uncertain pixels have no loss but count in PLOP's mean."""
    sure = targets != IGNORE
    chosen = logits.float().log_softmax(1).gather(1, targets.where(sure, 0)[:, None])[:, 0]
    return -(chosen.where(sure, 0) * weights).sum() / global_count(counted.sum())
