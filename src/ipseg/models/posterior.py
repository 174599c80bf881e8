"""The image posterior branch psi: which classes are in the image as a whole."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ipseg.models import heads
from ipseg.models.boxes import pool

BINS = 2


class Posterior(nn.Module):
    """2x2 pooling of the last stage, two shared fully connected layers, one classifier a step (section 3.3)."""

    def __init__(self, inputs: int, width: int, dropout: float, *, he_init: bool = False) -> None:
        super().__init__()
        self.shared = nn.Sequential(
            nn.Linear(inputs * BINS * BINS, width),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Dropout(dropout),
        )
        self.width, self.he_init = width, he_init
        if he_init:
            heads.he_init(self.shared)
        self.sizes: list[int] = []
        """Classes of each step."""
        self.classifiers = nn.ModuleList()

    def add_step(self, classes: int) -> None:
        """Add the classifier of a new step."""
        classifier = nn.Linear(self.width, classes)
        self.classifiers.append(heads.he_init(classifier) if self.he_init else classifier)
        self.sizes.append(classes)

    def forward(self, pooled: Tensor) -> Tensor:
        """(B, |C_1:t|) logits, in the order of learning."""
        shared = self.shared(pooled)
        return torch.cat([classifier(shared) for classifier in self.classifiers], dim=1)


def pool_parts(features: Tensor, boxes: Tensor, canvas: tuple[int, int]) -> Tensor:
    """The posterior's input: the means of the last stage over the image's four quarters, flattened."""
    return pool(features, boxes, canvas, BINS).flatten(1)
