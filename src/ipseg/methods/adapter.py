"""Adapter (Zhu et al., AAAI 2025): STAR, whose prototypes follow the features as they drift, and certain classes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ipseg.config import scoped
from ipseg.data.batch import Batch, StepBatch
from ipseg.errors import require_at_least
from ipseg.methods.losses import mean_over
from ipseg.methods.prototypes import class_masks, masked_sums
from ipseg.methods.star import Plan, Star, StarConfig, old_classes, star_plan
from ipseg.models.boxes import inside
from ipseg.models.network import ModelConfig
from ipseg.models.reduce import all_reduce_sum
from ipseg.models.softmax import SoftmaxNetwork, SoftmaxOutput

CERTAIN = 0.7
"""A pixel whose highest probability is above it is certain; so is a cell where the first two are that far apart."""


@dataclass(frozen=True, kw_only=True)
class AdapterConfig(StarConfig):
    """Adapter. The defaults are those of its code for VOC."""

    base_step: ClassVar = "star"

    name: str = "adapter"
    """The method."""

    uncertainty: float = scoped(0.1, "later")
    """Weight of the loss that parts the two most likely classes of uncertain pixels (the code's)."""

    variant: Literal["paper", "official"] = scoped("paper", "later")
    """paper: after a step old prototypes move with the features of their classes. official: they stay, as in the code,
    which has this commented out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least("method.uncertainty", self.uncertainty, 0)

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> Adapter:
        """Make the method with its network."""
        return Adapter(self, self.network(model, pretrained=pretrained))


def adapter_plan(previous: Tensor, current: Tensor, predicted: Tensor, iterations: int, *, overlap: bool) -> Plan:
    """As `star_plan`: at least one feature a class, and with overlap the background less the new cells."""
    vectors = star_plan(previous, current, predicted, iterations, overlap=overlap).vectors.clamp(min=1)
    background = previous[0] * (1 - 0.01 * (len(current) - 1) if overlap else 1)
    shown = (predicted[1:] / previous[1:].clamp(min=1)).max().clamp(max=1) * overlap
    ratio = (background - shown * current[1:].sum()) / predicted[0].clamp(min=1)
    return Plan(
        vectors, max(float(ratio), 0.0), torch.cat([(predicted[0] + background)[None], previous[1:], current[1:]])
    )


class Adapter(Star):
    """STAR with another plan of what is replayed, uncertain pixels, and prototypes that move."""

    config: AdapterConfig
    replay_plan = staticmethod(adapter_plan)

    def __init__(self, config: AdapterConfig, network: SoftmaxNetwork) -> None:
        super().__init__(config, network)
        self.drift = torch.zeros(0)
        """(old classes, 2 D + 1): sums of new and of old directions over certain cells, and their number."""

    def more_losses(self, crops: Batch, output: SoftmaxOutput, labels: Tensor) -> dict[str, Tensor]:
        """The uncertainty of pixels."""
        shown = inside(crops.boxes, output.canvas.original)
        found = mean_over(uncertainty(output.upsampled(), labels), shown)
        return {"uncertainty": self.config.uncertainty * found}

    @torch.no_grad()
    def end_step(self, batches: Iterable[StepBatch]) -> None:
        """Also move the prototypes of old classes, and widen their noise."""
        known, width = len(self.step.old), self.network.width
        self.drift = torch.zeros(known, 2 * width + 1, device=self.buffer("cells").device)
        ever = self.buffer("cells")[1 : 1 + known].clone()
        super().end_step(batches)
        if self.moves:
            shift = prototype_shift(all_reduce_sum(self.drift), ever)
            self.buffer("prototypes")[:known] += shift
            self.buffer("noise")[:known] += shift.abs()

    @property
    def moves(self) -> bool:
        """Whether old prototypes follow their features."""
        return self.teacher is not None and self.config.variant == "paper"

    def see(self, crops: Batch, output: SoftmaxOutput, labels: Tensor) -> None:
        """How far features of old classes have moved, where both models are certain of the same one."""
        if self.moves:
            before, known = self.teacher_outputs(crops), len(self.step.old)
            where = class_masks(certain_cells(before.logits, output.logits, labels), range(1, 1 + known))
            self.drift += direction_sums(output.decoded.float(), before.decoded.float(), where)


def uncertainty(logits: Tensor, labels: Tensor) -> Tensor:
    """(B, H, W): (1 - (p1 - p2))^2 of the two most likely classes, where p1 is neither right nor certain. p2 learns.

    A background pixel is never right, so it lowers p2 unless it is certain.
    """
    (p1, p2), first = logits.float().sigmoid().topk(2, dim=1).values.unbind(1), logits.argmax(1)
    uncertain = (first + 1 != labels) & (p1 <= CERTAIN)
    return (1 - (p1.detach() - p2)).square() * uncertain


def certain_cells(old: Tensor, new: Tensor, labels: Tensor) -> Tensor:
    """(B, h, w): the old class that both models are certain of on unannotated cells; elsewhere 0.

    old: (B, old classes, h, w) logits; new: (B, seen classes, h, w).
    """
    sure = labels == 0
    for logits in (old, new):
        first, *second = logits.float().sigmoid().topk(min(2, logits.shape[1]), dim=1).values.unbind(1)
        sure &= first - sum(second) > CERTAIN
    found = old_classes(old)
    return found.where(sure & (found == old_classes(new)), 0)


def direction_sums(new: Tensor, old: Tensor, masks: Tensor) -> Tensor:
    """(K, 2 D + 1): sums of both models' directions over the cells of each class, and the number of cells."""
    every = torch.cat([F.normalize(new, dim=1), F.normalize(old, dim=1), torch.ones_like(new[:, :1])], dim=1)
    return masked_sums(every, masks)


def prototype_shift(sums: Tensor, ever: Tensor) -> Tensor:
    """(K, D): from the old mean direction to the new one, by the share of the class's cells that were certain.

    sums: of `direction_sums`. ever: (K,) cells of each class in all steps.
    """
    width = sums.shape[1] // 2
    new, old, count = torch.split(sums, [width, width, 1], dim=1)
    return (F.normalize(new, dim=1) - F.normalize(old, dim=1)) * count / ever.clamp(min=1)[:, None]
