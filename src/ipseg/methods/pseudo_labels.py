"""PLOP's pseudo-labels: where the old model is surer than usual of a class, its label stands in for the background."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ipseg.methods.losses import everywhere
from ipseg.model.together import summed
from ipseg.scenario.split import IGNORE

BINS = 10_000
"""Of the histograms that medians are read from: their error is below a ten-thousandth of the largest entropy."""
COARSE = 100
"""Of those in the published code."""


def entropy(logits: Tensor) -> Tensor:
    """(B, H, W) in 0 to 1: the entropy of the softmax over (B, classes, H, W) logits, divided by its largest value."""
    log_p = logits.float().log_softmax(1)
    return -(log_p.exp() * log_p).sum(1) / math.log(logits.shape[1])


class ClassMedians:
    """The median of a number in 0 to 1 for each class, over more pixels than fit in memory."""

    def __init__(self, classes: int, device: torch.device) -> None:
        self.counts = torch.zeros(classes, BINS, dtype=torch.int64, device=device)

    def add(self, classes: Tensor, values: Tensor) -> None:
        """Pixels, each with its class and its number."""
        bins = (values * BINS).long().clamp(0, BINS - 1)
        self.counts += torch.bincount(classes * BINS + bins, minlength=self.counts.numel()).view_as(self.counts)

    def medians(self) -> Tensor:
        """(classes,): 0 for a class that no pixel had."""
        counts = summed(self.counts)
        below = counts.cumsum(1)
        half = below[:, -1:] / 2
        place = (below < half).sum(1, keepdim=True).clamp(max=BINS - 1)  # where half of the pixels are reached
        inside = counts.gather(1, place)
        share = (half - (below.gather(1, place) - inside)) / inside.clamp(min=1)
        return ((place + share) / BINS)[:, 0].float()

    def published(self, divisor: float) -> Tensor:
        """(classes,): what the published code takes for medians of the numbers divided by `divisor`.

        It looks for the first of 100 bins that has half of the pixels by itself, and takes them to be spread evenly
        over it. Where no bin has, everything is below the answer.
        """
        counts = summed(self.counts)
        centres = (torch.arange(BINS, device=counts.device) + 0.5) / BINS
        bins = torch.zeros(len(counts), COARSE, dtype=counts.dtype, device=counts.device)
        bins.index_add_(1, (centres / divisor * COARSE).long().clamp(max=COARSE - 1), counts)
        half = counts.sum(1, keepdim=True) / 2
        enough = bins >= half
        place = enough.int().argmax(1, keepdim=True)
        found = (place + half / bins.gather(1, place).clamp(min=1)) / COARSE
        return found.where(enough.any(1, keepdim=True), 1)[:, 0].float()


def pseudo_labels(labels: Tensor, old: Tensor, thresholds: Tensor) -> tuple[Tensor, Tensor]:
    """PLOP's labels to learn from, and nu: the share of a picture's background that the old model is sure of.

    labels: (B, H, W), 0 where nothing is annotated; what is annotated stays. old: the old model's logits. thresholds:
    (old classes,), the entropy below which a class's label counts; above it the pixel is ignored. nu: (B,), 1 for a
    picture without background: nothing in it is unsure.
    """
    unlabelled = labels == 0
    guess = old.argmax(1)
    sure = entropy(old) < thresholds[guess]
    taught = torch.where(unlabelled, guess.where(sure, IGNORE), labels)
    count = unlabelled.sum((1, 2))
    nu = (unlabelled & sure).sum((1, 2)) / count.clamp(min=1)
    return taught, nu.where(count > 0, 1)


def weighted_ce(logits: Tensor, taught: Tensor, weights: Tensor, counted: Tensor) -> Tensor:
    """PLOP's cross-entropy, each picture's times its weight. Unsure pixels teach nothing but count in the mean."""
    sure = taught != IGNORE
    chosen = logits.float().log_softmax(1).gather(1, taught.where(sure, 0)[:, None])[:, 0]
    return -(chosen.where(sure, 0) * weights[:, None, None]).sum() / everywhere(counted.sum())
