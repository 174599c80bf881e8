"""What methods without a background channel share: a sigmoid a class; background is where no class is likely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ipseg.config import scoped
from ipseg.methods.base import Prediction
from ipseg.methods.losses import mean_over
from ipseg.methods.softmax import SoftmaxConfig, SoftmaxMethod
from ipseg.models.cuda_graphs import run
from ipseg.models.freezing import set_mode
from ipseg.scenario import IGNORE

BACKGROUND_SCORE = 0.5
"""A pixel is of a class from this probability on."""


@dataclass(frozen=True, kw_only=True)
class SigmoidConfig(SoftmaxConfig):
    """Settings of every method without a background channel. The rates are those of DKD's code."""

    backbone_lr: float = 0.1
    """The backbone learns at this multiple of the rate (DKD's code: 0.001 beside 0.01)."""

    later_lr: float = scoped(0.1, "later")
    """After the base step everything learns at this multiple of the rate (DKD's code: 0.01, then 0.001)."""


Config = TypeVar("Config", bound=SigmoidConfig)


class SigmoidMethod(SoftmaxMethod[Config]):
    """All of the network goes on learning, in evaluation mode after the base step. What is left to write is `loss`."""

    background: ClassVar = False

    def train_mode(self) -> None:
        """After the base step batch statistics stay as they are, and nothing is dropped."""
        set_mode(self.network, training=self.teacher is None)

    @torch.no_grad()
    def predict(self, images: Tensor, boxes: Tensor | None = None) -> Prediction:
        """Probabilities of the classes; the background's score is the one that a class must reach."""
        set_mode(self.network, training=False)
        classes = run(self.recorder, self.network, images, boxes).upsampled().sigmoid()
        scores = torch.cat([torch.full_like(classes[:, :1], BACKGROUND_SCORE), classes], dim=1)
        return Prediction(scores, scores)


def new_class_bce(logits: Tensor, labels: Tensor, first: int, positive_weight: float) -> Tensor:
    """Binary cross-entropy of the step's classes, their own pixels weighted; summed over classes, mean over pixels.

    logits: (B, new classes, H, W). first: the learned index of the first. Everything else that is labeled, background
    and old classes, is a negative.
    """
    own = labels[:, None] == torch.arange(first, first + logits.shape[1], device=labels.device)[:, None, None]
    each = F.softplus(logits.where(~own, -logits)) * torch.where(own, positive_weight, 1.0)
    return mean_over(each.sum(1), labels != IGNORE)
