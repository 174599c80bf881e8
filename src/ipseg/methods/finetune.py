"""Plain fine-tuning: the whole network goes on learning on each step's pictures. It forgets, and is here to show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ipseg.data.batch import BatchPlan, StepBatch
from ipseg.errors import require_at_least
from ipseg.methods.base import ParameterGroup, Prediction
from ipseg.methods.labels import classes_present
from ipseg.methods.losses import pixel_ce
from ipseg.model.network import ModelConfig
from ipseg.model.softmax import SoftmaxNetwork
from ipseg.scenario.split import Step


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """Fine-tuning with softmax cross-entropy; what is not of this step is background. No memory, nothing frozen."""

    name: str = "finetune"
    """The method."""

    backbone_lr: float = 0.1
    """The backbone learns at this multiple of the rate."""

    later_lr: float = 0.1
    """After the base step everything learns at this multiple of the rate (as MiB's baselines: 0.01, then 0.001)."""

    def __post_init__(self) -> None:
        require_at_least("method.backbone_lr", self.backbone_lr, 0)
        require_at_least("method.later_lr", self.later_lr, 0)

    def oracle(self) -> list[str]:
        """None."""
        return []

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> Finetune:
        """Make the method with its network."""
        return Finetune(self, SoftmaxNetwork(model, pretrained=pretrained))


class Finetune:
    """One softmax over background and every class seen."""

    def __init__(self, config: FinetuneConfig, network: SoftmaxNetwork) -> None:
        self.config, self.network = config, network
        self.base, self.seen = True, 0

    def begin_step(self, step: Step) -> None:
        """Add a classifier for the step's classes; the base step's also has the background."""
        self.base, self.seen = step.index == 0, len(step.seen)
        self.network.grow(len(step.new) + self.base)

    def train_mode(self) -> None:
        """Everything trains."""
        self.network.train()

    def parameter_groups(self) -> list[ParameterGroup]:
        """The backbone slower than the rest, all of it slower after the base step."""
        factor = 1.0 if self.base else self.config.later_lr
        backbone = list(self.network.encoder.backbone.parameters())
        known = {id(parameter) for parameter in backbone}
        rest = [parameter for parameter in self.network.parameters() if id(parameter) not in known]
        return [ParameterGroup(backbone, factor * self.config.backbone_lr), ParameterGroup(rest, factor)]

    def plan(self, batch_size: int, memory: int) -> BatchPlan:
        """Current pictures only."""
        return BatchPlan(batch_size)

    def loss(self, batch: StepBatch) -> Mapping[str, Tensor]:
        """Cross-entropy on the step's labels."""
        crops = batch.crops
        return {"segmentation": pixel_ce(self.network(crops.images, crops.boxes), crops.labels)}

    @torch.no_grad()
    def predict(self, images: Tensor, boxes: Tensor | None = None) -> Prediction:
        """Softmax probabilities."""
        self.network.eval()
        scores = self.network(images, boxes).softmax(1)
        return Prediction(scores, scores)

    def image_classes(self, labels: Tensor) -> Tensor:
        """Classes that some pixel has."""
        return classes_present(labels, self.seen)
