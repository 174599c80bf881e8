"""Base class of the softmax methods: DeepLabV3 with a classifier a step, the teacher, replay. Each adds its loss."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Generic, Literal, TypeVar

import torch
from torch import Tensor

from ipseg.config import scoped
from ipseg.data.batch import Batch, BatchPlan, StepBatch
from ipseg.errors import require_at_least
from ipseg.methods.base import Method, ParameterGroup, Prediction
from ipseg.methods.ewf import fuse_weights, new_share
from ipseg.methods.replay import ReplayConfig, labels_to_learn, plan_with_replay
from ipseg.models.cuda_graphs import run
from ipseg.models.freezing import freeze, frozen_copy, set_mode, trainable
from ipseg.models.network import ModelConfig
from ipseg.models.softmax import SoftmaxNetwork, SoftmaxOutput
from ipseg.scenario import Step


@dataclass(frozen=True, kw_only=True)
class SoftmaxConfig(ReplayConfig):
    """Settings of every softmax method. The rates are those of MiB's code, which the baselines come from too."""

    head: Literal["deeplab", "ipseg"] = scoped("deeplab", "fixed")
    """Layers between decoder and classifiers. deeplab: none (DeepLabV3, the published one). ipseg: one
    trunk of IPSeg's heads, for comparisons on one and the same network."""

    backbone_lr: float = 1.0
    """The backbone learns at this multiple of the rate (MiB's code: all layers at one rate)."""

    later_lr: float = scoped(0.1, "later")
    """After the base step everything learns at this multiple of the rate (MiB: 0.01, then 0.001)."""

    freeze_old_classifiers: bool = scoped(False, "later")
    """Classifiers of earlier steps, the background's too, learn no more (EWF; PLOP+NeST on VOC)."""

    fuse: Literal["none", "endpoints"] = scoped("none", "later")
    """endpoints (EWF): after a step the weights are a mean of those before and after it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least("method.backbone_lr", self.backbone_lr, 0)
        require_at_least("method.later_lr", self.later_lr, 0)

    def network(self, model: ModelConfig, *, pretrained: bool) -> SoftmaxNetwork:
        """The network of every softmax method."""
        return SoftmaxNetwork(model, trunk=self.head == "ipseg", pretrained=pretrained)


PLAIN_BASE = "softmax cross-entropy"
"""`base_step` of the methods whose base step is plain cross-entropy."""


Config = TypeVar("Config", bound=SoftmaxConfig)


class SoftmaxMethod(Method, Generic[Config]):
    """One softmax over background and every class seen; all of it goes on learning. What is left to write is `loss`."""

    network: SoftmaxNetwork
    background: ClassVar[bool] = True
    """Whether the first classifier has an output for the background."""

    def __init__(self, config: Config, network: SoftmaxNetwork) -> None:
        self.config, self.network = config, network
        self.teacher: SoftmaxNetwork | None = None
        """The model as it was after the last step, frozen; not part of the network, for each run copies it anew."""

    def begin_step(self, step: Step) -> None:
        """Copy the teacher, and add a classifier for the step's classes."""
        super().begin_step(step)
        self.teacher = frozen_copy(self.network) if step.index > 0 else None
        self.network.add_step(len(step.new) + (self.background and step.index == 0))
        if self.teacher is not None:
            self.init_new_classifier()
            for old in self.network.classifiers[:-1] if self.config.freeze_old_classifiers else ():
                freeze(old)

    def init_new_classifier(self) -> None:
        """Give the new classes their first weights; by default they stay as they were drawn."""

    def end_step(self, _batches: Iterable[StepBatch]) -> None:
        """EWF's mean of the weights, if wanted."""
        if self.teacher is not None and self.config.fuse == "endpoints":
            fuse_weights(self.network, self.teacher, new_share(len(self.step.new), len(self.step.seen)))

    def parameter_groups(self) -> list[ParameterGroup]:
        """The backbone and the rest, both slower after the base step; what a method has frozen is left out."""
        factor = 1.0 if self.step.index == 0 else self.config.later_lr
        backbone = trainable(self.network.encoder.backbone)
        known = {id(parameter) for parameter in backbone}
        rest = [parameter for parameter in trainable(self.network) if id(parameter) not in known]
        return [ParameterGroup(backbone, factor * self.config.backbone_lr), ParameterGroup(rest, factor)]

    def plan(self, batch_size: int, memory: int) -> BatchPlan:
        """New images, and after the base step the share of replayed ones."""
        return plan_with_replay(batch_size, memory if self.step.index > 0 else 0, self.config.replay_share)

    def labels(self, batch: StepBatch) -> Tensor:
        """(B, H, W): the step's labels, and those of replayed images as `mem_labels` says."""
        return labels_to_learn(batch, self.config.replayed_labels)

    @torch.no_grad()
    def teacher_outputs(self, crops: Batch) -> SoftmaxOutput:
        """Outputs of the teacher."""
        assert self.teacher is not None
        output: SoftmaxOutput = self.teacher(crops.images, crops.boxes)
        return output

    @torch.no_grad()
    def predict(self, images: Tensor, boxes: Tensor | None = None) -> Prediction:
        """Softmax probabilities."""
        set_mode(self.network, training=False)
        scores = run(self.recorder, self.network, images, boxes).upsampled().softmax(1)
        return Prediction(scores, scores)
