"""SDR (Michieli and Zanuttigh, CVPR 2021): MiB's losses, and features of a class stay near its prototype."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ipseg.config import scoped
from ipseg.data.batch import StepBatch
from ipseg.errors import require_at_least
from ipseg.methods.distillation import unbiased_ce, unbiased_distill
from ipseg.methods.labels import labels_at_cells
from ipseg.methods.losses import mean_over
from ipseg.methods.prototypes import class_masks, class_means, class_sums
from ipseg.methods.softmax import SoftmaxConfig, SoftmaxMethod
from ipseg.models.boxes import inside
from ipseg.models.network import ModelConfig
from ipseg.models.precision import autocast_disabled
from ipseg.models.reduce import all_reduce_max
from ipseg.models.softmax import SoftmaxNetwork
from ipseg.scenario import Step

LEAST_SUM = 0.01
"""A cell whose features add up to less is as sparse as one of this: there the code divides by almost zero."""


@dataclass(frozen=True, kw_only=True)
class SdrConfig(SoftmaxConfig):
    """SDR. The defaults are those of its code."""

    name: str = "sdr"
    """The method."""

    distillation: float = scoped(100.0, "later")
    """Weight of MiB's unbiased distillation (the code's)."""

    matching: float = scoped(0.01, "later")
    """Weight of the distance of old classes' features, where the old model predicts them, to their prototypes."""

    attraction: float = 0.001
    """Weight of the distance of annotated classes' features to their prototypes (the code's)."""

    repulsion: float = 0.001
    """Weight of the inverse distances between the mean features of a batch's classes (the code's)."""

    sparsity: float = 0.001
    """Weight of the sparsity loss (the code's)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("distillation", "matching", "attraction", "repulsion", "sparsity"):
            require_at_least(f"method.{name}", getattr(self, name), 0)

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> Sdr:
        """Make the method with its network."""
        return Sdr(self, self.network(model, pretrained=pretrained))


class Sdr(SoftmaxMethod[SdrConfig]):
    """Losses of MiB, and four on the backbone's last stage, with a running mean of every class as its prototype."""

    def __init__(self, config: SdrConfig, network: SoftmaxNetwork) -> None:
        super().__init__(config, network)
        network.register_buffer("sums", torch.zeros(1, network.encoder.backbone.channels[-1]))
        network.register_buffer("counts", torch.zeros(1))

    def begin_step(self, step: Step) -> None:
        """Make room for the prototypes of new classes. The background has a row, which stays empty."""
        super().begin_step(step)
        for name in ("sums", "counts"):
            old = self.network.get_buffer(name)
            setattr(self.network, name, torch.cat([old, old.new_zeros(len(step.new), *old.shape[1:])]))

    def loss(self, batch: StepBatch) -> Mapping[str, Tensor]:
        """Cross-entropy and distillation; matching, attraction, repulsion and sparsity."""
        crops, labels, config = batch.inputs, self.labels(batch), self.config
        output = self.network(crops.images, crops.boxes)
        logits, features = output.upsampled(), output.stages[-1].float()
        cells = labels_at_cells(labels, output.canvas, features.shape[-2:])
        prototypes = self._updated_prototypes(features.detach(), cells)
        annotated = class_masks(cells, range(len(prototypes)))
        parts = {"segmentation": unbiased_ce(logits, labels, old=1 + len(self.step.old))}
        with autocast_disabled(features):
            parts["attraction"] = config.attraction * distance_to(prototypes[1:], features, annotated[:, 1:])
            parts["repulsion"] = config.repulsion * repulsion(features, annotated)
            parts["sparsity"] = config.sparsity * sparsity(features, annotated)
        if self.teacher is not None:
            before = self.teacher_outputs(crops).upsampled()
            shown = inside(crops.boxes, output.canvas.original)
            parts["distillation"] = config.distillation * unbiased_distill(logits, before, shown)
            said = labels_at_cells(before.argmax(1), output.canvas, cells.shape[-2:]).where(cells == 0, 0)
            means, counts = class_means(features, class_masks(said, range(1, before.shape[1])))
            apart = (means - prototypes[1 : before.shape[1]]).square().mean(1)
            parts["matching"] = config.matching * mean_where(apart, counts > 0)
        return parts

    @torch.no_grad()
    def _updated_prototypes(self, features: Tensor, cells: Tensor) -> Tensor:
        """(1 + C, width): means over all cells of a class so far, this batch's among them."""
        sums, counts = self.network.get_buffer("sums"), self.network.get_buffer("counts")
        found = class_sums(features, class_masks(cells, range(1, len(counts))))
        for total, part in zip((sums, counts), found, strict=True):
            total[1:] += part
        return sums / counts.clamp(min=1)[:, None]


def mean_where(values: Tensor, there: Tensor) -> Tensor:
    """The mean over classes that are there; zero where none is."""
    return values.where(there, 0).sum() / there.sum().clamp(min=1)


def distance_to(prototypes: Tensor, features: Tensor, masks: Tensor) -> Tensor:
    """Attraction: the mean squared distance of each class's cells to its prototype, the mean over classes."""
    own = torch.einsum("bkhw,kc->bchw", masks, prototypes)
    apart, counts = class_means((features - own).square().mean(1, keepdim=True), masks)
    return mean_where(apart[:, 0], counts > 0)


def repulsion(features: Tensor, masks: Tensor) -> Tensor:
    """The inverse distance between the means of any two classes of the batch, the background's included."""
    means, counts = class_means(features, masks)
    there = counts > 0
    pairs = there[:, None] & there & ~torch.eye(len(there), dtype=torch.bool, device=there.device)
    squared = (means[:, None] - means).square().sum(2)
    return mean_where(squared.where(pairs, 1).clamp(min=1e-12).rsqrt(), pairs)


def sparsity(features: Tensor, masks: Tensor) -> Tensor:
    """How evenly a cell's features are spread over channels: sum exp(e) / sum e, e the share of the class's largest."""
    labeled = masks.sum(1) > 0
    positive = features.relu() * labeled[:, None]  # last stages of the code's networks have nothing below zero
    highest = positive.amax(1, keepdim=True).where(masks > 0, 0).amax((0, 2, 3))
    divisor = torch.einsum("bkhw,k->bhw", masks, all_reduce_max(highest)).where(labeled, 1)
    shares = positive / (divisor + 1e-15)[:, None]
    spread = shares.exp().sum(1) / shares.sum(1).clamp(min=LEAST_SUM)
    return mean_over(spread, labeled)
