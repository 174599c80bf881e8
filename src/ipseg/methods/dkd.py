"""DKD and DKD-M (Baek et al., NeurIPS 2022): distillation of what speaks for a class and of what speaks against it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ipseg.config import scoped
from ipseg.data.batch import Batch, StepBatch
from ipseg.data.memory import MemLabels
from ipseg.errors import require_at_least, require_between
from ipseg.methods.distillation import distill_sigmoid
from ipseg.methods.losses import mean_over
from ipseg.methods.sigmoid import SigmoidConfig, SigmoidMethod, new_class_bce
from ipseg.models.boxes import inside, touched
from ipseg.models.network import ModelConfig
from ipseg.models.softmax import SoftmaxNetwork, SoftmaxOutput
from ipseg.scenario import Step


@dataclass(frozen=True, kw_only=True)
class DkdConfig(SigmoidConfig):
    """DKD. The defaults are those of its code for VOC."""

    base_step: ClassVar = "dkd"

    name: str = "dkd"
    """The method."""

    base_positive_weight: float = 2.0
    """Weight of a class's own pixels in the base step (the code's for VOC; ADE20K: 35)."""

    positive_weight: float = scoped(1.0, "later")
    """The same in later steps (the code's for VOC; ADE20K: 35)."""

    auxiliary: float = 1.0
    """Weight of the auxiliary classifier's loss (the code's)."""

    distillation: float = scoped(5.0, "later")
    """Weight of the distillation of old classes' logits (the code's)."""

    decomposed: float = scoped(5.0, "later")
    """Weight of the distillation of their positive and negative parts (the code's)."""

    confidence: float = scoped(0.9, "later")
    """With replay: an old class is in an image to be stored where it has this probability (the code's)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("base_positive_weight", "positive_weight", "auxiliary", "distillation", "decomposed"):
            require_at_least(f"method.{name}", getattr(self, name), 0)
        require_between("method.confidence", self.confidence, 0, 1)

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> Dkd:
        """Make the method with its network."""
        return Dkd(self, self.network(model, pretrained=pretrained))

    def depends_on(self) -> dict[str, tuple[bool, str]]:
        """Of settings that do not always count, whether they do, and when they would."""
        return super().depends_on() | {"confidence": (self.replays, "method.replay_share above 0")}


@dataclass(frozen=True, kw_only=True)
class DkdMConfig(DkdConfig):
    """DKD-M: DKD with replay."""

    base_step: ClassVar = "dkd"

    name: str = "dkd_m"
    """The method."""

    replay_share: float = scoped(0.2, "later")
    """Share of a batch that comes from memory after the base step (the code joins 100 stored images to a step's own,
    of which VOC 15-1 has 300 to 550)."""

    mem_labels: MemLabels = scoped("current", "later")
    """What a replayed image's labels hold. annotated: those of the step that stored it, and of every step since that
    shows it too. sampled: of the first of these alone. current: of the step that runs alone (the code's). all_seen:
    every class seen so far (an oracle). The rest is background."""


class Dkd(SigmoidMethod[DkdConfig]):
    """New classes start as an auxiliary one that learned to say no; old ones keep their reasons."""

    def __init__(self, config: DkdConfig, network: SoftmaxNetwork) -> None:
        super().__init__(config, network)
        network.auxiliary = nn.Conv2d(network.width, 1, 1)

    @property
    def auxiliary(self) -> nn.Conv2d:
        """A classifier of nothing: no pixel is its own."""
        return cast("nn.Conv2d", self.network.auxiliary)

    @torch.no_grad()
    def begin_step(self, step: Step) -> None:
        """Every new class starts as the auxiliary classifier."""
        super().begin_step(step)
        if self.teacher is not None:
            new = self.network.classifiers[-1]
            for target, source in zip(new.parameters(), self.auxiliary.parameters(), strict=True):
                target.copy_(source.expand_as(target))

    def loss(self, batch: StepBatch) -> Mapping[str, Tensor]:
        """Binary cross-entropy of the new classes and the auxiliary one; distillation of the old ones."""
        crops, config, known = batch.inputs, self.config, len(self.step.old)
        output = self.network(crops.images, crops.boxes)
        logits, shown = output.upsampled(), inside(crops.boxes, output.canvas.original)
        weight = config.positive_weight if known else config.base_positive_weight
        nothing = output.canvas.upsample(self.auxiliary(output.decoded.detach()).float())
        parts = {
            "segmentation": new_class_bce(logits[:, known:], self.labels(batch), 1 + known, weight),
            "auxiliary": config.auxiliary * mean_over(F.softplus(nothing[:, 0]), shown),
        }
        if self.teacher is None:
            return parts
        before = self.teacher_outputs(crops)
        cells = touched(crops.boxes, output.canvas.padded, output.decoded.shape[-2:])
        pairs = zip(decomposed(output, self.network, known), decomposed(before, self.teacher, known), strict=True)
        each = torch.stack([distill_sigmoid(new, old, cells) for new, old in pairs])
        distillation = distill_sigmoid(logits, before.upsampled(), shown)
        return parts | {
            "distillation": config.distillation * distillation,
            "decomposed": config.decomposed * each.sum(),
        }

    def pseudo_labels(self, batch: Batch) -> Tensor:
        """Labels that the model is sure of: memory keeps which classes an image has."""
        best, labels = self.predict_batch(batch).scores.max(1)
        return labels.where(best >= self.config.confidence, 0)


def decomposed(output: SoftmaxOutput, network: SoftmaxNetwork, classes: int) -> tuple[Tensor, Tensor]:
    """(B, classes, h, w) twice: what the classifiers' positive weights add to the logits, and what the negative do."""
    weights = torch.cat([cast("nn.Conv2d", classifier).weight for classifier in network.classifiers])[:classes]
    return F.conv2d(output.decoded, weights.clamp(min=0)), F.conv2d(output.decoded, weights.clamp(max=0))
