"""SSUL and SSUL-M (Cha et al., NeurIPS 2021): a frozen network, a small head a step, and a class for the unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from ipseg.config import scoped
from ipseg.data.batch import BatchPlan, StepBatch
from ipseg.errors import require_at_least, require_between
from ipseg.methods.base import Method, ParameterGroup, Prediction
from ipseg.methods.labels import confident_old_classes, coupled_labels
from ipseg.methods.losses import pixel_bce
from ipseg.methods.replay import ReplayConfig, labels_to_learn, plan_with_replay
from ipseg.methods.ucb import PixelWeights
from ipseg.models.cuda_graphs import run
from ipseg.models.features import Features
from ipseg.models.freezing import freeze_norms, frozen_copy, set_mode, trainable
from ipseg.models.heads import PURE_BACKGROUND, UNKNOWN
from ipseg.models.network import Encoder, ModelConfig, Network, large_heads, logits_of, small_heads
from ipseg.scenario import IGNORE, Step


@dataclass(frozen=True, kw_only=True)
class SsulConfig(ReplayConfig):
    """SSUL. The defaults are those of its code."""

    base_step: ClassVar = "ssul"

    name: str = "ssul"
    """The method."""

    head: Literal["ssul", "ipseg"] = scoped("ssul", "fixed")
    """ssul: its own small heads, one convolution on the decoder's output. ipseg: IPSeg's, which are fed with the finer
    stages too, for comparisons on one and the same network."""

    confidence: float = scoped(0.7, "later")
    """The teacher's label counts from this probability (the code's)."""

    backbone_lr: float = 0.1
    """The backbone learns at this multiple of the rate in the base step (the code: 0.001 beside 0.01)."""

    unknown_lr: float = scoped(1.0, "later")
    """After the base step the head of the unknown class learns at this multiple of the rate (the code's)."""

    pixel_weights: Literal["none", "ucb"] = scoped("none", "later")
    """ucb: in the loss pixels weigh by the old model's certainty and by the rarity of their class."""

    background_lr: float = scoped(1e-4, "later")
    """The same for the head of the background (the code's)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_between("method.confidence", self.confidence, 0, 1)
        for name in ("backbone_lr", "unknown_lr", "background_lr"):
            require_at_least(f"method.{name}", getattr(self, name), 0)

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> Ssul:
        """Make the method with its network."""
        encoder = Encoder(model, pretrained=pretrained)
        heads = small_heads(model.width) if self.head == "ssul" else large_heads(encoder, model.width)
        return Ssul(self, Network(encoder, heads, permanent=heads(1), background=heads(1)))


@dataclass(frozen=True, kw_only=True)
class SsulMConfig(SsulConfig):
    """SSUL-M: SSUL with replay."""

    base_step: ClassVar = "ssul"

    name: str = "ssul_m"
    """The method."""

    replay_share: float = scoped(0.5, "later")
    """Share of a batch that comes from memory after the base step (the code's)."""


class Ssul(Method):
    """A sigmoid a channel: unknown, background, and the classes of every step from heads of their own."""

    network: Network

    def __init__(self, config: SsulConfig, network: Network) -> None:
        self.config, self.network = config, network
        self.teacher: list[nn.Module] | None = None
        """The heads of unknown and background of f_{t-1}; all else of it is the network's, for it is frozen."""

        self.pixel_weights: PixelWeights | None = None
        """UCB's, if wanted; a part of the network while a step trains."""

    # ---- the life of a step -------------------------------------------------------------------------------------

    def begin_step(self, step: Step) -> None:
        """Freeze all that earlier steps learned, and add a head that begins as that of the unknown class."""
        super().begin_step(step)
        network = self.network
        self.teacher = [frozen_copy(head) for head in network.persistent_heads()] if step.index > 0 else None
        head = network.add_step(len(step.new), len(step.new))
        if step.index > 0:
            head.init_from(network.permanent, [UNKNOWN] * len(step.new))
            network.freeze_previous()
            freeze_norms(network)

    def prepare(self, _batches: Iterable[StepBatch]) -> None:
        """UCB's weights have a state."""
        if self.config.pixel_weights == "ucb" and self.teacher is not None:
            device = self.network.permanent.classifier.weight.device
            self.pixel_weights = PixelWeights(self.step, device, least_certain=0.5, scaled=False)
            self.network.add_module("pixel_weights", self.pixel_weights)

    def end_step(self, _batches: Iterable[StepBatch]) -> None:
        """What only training needs is removed."""
        if self.pixel_weights is not None:
            del self.network.pixel_weights
            self.pixel_weights = None

    def train_mode(self) -> None:
        """After the base step batch statistics stay as they are, everywhere."""
        set_mode(self.network, training=self.teacher is None)

    def parameter_groups(self) -> list[ParameterGroup]:
        """Base: everything, the backbone slower. Later: the new head, the unknown's, and hardly the background's."""
        network, config = self.network, self.config
        unknown, background = network.persistent_heads()
        if self.teacher is None:
            heads = [unknown, background, *network.temporary]
            rest = [parameter for module in (network.encoder.decoder, *heads) for parameter in trainable(module)]
            return [ParameterGroup(trainable(network.encoder.backbone), config.backbone_lr), ParameterGroup(rest, 1.0)]
        return [
            ParameterGroup(trainable(network.temporary[-1]), 1.0),
            ParameterGroup(trainable(unknown), config.unknown_lr),
            ParameterGroup(trainable(background), config.background_lr),
        ]

    def plan(self, batch_size: int, memory: int) -> BatchPlan:
        """New images, and for SSUL-M as many replayed ones."""
        return plan_with_replay(batch_size, memory if self.step.index > 0 else 0, self.config.replay_share)

    # ---- learning -----------------------------------------------------------------------------------------------

    def loss(self, batch: StepBatch) -> Mapping[str, Tensor]:
        """Binary cross-entropy of every channel with one label map. Frozen heads run once, for both models."""
        crops, network = batch.inputs, self.network
        with torch.set_grad_enabled(self.teacher is None):
            features = network.encoder(crops.images, crops.boxes)
        *old, new = (logits_of(head, features) for head in network.temporary)
        persistent = [logits_of(head, features) for head in network.persistent_heads()]
        labels = labels_to_learn(batch, self.config.replayed_labels)
        before, weights = self._teacher_logits(features, old), None
        known = torch.zeros_like(labels) if before is None else confident_old_classes(before, self.config.confidence)
        targets = coupled_labels(labels, known, crops.salient)
        if before is not None and self.pixel_weights is not None:
            kinds = (targets - 1).clamp(min=0).where(targets != IGNORE, IGNORE)  # the unknown counts as background
            weights = self.pixel_weights(kinds, before, labels != IGNORE)
        return {"segmentation": pixel_bce(torch.cat([*persistent, *old, new], dim=1), targets, weights)}

    @torch.no_grad()
    def _teacher_logits(self, features: Features, old: Sequence[Tensor]) -> Tensor | None:
        """Of unknown, background and old classes; none in the base step."""
        if self.teacher is None:
            return None
        return torch.cat([*(logits_of(head, features) for head in self.teacher), *old], dim=1)

    # ---- inference ----------------------------------------------------------------------------------------------

    @torch.no_grad()
    def predict(self, images: Tensor, boxes: Tensor | None = None) -> Prediction:
        """Probabilities; the unknown class counts as background."""
        network = self.network
        set_mode(network, training=False)
        features = run(self.recorder, network.encoder, images, boxes)
        heads = [*network.persistent_heads(), *network.temporary]
        logits = [run(self.recorder, logits_of, head, features) for head in heads]
        probabilities = torch.cat(logits, dim=1).sigmoid()
        unknown, background = probabilities[:, UNKNOWN], probabilities[:, PURE_BACKGROUND]
        scores = torch.cat([(background + unknown)[:, None], probabilities[:, 2:]], dim=1)
        return Prediction(scores, scores, unknown=unknown)
