"""MicroSeg and MicroSeg-M (Zhang et al., NeurIPS 2022): classes of regions, and several clusters of the unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn

from ipseg.config import scoped
from ipseg.data.batch import Batch, BatchPlan, StepBatch
from ipseg.errors import require_at_least, require_between
from ipseg.methods.base import Method, ParameterGroup, Prediction
from ipseg.methods.losses import pixel_bce
from ipseg.methods.regions import (
    collapse,
    micro_loss,
    old_classes,
    on_canvas,
    proposed,
    region_bce,
    region_pixels,
    region_prediction,
    region_vectors,
    unlabeled_as_unknown,
)
from ipseg.methods.replay import ReplayConfig, labels_to_learn, plan_with_replay
from ipseg.models.cuda_graphs import run
from ipseg.models.features import Features
from ipseg.models.freezing import freeze_norms, frozen_copy, set_mode, trainable
from ipseg.models.heads import Head, RegionTrunk, he_init
from ipseg.models.network import Encoder, HeadFactory, ModelConfig, Network, logits_of, small_heads
from ipseg.scenario import Step


@dataclass(frozen=True, kw_only=True)
class RegionConfig(ReplayConfig):
    """Settings of methods over regions."""

    uses_regions: ClassVar = True

    confidence: float = scoped(0.7, "later")
    """The teacher's label counts from this probability (the code's)."""

    backbone_lr: float = 0.1
    """The backbone learns at this multiple of the rate in the base step (the code's)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_between("method.confidence", self.confidence, 0, 1)
        require_at_least("method.backbone_lr", self.backbone_lr, 0)


@dataclass(frozen=True, kw_only=True)
class MicroSegConfig(RegionConfig):
    """MicroSeg. The defaults are those of its code."""

    base_step: ClassVar = "microseg"

    name: str = "microseg"
    """The method."""

    unknowns: int = scoped(5, "fixed")
    """Clusters of the unknown (K)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least("method.unknowns", self.unknowns, 1)

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> MicroSeg:
        """Make the method with its network."""
        return MicroSeg(self, region_network(model, self.unknowns, pretrained=pretrained))


@dataclass(frozen=True, kw_only=True)
class MicroSegMConfig(MicroSegConfig):
    """MicroSeg-M: MicroSeg with replay."""

    base_step: ClassVar = "microseg"

    name: str = "microseg_m"
    """The method."""

    replay_share: float = scoped(0.5, "later")
    """Share of a batch that comes from memory after the base step (the code's)."""


# ---- methods over regions -------------------------------------------------------------------------------------------


class RegionNetwork(Network):
    """Heads of regions: the unknown's clusters, the dummy, and one a step."""

    def __init__(self, encoder: Encoder, make_head: HeadFactory, permanent: Head, background: Head) -> None:
        super().__init__(encoder, make_head, permanent, background)
        self.dense: nn.ModuleList | None = None
        """Heads of pixels with the same channels, while the base step trains: they train the encoder alone."""

    @property
    def unknowns(self) -> int:
        """How many clusters the unknown has."""
        return self.permanent.classifier.out_channels

    def heads(self) -> list[nn.Module]:
        """All heads of regions, in the order of their channels."""
        return [*self.persistent_heads(), *self.temporary]

    def region_logits(self, heads: Sequence[nn.Module], vectors: Tensor) -> Tensor:
        """(B, channels, R), in float32."""
        return torch.cat([head(vectors, ())[..., 0].float() for head in heads], dim=1)


def region_network(model: ModelConfig, unknowns: int, *, pretrained: bool) -> RegionNetwork:
    """An encoder, and heads of the unknown and the dummy."""

    def heads(outputs: int) -> Head:
        head = he_init(Head(RegionTrunk(model.width), model.width, outputs))
        with torch.no_grad():  # the spread of 3x3, which matters: a new head's normalization stays as it begins
            for weight in head.trunk.parameters():
                if weight.ndim == 4:
                    weight.div_(3)
        return head

    return RegionNetwork(Encoder(model, pretrained=pretrained), heads, heads(unknowns), heads(1))


Config = TypeVar("Config", bound=RegionConfig)


class RegionMethod(Method, Generic[Config]):
    """A sigmoid a channel of every region: unknown, a dummy, and the classes of every step."""

    network: RegionNetwork

    def __init__(self, config: Config, network: RegionNetwork) -> None:
        self.config, self.network = config, network

    def prepare(self, _batches: object) -> None:
        """Dense heads for the base step."""
        if self.step.index == 0:
            like = self.network.permanent.classifier.weight
            make = small_heads(like.shape[1])
            outputs = [self.network.unknowns, 1, len(self.step.new)]
            self.network.dense = nn.ModuleList(make(count) for count in outputs).to(like.device)

    def end_step(self, _batches: object) -> None:
        """Prediction needs no dense heads."""
        self.network.dense = None

    def train_mode(self) -> None:
        """After the base step batch statistics stay as they are, everywhere."""
        set_mode(self.network, training=self.step.index == 0)

    def plan(self, batch_size: int, memory: int) -> BatchPlan:
        """New images, and with replay as many stored ones."""
        return plan_with_replay(batch_size, memory if self.step.index > 0 else 0, self.config.replay_share)

    def dense_loss(self, features: Features, targets: Tensor) -> dict[str, Tensor]:
        """Binary cross-entropy of pixels, in the base step."""
        if self.network.dense is None:
            return {}
        logits = torch.cat([logits_of(head, features) for head in self.network.dense], dim=1)
        return {"dense": pixel_bce(collapse(logits, self.network.unknowns), targets)}

    # ---- inference ----------------------------------------------------------------------------------------------

    def predict(self, images: Tensor, boxes: Tensor | None = None) -> Prediction:
        """By regions that are proposed without a model."""
        return self._predict(images, boxes, proposed(images, boxes))

    def predict_batch(self, batch: Batch) -> Prediction:
        """By the regions of the data set."""
        assert batch.regions is not None
        return self._predict(batch.images, batch.boxes, batch.regions)

    @torch.no_grad()
    def _predict(self, images: Tensor, boxes: Tensor | None, regions: Tensor) -> Prediction:
        network = self.network
        set_mode(network, training=False)
        features = run(self.recorder, network.encoder, images, boxes)
        regions = on_canvas(regions, network.encoder)
        logits = network.region_logits(network.heads(), region_vectors(features.decoded, regions))
        height, width = features.canvas.original
        return region_prediction(collapse(logits, network.unknowns), regions[:, :height, :width])


# ---- MicroSeg -------------------------------------------------------------------------------------------------------


class MicroSeg(RegionMethod[MicroSegConfig]):
    """Whatever earlier steps learned is frozen."""

    def __init__(self, config: MicroSegConfig, network: RegionNetwork) -> None:
        super().__init__(config, network)
        self.teacher: list[nn.Module] | None = None
        """The heads of unknown and dummy of f_{t-1}; all else of it is the network's, for it is frozen."""

    def begin_step(self, step: Step) -> None:
        """Freeze all that earlier steps learned, and add a head."""
        super().begin_step(step)
        network = self.network
        self.teacher = [frozen_copy(head) for head in network.persistent_heads()] if step.index > 0 else None
        network.add_step(len(step.new), len(step.new))
        if step.index > 0:
            network.freeze_previous()
            freeze_norms(network)

    def parameter_groups(self) -> list[ParameterGroup]:
        """Base: everything, the backbone slower. Later: the new head and those of unknown and dummy."""
        network = self.network
        groups = [
            ParameterGroup(trainable(network.encoder.backbone), self.config.backbone_lr),
            ParameterGroup([p for part in self._trained() for p in trainable(part)], 1.0),
        ]
        return [group for group in groups if group.parameters]

    def _trained(self) -> list[nn.Module]:
        network = self.network
        dense = [] if network.dense is None else [network.dense]
        return [network.encoder.decoder, *network.heads(), *dense]

    def loss(self, batch: StepBatch) -> Mapping[str, Tensor]:
        """Binary cross-entropy of the regions, the loss between the unknown's clusters, and in the base step pixels."""
        crops, network, unknowns = batch.inputs, self.network, self.network.unknowns
        assert crops.regions is not None
        with torch.set_grad_enabled(self.teacher is None):
            features = network.encoder(crops.images, crops.boxes)
            vectors = region_vectors(features.decoded, on_canvas(crops.regions, network.encoder))
        persistent = network.region_logits(network.persistent_heads(), vectors)
        classes = network.region_logits([*network.temporary], vectors)
        labels = labels_to_learn(batch, self.config.replayed_labels)
        targets = unlabeled_as_unknown(labels, self._old_classes(vectors, classes, crops.regions, labels))
        logits = torch.cat([persistent, classes], dim=1)
        return {
            "segmentation": region_bce(collapse(logits, unknowns), crops.regions, targets),
            "micro": micro_loss(persistent[:, :unknowns], region_pixels(crops.regions)),
            **self.dense_loss(features, targets),
        }

    @torch.no_grad()
    def _old_classes(self, vectors: Tensor, classes: Tensor, regions: Tensor, like: Tensor) -> Tensor:
        """(B, H, W): the old class that the teacher is sure of; 0 elsewhere, and everywhere in the base step."""
        if self.teacher is None:
            return torch.zeros_like(like)
        persistent = self.network.region_logits(self.teacher, vectors)
        logits = torch.cat([persistent, classes[:, : len(self.step.old)]], dim=1)
        return old_classes(collapse(logits, self.network.unknowns), regions, self.config.confidence)
