"""Plain fine-tuning, which forgets and is here to show it, and joint training, which has nothing to forget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ipseg.data.batch import StepBatch
from ipseg.errors import UserError
from ipseg.methods.losses import pixel_ce
from ipseg.methods.softmax import PLAIN_BASE, SoftmaxConfig, SoftmaxMethod
from ipseg.models.network import ModelConfig
from ipseg.scenario import Step


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig(SoftmaxConfig):
    """Fine-tuning with softmax cross-entropy; what is not of this step is background. Nothing is frozen."""

    base_step: ClassVar = PLAIN_BASE

    name: str = "finetune"
    """The method."""

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> Finetune:
        """Make the method with its network."""
        return Finetune(self, self.network(model, pretrained=pretrained))


class Finetune(SoftmaxMethod[FinetuneConfig]):
    """The whole network is trained on each step's images."""

    def loss(self, batch: StepBatch) -> Mapping[str, Tensor]:
        """Cross-entropy on the step's labels."""
        output = self.network(batch.inputs.images, batch.inputs.boxes)
        return {"segmentation": pixel_ce(output.upsampled(), self.labels(batch))}


@dataclass(frozen=True, kw_only=True)
class JointConfig(FinetuneConfig):
    """Joint training, the upper bound: all classes in one step, with `scenario.name: joint`."""

    name: str = "joint"
    """The method."""

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> Joint:
        """Make the method with its network."""
        return Joint(self, self.network(model, pretrained=pretrained))


class Joint(Finetune):
    """Fine-tuning that refuses to be anything but one step."""

    def begin_step(self, step: Step) -> None:
        """The only one."""
        if step.index > 0 or step.future:
            raise UserError(
                f"method joint learns all classes at once; here {', '.join(step.future or step.new)} come in a later "
                "step, which no joint run can learn. Train a run of another method, such as finetune, or one with all "
                "these classes at once: scenario.name joint."
            )
        super().begin_step(step)
