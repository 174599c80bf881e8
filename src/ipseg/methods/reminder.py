"""REMINDER (Phan et al., CVPR 2022): PLOP, and old classes are remembered where new ones resemble them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ipseg.config import scoped
from ipseg.data.batch import StepBatch
from ipseg.errors import require_at_least
from ipseg.methods.losses import mean_over
from ipseg.methods.plop import Plop, PlopConfig
from ipseg.methods.prototypes import class_masks, class_means
from ipseg.methods.softmax import PLAIN_BASE
from ipseg.models.freezing import set_mode
from ipseg.models.network import ModelConfig
from ipseg.models.precision import autocast_disabled
from ipseg.models.reduce import all_reduce_sum
from ipseg.models.softmax import SoftmaxNetwork, SoftmaxOutput
from ipseg.scenario import Step

EPSILON = 1e-7
"""The code's."""


@dataclass(frozen=True, kw_only=True)
class ReminderConfig(PlopConfig):
    """REMINDER. The defaults are those of its code for VOC."""

    base_step: ClassVar = PLAIN_BASE

    name: str = "reminder"
    """The method."""

    distillation: float = scoped(0.5, "later")
    """Weight of the class-similarity-weighted distillation (the code's)."""

    temperature: float = scoped(3.0, "later")
    """Of both softmaxes in it (the code's)."""

    least_similarity: float = scoped(0.0, "later")
    """Old classes less similar than this many times the mean are left out of it (the code's for VOC; ADE20K: 1)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least("method.distillation", self.distillation, 0)
        require_at_least("method.temperature", self.temperature, 1e-3)
        require_at_least("method.least_similarity", self.least_similarity, 0)

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> Reminder:
        """Make the method with its network."""
        return Reminder(self, self.network(model, pretrained=pretrained))


class Reminder(Plop):
    """PLOP with prototypes of all classes, background included, each as its step left it."""

    config: ReminderConfig

    def __init__(self, config: ReminderConfig, network: SoftmaxNetwork) -> None:
        super().__init__(config, network)
        network.register_buffer("prototypes", torch.zeros(0, network.width))

    def begin_step(self, step: Step) -> None:
        """Make room for the prototypes of new classes."""
        super().begin_step(step)
        old = self.network.get_buffer("prototypes")
        self.network.prototypes = torch.cat([old, old.new_zeros(1 + len(step.seen) - len(old), old.shape[1])])

    def distillation_losses(
        self, output: SoftmaxOutput, before: SoftmaxOutput, boxes: Tensor, labels: Tensor
    ) -> dict[str, Tensor]:
        """PLOP's, and `csw_distill`."""
        parts = super().distillation_losses(output, before, boxes, labels)
        old = self.network.get_buffer("prototypes")[: before.logits.shape[1]]
        masks = class_masks(labels, range(len(old), output.logits.shape[1]))
        with autocast_disabled(masks):
            means, _ = class_means(output.decoded.detach(), cell_shares(masks, output))
            similarity = similar_classes(means, old, self.config.least_similarity)
            loss = csw_distill(output.upsampled(), before.upsampled(), masks, similarity, self.config.temperature)
        return {**parts, "distillation": self.config.distillation * loss}

    @torch.no_grad()
    def end_step(self, batches: Iterable[StepBatch]) -> None:
        """Prototypes of the new classes: the mean over the images that show one of its mean in each."""
        super().end_step(batches)
        set_mode(self.network, training=False)
        new = self.network.get_buffer("prototypes")[1 + len(self.step.old) if self.step.index else 0 :]
        classes = range(1 + len(self.step.seen) - len(new), 1 + len(self.step.seen))
        sums, counts = torch.zeros_like(new), new.new_zeros(len(new))
        for batch in batches:
            output = self.network(batch.inputs.images, batch.inputs.boxes)
            with autocast_disabled(new):
                shares = cell_shares(class_masks(batch.inputs.labels, classes), output)
                found = torch.einsum("bchw,bkhw->bkc", output.decoded.float(), shares)
            weights = shares.sum((2, 3))
            sums += (found / weights.where(weights > 0, 1)[..., None]).sum(0)
            counts += (weights > 0).sum(0)
        new.copy_(all_reduce_sum(sums) / all_reduce_sum(counts).clamp(min=1)[:, None])


def cell_shares(masks: Tensor, output: SoftmaxOutput) -> Tensor:
    """(B, K, h, w): how much of (B, K, H, W) masks each cell of the decoder's output gets.

    Sums of features with them are sums over pixels of the enlarged features, which need not be made. As coded, corners
    lie on corners.
    """

    def lines(cells: int, pixels: int, shown: int) -> Tensor:
        each = torch.eye(cells, device=masks.device, dtype=masks.dtype)[None]
        return F.interpolate(each, pixels, mode="linear", align_corners=True)[0, :, :shown]

    canvas, (height, width) = output.canvas, output.decoded.shape[-2:]
    down, across = (lines(*sizes) for sizes in zip((height, width), canvas.padded, canvas.original, strict=True))
    return down @ masks @ across.T


def similar_classes(means: Tensor, prototypes: Tensor, least: float) -> Tensor:
    """(new, old): the softmax of the cosines between new classes and old ones; what is below least / |old| is 0."""
    cosines = F.normalize(means, dim=1) @ F.normalize(prototypes, dim=1).T
    shares = cosines.softmax(1)
    return shares * (shares >= least / len(prototypes))


def csw_distill(new: Tensor, old: Tensor, masks: Tensor, similarity: Tensor, temperature: float) -> Tensor:
    """Distillation of the old classes on pixels of new ones (masks), each weighted by its similarity to the pixel's."""
    taught = (old.float() / temperature).softmax(1)
    log_p = (new[:, : old.shape[1]].float() / temperature).log_softmax(1)
    weights = torch.einsum("bkhw,kc->bchw", masks, similarity)
    each = -((taught * weights + EPSILON) * log_p).sum(1)
    return temperature**2 * mean_over(each, masks.sum(1) > 0)
