"""A method in a package of its own: fine-tuning whose weights are held near those of the step before.

It needs no change in ipseg. From this folder, or after `pip install .` from anywhere:

    ipseg train scenes_3-1_finetune --set "method={name: anchored:AnchoredConfig, pull: 10}" --out runs/anchored
    ipseg train scenes_3-1_finetune --set "method={name: anchored, pull: 10}" --out runs/anchored
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ipseg.data.batch import StepBatch
from ipseg.errors import require_at_least
from ipseg.methods.losses import pixel_ce
from ipseg.methods.softmax import SoftmaxConfig, SoftmaxMethod
from ipseg.models.network import ModelConfig


@dataclass(frozen=True, kw_only=True)
class AnchoredConfig(SoftmaxConfig):
    """Settings: frozen, checked, each with a sentence that help texts and saved recipes show."""

    name: str = "anchored"
    """The method."""

    pull: float = 1.0
    """Weight of the squared distance that the weights have come from those of the step before."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least("method.pull", self.pull, 0)

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> Anchored:
        """Make the method with its network."""
        return Anchored(self, self.network(model, pretrained=pretrained))


class Anchored(SoftmaxMethod[AnchoredConfig]):
    """The network, the previous model, replay and prediction are the base class's; a loss is all that is left."""

    def loss(self, batch: StepBatch) -> Mapping[str, Tensor]:
        """Cross-entropy on the step's labels, and how far the old weights have moved."""
        seen = self.network(batch.inputs.images, batch.inputs.boxes)
        parts = {"segmentation": pixel_ce(seen.upsampled(), self.labels(batch))}
        if self.teacher is not None:
            parts["anchor"] = self.config.pull * self.distance()
        return parts

    def distance(self) -> Tensor:
        """The squared distance to the previous model's weights, over all that it has."""
        assert self.teacher is not None
        now = dict(self.network.named_parameters())
        apart = [(now[name] - old).square().sum() for name, old in self.teacher.named_parameters()]
        return torch.stack(apart).sum()
