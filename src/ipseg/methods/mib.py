"""MiB (Cermelli et al., CVPR 2020): cross-entropy and distillation that know what background means in each step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ipseg.config import scoped
from ipseg.data.batch import StepBatch
from ipseg.errors import require_at_least
from ipseg.methods.distillation import unbiased_ce, unbiased_distill
from ipseg.methods.losses import pixel_ce
from ipseg.methods.softmax import PLAIN_BASE, SoftmaxConfig, SoftmaxMethod
from ipseg.models.boxes import inside
from ipseg.models.network import ModelConfig


@dataclass(frozen=True, kw_only=True)
class MibConfig(SoftmaxConfig):
    """MiB: background means "no new class" to labels and "maybe a new class" to the old model."""

    base_step: ClassVar = PLAIN_BASE

    name: str = "mib"
    """The method."""

    distillation: float = scoped(10.0, "later")
    """Weight of the unbiased distillation (MiB's code: 10; its author's for VOC 15-1: 100)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least("method.distillation", self.distillation, 0)

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> Mib:
        """Make the method with its network."""
        return Mib(self, self.network(model, pretrained=pretrained))


class Mib(SoftmaxMethod[MibConfig]):
    """Unbiased cross-entropy, unbiased distillation, and new classes that start as background."""

    def init_new_classifier(self) -> None:
        """New classes take an equal share of the background's probability."""
        self.network.init_from_background()

    def loss(self, batch: StepBatch) -> Mapping[str, Tensor]:
        """Plain cross-entropy in the base step, then both in the light of what background means."""
        crops, labels = batch.inputs, self.labels(batch)
        output = self.network(crops.images, crops.boxes)
        logits = output.upsampled()
        if self.teacher is None:
            return {"segmentation": pixel_ce(logits, labels)}
        old, shown = self.teacher_outputs(crops).upsampled(), inside(crops.boxes, output.canvas.original)
        return {
            "segmentation": unbiased_ce(logits, labels, old=1 + len(self.step.old)),
            "distillation": self.config.distillation * unbiased_distill(logits, old, shown),
        }
