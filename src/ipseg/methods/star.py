"""STAR (Chen et al., NeurIPS 2023): a step learns from features drawn around the prototypes of old classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from ipseg.config import scoped
from ipseg.data.batch import Batch, StepBatch
from ipseg.errors import require_at_least
from ipseg.methods.base import ParameterGroup
from ipseg.methods.labels import labels_at_cells
from ipseg.methods.losses import mean_over
from ipseg.methods.prototypes import class_masks, class_sums, masked_sums
from ipseg.methods.sigmoid import SigmoidConfig, SigmoidMethod, new_class_bce
from ipseg.models.boxes import touched
from ipseg.models.features import Canvas
from ipseg.models.freezing import set_mode, trainable
from ipseg.models.network import ModelConfig
from ipseg.models.reduce import all_reduce_sum, of_first_process, world_size
from ipseg.models.softmax import SoftmaxNetwork, SoftmaxOutput
from ipseg.scenario import IGNORE, Step

LEAST_LOGIT = 0.5
"""From which the teacher's label counts while a step trains: a logit, as in the code; of the probability it is 0.62."""
NEAREST = 1e-3
"""The least distance of two prototypes."""


@dataclass(frozen=True, kw_only=True)
class StarConfig(SigmoidConfig):
    """STAR. The defaults are those of its code for VOC."""

    base_step: ClassVar = "star"

    name: str = "star"
    """The method."""

    positive_weight: float = 4.0
    """Weight of a class's own pixels (the code's for VOC; ADE20K: 30)."""

    new_lr: float = scoped(10.0, "later")
    """After the base step the new classifier learns at this multiple of the rate of the others (the code: 100 times the
    backbone's)."""

    features: float = scoped(5.0, "later")
    """Weight of the squared distance of features to the teacher's where it finds old classes (the code's)."""

    contrast: float = scoped(0.05, "later")
    """Weight of the loss that keeps new prototypes away from old ones (the code's)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("positive_weight", "new_lr", "features", "contrast"):
            require_at_least(f"method.{name}", getattr(self, name), 0)

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> Star:
        """Make the method with its network."""
        return Star(self, self.network(model, pretrained=pretrained))


# ---- what is replayed -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """How much a step replays, so that its cells are of all classes as often as the cells of all steps were."""

    vectors: Tensor
    """(old classes,): how many are drawn in each iteration."""
    background: float
    """How often the background cells of a batch count once more."""
    cells: Tensor
    """(1 + seen classes,): cells of all steps, background first."""


def star_plan(previous: Tensor, current: Tensor, predicted: Tensor, iterations: int, *, overlap: bool) -> Plan:
    """Of each old class what is missing in this step's images.

    previous: (1 + old,) cells of the steps before, background first; current: (1 + new,) those annotated in this step;
    predicted: (1 + old,) what the teacher says of its unannotated cells; iterations: of an epoch. With overlap images
    come again, whose old classes were counted before.
    """
    background = previous[0] * (1 - 0.01 * (len(current) - 1) if overlap else 1)
    missing = previous[1:] - predicted[1:] * overlap
    ratio = background / predicted[0].clamp(min=1) - 0.5 * overlap
    old = previous[1:] + predicted[1:] * (not overlap)
    total = torch.cat([(predicted[0] * (0.5 if overlap else 1) + background)[None], old, current[1:]])
    return Plan((missing / iterations).trunc().clamp(min=0), max(float(ratio), 0.0), total)


def drawn_features(prototypes: Tensor, noise: Tensor, norms: Tensor) -> Tensor:
    """(n, D): directions around the prototypes, and a length that is drawn for every channel, as in the code.

    prototypes, noise: (n, D). norms: (n, 2), mean and standard deviation of the class's lengths.
    """
    direction, length = (torch.randn_like(prototypes) for _ in range(2))
    return (prototypes + noise * direction) * (norms[:, :1] + norms[:, 1:] * length)


def class_moments(features: Tensor, masks: Tensor) -> Tensor:
    """(K, 2 D + 3): sums over a class's cells of directions, their squares, lengths, their squares, and ones."""
    length = features.norm(dim=1, keepdim=True)
    unit = F.normalize(features, dim=1)
    every = torch.cat([unit, unit.square(), length, length.square(), torch.ones_like(length)], dim=1)
    return masked_sums(every, masks)


def class_statistics(moments: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Prototypes (K, D), noise of each channel (K, D), mean and standard deviation of lengths (K, 2)."""
    width = (moments.shape[1] - 3) // 2
    sums, squares, length, length_squares, count = torch.split(moments.double().cpu(), [width, width, 1, 1, 1], dim=1)
    prototypes, there = F.normalize(sums, dim=1), count.clamp(min=1)
    noise = ((squares - 2 * prototypes * sums) / there + prototypes.square()).clamp(min=0).sqrt() * (count > 0)
    mean = length / there
    spread = ((length_squares - count * mean.square()) / (count - 1).clamp(min=1)).clamp(min=0).sqrt()
    return prototypes, noise, torch.cat([mean, spread], dim=1)


# ---- the method -----------------------------------------------------------------------------------------------------


class Star(SigmoidMethod[StarConfig]):
    """New classes learn beside replayed features of the old ones; features of old classes stay."""

    replay_plan = staticmethod(star_plan)

    def __init__(self, config: StarConfig, network: SoftmaxNetwork) -> None:
        super().__init__(config, network)
        width = network.width
        for name, shape in (("prototypes", (0, width)), ("noise", (0, width)), ("norms", (0, 2)), ("cells", (1,))):
            network.register_buffer(name, torch.zeros(shape))
        self.replay = Plan(torch.zeros(0), 0.0, torch.zeros(1))
        """`prepare` makes it anew each time; until then a step replays nothing."""
        self.drawn = torch.zeros(0, dtype=torch.long)
        """(n,): the old class of each feature that an iteration draws."""

    def buffer(self, name: str) -> Tensor:
        """What the network keeps of all classes."""
        return cast("Tensor", getattr(self.network, name))

    def begin_step(self, step: Step) -> None:
        """Room for what is kept of the new classes."""
        super().begin_step(step)
        self.replay, self.drawn = Plan(torch.zeros(len(step.old)), 0.0, torch.zeros(1 + len(step.seen))), self.drawn[:0]
        for name in ("prototypes", "noise", "norms", "cells"):
            kept = self.buffer(name)
            setattr(self.network, name, torch.cat([kept, kept.new_zeros(len(step.new), *kept.shape[1:])]))

    def parameter_groups(self) -> list[ParameterGroup]:
        """After the base step the new classifier is faster than the others."""
        new = trainable(self.network.classifiers[-1])
        known = {id(parameter) for parameter in new}
        backbone, rest = super().parameter_groups()
        others = [parameter for parameter in rest.parameters if id(parameter) not in known]
        factor = 1.0 if self.teacher is None else self.config.new_lr
        return [backbone, ParameterGroup(others, rest.factor), ParameterGroup(new, rest.factor * factor)]

    # ---- before and after a step --------------------------------------------------------------------------------

    @torch.no_grad()
    def prepare(self, batches: Iterable[StepBatch]) -> None:
        """Count cells: of the classes annotated, and of those that the teacher finds where nothing is."""
        known = len(self.step.old)
        current, predicted, iterations = self.counted(batches)
        if self.teacher is None:
            self.replay = Plan(current[:0], 0.0, current)
        else:
            previous = self.buffer("cells")[: 1 + known].cpu()
            self.replay = self.replay_plan(previous, current, predicted, iterations, overlap=self.step.overlap)
        self.drawn = torch.arange(known).repeat_interleave(self.replay.vectors.long()).to(self.buffer("cells").device)

    def counted(self, batches: Iterable[StepBatch]) -> tuple[Tensor, Tensor, int]:
        """(1 + new,) cells annotated, (1 + old,) what the teacher says of the others, and the number of batches."""
        classes, iterations = 1 + len(self.step.seen), 0
        counts = torch.zeros(2, classes, dtype=torch.long, device=self.buffer("cells").device)
        source = self.network if self.teacher is None else self.teacher
        set_mode(source, training=False)
        for batch in batches:
            iterations += 1
            output: SoftmaxOutput = source(batch.inputs.images, batch.inputs.boxes)
            size = output.decoded.shape[-2:]
            labels = labels_at_cells(batch.inputs.labels, output.canvas, size, "nearest-exact")
            counts[0] += torch.bincount(labels[labels != IGNORE], minlength=classes)[:classes]
            if self.teacher is not None:
                found = labels_at_cells(old_classes(output.upsampled()), output.canvas, size, "nearest-exact")
                counts[1] += torch.bincount(found[labels == 0], minlength=classes)
        annotated, predicted = all_reduce_sum(counts).to(torch.get_default_dtype()).cpu()
        known = len(self.step.old)
        return torch.cat([annotated[:1], annotated[1 + known :]]), predicted[: 1 + known], iterations

    @torch.no_grad()
    def end_step(self, batches: Iterable[StepBatch]) -> None:
        """Keep the prototypes of the step's classes."""
        set_mode(self.network, training=False)
        known, total = len(self.step.old), len(self.step.seen)
        moments = torch.zeros(total - known, 2 * self.network.width + 3, device=self.buffer("cells").device)
        for batch in batches:
            output: SoftmaxOutput = self.network(batch.inputs.images, batch.inputs.boxes)
            size = output.decoded.shape[-2:]
            labels = labels_at_cells(batch.inputs.labels, output.canvas, size, "nearest-exact")
            moments += class_moments(output.decoded.float(), class_masks(labels, range(1 + known, 1 + total)))
            self.see(batch.inputs, output, labels)
        kept = class_statistics(all_reduce_sum(moments))
        for name, values in zip(("prototypes", "noise", "norms"), kept, strict=True):
            self.buffer(name)[known:] = values.to(self.buffer(name))
        self.buffer("cells").copy_(self.replay.cells)

    def see(self, crops: Batch, output: SoftmaxOutput, labels: Tensor) -> None:
        """More to look at in the pass of `end_step`; labels: (B, h, w)."""

    # ---- learning -----------------------------------------------------------------------------------------------

    def loss(self, batch: StepBatch) -> Mapping[str, Tensor]:
        """Binary cross-entropy on the step's classes, drawn features and background; features of old classes stay."""
        crops, config, known = batch.inputs, self.config, len(self.step.old)
        output, labels = self.network(crops.images, crops.boxes), self.labels(batch)
        segmentation = new_class_bce(output.upsampled()[:, known:], labels, 1 + known, config.positive_weight)
        if self.teacher is None:
            return {"segmentation": segmentation}
        before, canvas, size = self.teacher_outputs(crops), output.canvas, output.decoded.shape[-2:]
        found = old_classes(before.upsampled()).where(labels == 0, IGNORE)  # of unannotated pixels
        shown = touched(crops.boxes, canvas.padded, size)
        old_cells = resized(((found > 0) & (found != IGNORE))[:, None].float(), canvas, size)[:, 0]
        new_cells = resized(class_masks(labels, range(1 + known, 1 + len(self.step.seen))), canvas, size)
        background = labels_at_cells(found, canvas, size, "nearest-exact") == 0
        features = output.decoded.float()
        return {
            "segmentation": self.with_replay(segmentation, output.logits[:, known:], background, shown),
            "features": config.features * feature_distance(features, before.decoded.float(), old_cells),
            "contrast": config.contrast * contrast(features, new_cells, self.buffer("prototypes")[:known]),
            **self.more_losses(crops, output, labels),
        }

    def more_losses(self, crops: Batch, output: SoftmaxOutput, labels: Tensor) -> dict[str, Tensor]:
        """Of later steps."""
        return {}

    def with_replay(self, segmentation: Tensor, logits: Tensor, background: Tensor, shown: Tensor) -> Tensor:
        """The mean of three losses of the new classes: on pixels, on drawn features, on background cells once more.

        logits: (B, new, h, w). background, shown: (B, h, w) bool. All processes have the same drawn features.
        """
        kept = [self.buffer(name)[self.drawn] for name in ("prototypes", "noise", "norms")]
        new, features = self.network.classifiers[-1], of_first_process(drawn_features(kept[0], kept[1], kept[2]))
        drawn = F.softplus(new(features[..., None, None]).float()).sum() / max(len(features), 1)
        again = mean_over(F.softplus(logits).sum(1), background)
        count, cells = all_reduce_sum(torch.stack([background.sum(), shown.sum()])).float()
        of_drawn, of_again = len(features) / cells, self.replay.background * count / cells
        loss: Tensor = (segmentation + of_drawn * drawn + of_again * again) / (1 + of_drawn + of_again)
        return loss


def old_classes(logits: Tensor) -> Tensor:
    """(B, H, W): the teacher's class, 0 where it has none."""
    best, winner = logits.max(1)
    return (winner + 1).where(best > LEAST_LOGIT, 0)


def resized(masks: Tensor, canvas: Canvas, cells: Iterable[int]) -> Tensor:
    """(B, K, h, w): the shares of (B, K, H, W) masks in the cells of a feature map over the canvas."""
    down, right = (padded - side for padded, side in zip(canvas.padded, canvas.original, strict=True))
    return F.interpolate(F.pad(masks, (0, right, 0, down)), tuple(cells), mode="bilinear", align_corners=False)


def feature_distance(new: Tensor, old: Tensor, weights: Tensor) -> Tensor:
    """The weighted mean squared distance; 0 where nothing has a weight."""
    total = all_reduce_sum(weights.sum()) / world_size()
    return ((new - old).square().mean(1) * weights).sum() / (total + 1e-4 / new.shape[1])


def contrast(features: Tensor, masks: Tensor, prototypes: Tensor) -> Tensor:
    """The mean over new classes of 1 / distance to the nearest old prototype, both of length 1.

    masks: (B, new, h, w) shares. A class that is not in the batch lies at 0, 1 away from all.
    """
    sums, _ = class_sums(F.normalize(features, dim=1), masks)
    apart = torch.linalg.vector_norm(F.normalize(sums, dim=1)[:, None] - prototypes, dim=2)
    loss: Tensor = (1 / apart.amin(1).clamp(min=NEAREST)).mean()
    return loss
