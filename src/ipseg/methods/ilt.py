"""ILT (Michieli and Zanuttigh, ICCVW 2019): distillation of the teacher's outputs and features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ipseg.config import scoped
from ipseg.data.batch import StepBatch
from ipseg.errors import require_at_least
from ipseg.methods.distillation import distill, feature_distance
from ipseg.methods.losses import pixel_ce
from ipseg.methods.softmax import PLAIN_BASE, SoftmaxConfig, SoftmaxMethod
from ipseg.models.boxes import inside, touched
from ipseg.models.network import ModelConfig


@dataclass(frozen=True, kw_only=True)
class IltConfig(SoftmaxConfig):
    """ILT: LwF, and the backbone's features stay near the old ones."""

    base_step: ClassVar = PLAIN_BASE

    name: str = "ilt"
    """The method."""

    distillation: float = scoped(100.0, "later")
    """Weight of the distillation (MiB's code: 100)."""

    features: float = scoped(100.0, "later")
    """Weight of the squared distance of the backbone's last stage to the old model's (MiB's code: 100)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least("method.distillation", self.distillation, 0)
        require_at_least("method.features", self.features, 0)

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> Ilt:
        """Make the method with its network."""
        return Ilt(self, self.network(model, pretrained=pretrained))


class Ilt(SoftmaxMethod[IltConfig]):
    """Fine-tuning, distillation of the teacher's softmax and of its backbone's features."""

    def loss(self, batch: StepBatch) -> Mapping[str, Tensor]:
        """As LwF, and the mean squared distance of the last stages."""
        crops = batch.inputs
        output = self.network(crops.images, crops.boxes)
        logits = output.upsampled()
        parts = {"segmentation": pixel_ce(logits, self.labels(batch))}
        if self.teacher is not None:
            before = self.teacher_outputs(crops)
            distillation = distill(logits, before.upsampled(), inside(crops.boxes, output.canvas.original))
            parts["distillation"] = self.config.distillation * distillation
            new, old = output.stages[-1], before.stages[-1]
            shown = touched(crops.boxes, output.canvas.padded, new.shape[-2:])
            parts["features"] = self.config.features * feature_distance(new, old, shown)
        return parts
