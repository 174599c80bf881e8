"""CoinSeg and CoinSeg-M (Zhang et al., ICCV 2023): MicroSeg's regions, and all of the network goes on learning, slowly.

Means of features over regions and over classes are held near those of the old network and away from all others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ipseg.config import scoped
from ipseg.data.batch import StepBatch
from ipseg.errors import require_at_least
from ipseg.methods.base import ParameterGroup
from ipseg.methods.distillation import feature_distance, unbiased_distances
from ipseg.methods.labels import labels_at_cells
from ipseg.methods.losses import global_count
from ipseg.methods.microseg import RegionConfig, RegionMethod, RegionNetwork, region_network
from ipseg.methods.prototypes import class_masks, class_means
from ipseg.methods.regions import (
    label_counts,
    old_classes,
    on_canvas,
    region_bce,
    region_cells,
    region_vectors,
    unlabeled_as_unknown,
)
from ipseg.methods.replay import labels_to_learn
from ipseg.models.boxes import inside, touched
from ipseg.models.freezing import freeze_norms, frozen_copy, trainable
from ipseg.models.network import ModelConfig
from ipseg.models.precision import autocast_disabled
from ipseg.scenario import IGNORE, Step

TEMPERATURE = 0.07
"""Of both contrasts (the code's)."""


@dataclass(frozen=True, kw_only=True)
class CoinSegConfig(RegionConfig):
    """CoinSeg. The defaults are those of its code."""

    base_step: ClassVar = "coinseg"

    name: str = "coinseg"
    """The method."""

    old_lr: float = scoped(0.001, "later")
    """In step t all but the new head and the unknown's learns at this multiple of the rate, times e^-t (the code's)."""

    distillation: float = scoped(0.1, "later")
    """Weight of MiB's unbiased distillation (the code's)."""

    features: float = scoped(0.1, "later")
    """Weight of the squared distance of the decoder's output to the teacher's (the code's)."""

    region_contrast: float = scoped(0.01, "later")
    """Weight of the contrast between the regions of an image (the code's)."""

    label_contrast: float = scoped(0.01, "later")
    """Weight of the contrast between the classes of a batch, pseudo-labels and the unknown among them (the code's)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("old_lr", "distillation", "features", "region_contrast", "label_contrast"):
            require_at_least(f"method.{name}", getattr(self, name), 0)

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> CoinSeg:
        """Make the method with its network."""
        return CoinSeg(self, region_network(model, 1, pretrained=pretrained))


@dataclass(frozen=True, kw_only=True)
class CoinSegMConfig(CoinSegConfig):
    """CoinSeg-M: CoinSeg with replay."""

    base_step: ClassVar = "coinseg"

    name: str = "coinseg_m"
    """The method."""

    replay_share: float = scoped(0.5, "later")
    """Share of a batch that comes from memory after the base step (MicroSeg-M's)."""


class CoinSeg(RegionMethod[CoinSegConfig]):
    """One cluster of the unknown, so that channels are unknown, dummy and classes. Evaluation mode after step 0."""

    def __init__(self, config: CoinSegConfig, network: RegionNetwork) -> None:
        super().__init__(config, network)
        self.teacher: RegionNetwork | None = None
        """The model after the last step, frozen; not part of the network, for each run copies it anew."""

    def begin_step(self, step: Step) -> None:
        """Copy the teacher, and add a head; after the base step it begins as the unknown's."""
        super().begin_step(step)
        network = self.network
        self.teacher = frozen_copy(network) if step.index > 0 else None
        head = network.add_step(len(step.new), len(step.new))
        if step.index > 0:
            head.init_from(network.permanent, [0] * len(step.new))
            freeze_norms(network)

    def parameter_groups(self) -> list[ParameterGroup]:
        """Base: the backbone slower. Later: the new head and the unknown's, and much slower all else."""
        config, network, encoder = self.config, self.network, self.network.encoder
        *old, new = network.temporary
        if self.teacher is None:
            rest = [encoder.decoder, *network.heads(), *([] if network.dense is None else [network.dense])]
            return [
                ParameterGroup(trainable(encoder.backbone), config.backbone_lr),
                ParameterGroup([*chain(*map(trainable, rest))], 1.0),
            ]
        slow = [encoder.backbone, encoder.decoder, *network.persistent_heads()[1:], *old]
        return [
            ParameterGroup([*trainable(network.permanent), *trainable(new)], 1.0),
            ParameterGroup([*chain(*map(trainable, slow))], config.old_lr * math.exp(-self.step.index)),
        ]

    def loss(self, batch: StepBatch) -> Mapping[str, Tensor]:
        """Binary cross-entropy of the regions, in the base step of pixels; later distillation and two contrasts."""
        crops, config, network = batch.inputs, self.config, self.network
        assert crops.regions is not None
        regions = on_canvas(crops.regions, network.encoder)
        features = network.encoder(crops.images, crops.boxes)
        logits = network.region_logits(network.heads(), region_vectors(features.decoded, regions))
        labels = labels_to_learn(batch, config.replayed_labels)
        if self.teacher is None:
            targets = unlabeled_as_unknown(labels, torch.zeros_like(labels))
            return {
                "segmentation": region_bce(logits, crops.regions, targets),
                **self.dense_loss(features, targets),
            }
        with torch.no_grad():
            before = self.teacher.encoder(crops.images, crops.boxes).decoded
            old_logits = self.teacher.region_logits(self.teacher.heads(), region_vectors(before, regions))
            targets = unlabeled_as_unknown(labels, old_classes(old_logits, crops.regions, config.confidence))
        canvas, size = features.canvas, before.shape[-2:]
        shown, cells = inside(crops.boxes, canvas.original), touched(crops.boxes, canvas.padded, size)
        new, old = (F.normalize(each.float(), dim=1) for each in (features.decoded, before))
        classes = labels_at_cells(targets, canvas, size)
        return {
            "segmentation": region_bce(logits, crops.regions, targets),
            "distillation": config.distillation * region_distill(logits, old_logits, crops.regions, shown),
            "features": config.features * feature_distance(features.decoded, before, cells),
            "region_contrast": config.region_contrast * region_contrast(new, old, regions),
            "label_contrast": config.label_contrast * label_contrast(new, old, classes, logits.shape[1]),
        }


def region_distill(new: Tensor, old: Tensor, regions: Tensor, counted: Tensor) -> Tensor:
    """`unbiased_distill` of the logits that pixels have from their regions, exactly; the unknown plays the background.

    new, old: (B, channels, R). regions, counted: (B, H, W). A pixel of no region has 0 for every channel.
    """
    distances = unbiased_distances(F.pad(new, (0, 1)), F.pad(old, (0, 1)))
    pixels = label_counts(regions, torch.where(counted, 0, IGNORE), 1)[..., 0]
    return (distances * pixels).sum() / global_count(pixels.sum())


def region_contrast(new: Tensor, old: Tensor, regions: Tensor) -> Tensor:
    """`contrast` between the regions of each image; the mean over regions.

    new, old: (B, C, h, w), normalized. regions: (B, H, W) over the same canvas.
    """
    there = region_cells(regions, new.shape[-2:]).any(2)
    means, old_means = (region_vectors(each, regions)[..., 0].mT for each in (new, old))
    return contrast(means, old_means, there).sum() / global_count(there.sum())


def label_contrast(new: Tensor, old: Tensor, labels: Tensor, classes: int) -> Tensor:
    """`contrast` between the classes of all images; the mean over those that are there.

    new, old: (B, C, h, w), normalized. labels: (B, h, w), of the cells.
    """
    masks = class_masks(labels, range(classes))
    (means, counts), (old_means, _) = class_means(new, masks), class_means(old, masks)
    return contrast(means, old_means, counts > 0).sum() / (counts > 0).sum().clamp(min=1)


def contrast(new: Tensor, old: Tensor, there: Tensor) -> Tensor:
    """(..., K) InfoNCE of each new mean: near its own old one, away from the others, new and old; 0 where not there.

    new, old: (..., K, C). there: (..., K) bool.
    """
    own = torch.eye(there.shape[-1], dtype=torch.bool, device=there.device)
    compared = torch.cat([there[..., None, :] & ~own, there[..., None, :] | own], dim=-1)
    logits = contrast_logits(new, old)
    positive = logits[..., there.shape[-1] :].diagonal(dim1=-2, dim2=-1)
    return (logits.masked_fill(~compared, -math.inf).logsumexp(-1) - positive).where(there, 0)


def contrast_logits(new: Tensor, old: Tensor) -> Tensor:
    """(..., K, 2 K): products of each new mean with all new and all old ones, which get no gradient."""
    with autocast_disabled(new):
        return new @ torch.cat([new, old], dim=-2).detach().mT / TEMPERATURE
