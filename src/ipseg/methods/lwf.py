"""LwF and LwF-MC: cross-entropy on the step's labels, and distillation of the teacher's outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ipseg.config import scoped
from ipseg.data.batch import StepBatch
from ipseg.errors import require_at_least
from ipseg.methods.distillation import distill, distill_sigmoid
from ipseg.methods.losses import pixel_bce, pixel_ce
from ipseg.methods.softmax import PLAIN_BASE, SoftmaxConfig, SoftmaxMethod
from ipseg.models.boxes import inside
from ipseg.models.network import ModelConfig


@dataclass(frozen=True, kw_only=True)
class LwfConfig(SoftmaxConfig):
    """Learning without forgetting (Li and Hoiem, ECCV 2016): the old classes' softmax stays as it was."""

    base_step: ClassVar = PLAIN_BASE

    name: str = "lwf"
    """The method."""

    distillation: float = scoped(100.0, "later")
    """Weight of the distillation (MiB's code: 100)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least("method.distillation", self.distillation, 0)

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> Lwf:
        """Make the method with its network."""
        return Lwf(self, self.network(model, pretrained=pretrained))


class Lwf(SoftmaxMethod[LwfConfig]):
    """Fine-tuning, and distillation of the teacher's softmax."""

    def loss(self, batch: StepBatch) -> Mapping[str, Tensor]:
        """Cross-entropy on the step's labels, distillation on every pixel of the images."""
        crops = batch.inputs
        output = self.network(crops.images, crops.boxes)
        logits = output.upsampled()
        parts = {"segmentation": pixel_ce(logits, self.labels(batch))}
        if self.teacher is not None:
            old, shown = self.teacher_outputs(crops).upsampled(), inside(crops.boxes, output.canvas.original)
            parts["distillation"] = self.config.distillation * distill(logits, old, shown)
        return parts


@dataclass(frozen=True, kw_only=True)
class LwfMcConfig(SoftmaxConfig):
    """LwF-MC (Rebuffi et al., CVPR 2017, for pixels): a sigmoid a class instead of the softmax."""

    name: str = "lwf_mc"
    """The method."""

    distillation: float = scoped(10.0, "later")
    """Weight of the distillation of one class (MiB's code: 10 times the number of old classes, of their mean)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least("method.distillation", self.distillation, 0)

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> LwfMc:
        """Make the method with its network."""
        return LwfMc(self, self.network(model, pretrained=pretrained))


class LwfMc(SoftmaxMethod[LwfMcConfig]):
    """Binary cross-entropy of every class, and of every old class with the teacher's probability."""

    def loss(self, batch: StepBatch) -> Mapping[str, Tensor]:
        """Both are summed over classes and averaged over pixels."""
        crops = batch.inputs
        output = self.network(crops.images, crops.boxes)
        logits = output.upsampled()
        parts = {"segmentation": pixel_bce(logits, self.labels(batch))}
        if self.teacher is not None:
            old, shown = self.teacher_outputs(crops).upsampled(), inside(crops.boxes, output.canvas.original)
            parts["distillation"] = self.config.distillation * distill_sigmoid(logits, old, shown)
        return parts
