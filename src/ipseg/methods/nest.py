"""NeST (Xie et al., ECCV 2024): before a step new classifiers are tuned as transformations of the old ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ipseg.config import scoped
from ipseg.data.batch import StepBatch
from ipseg.errors import require_at_least
from ipseg.methods.distillation import unbiased_ce
from ipseg.methods.labels import nearest_labels, padded_labels
from ipseg.methods.mib import Mib, MibConfig
from ipseg.methods.plop import Plop, PlopConfig
from ipseg.methods.softmax import PLAIN_BASE, SoftmaxConfig, SoftmaxMethod
from ipseg.models.network import ModelConfig
from ipseg.models.precision import autocast_disabled
from ipseg.models.reduce import all_reduce_sum, world_size
from ipseg.models.resize import upsample

GRID = 128
"""Features, probabilities and labels are compared on so many cells a side (the code's)."""


@dataclass(frozen=True, kw_only=True)
class NestConfig(SoftmaxConfig):
    """What NeST adds to a method. The defaults are those of its code for VOC."""

    tuning_epochs: int = scoped(5, "later")
    """Passes over the step's images that tune the transformation (the code's; ADE20K: 15)."""

    tuning_lr: float = scoped(0.001, "later")
    """The rate of it at the beginning (the code's; ADE20K: 0.5)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least("method.tuning_epochs", self.tuning_epochs, 0)
        require_at_least("method.tuning_lr", self.tuning_lr, 0)


@dataclass(frozen=True, kw_only=True)
class MibNestConfig(NestConfig, MibConfig):
    """MiB whose new classifiers are NeST's."""

    base_step: ClassVar = PLAIN_BASE

    name: str = "mib_nest"
    """The method."""

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> MibNest:
        """Make the method with its network."""
        return MibNest(self, self.network(model, pretrained=pretrained))


@dataclass(frozen=True, kw_only=True)
class PlopNestConfig(NestConfig, PlopConfig):
    """PLOP whose new classifiers are NeST's."""

    base_step: ClassVar = PLAIN_BASE

    name: str = "plop_nest"
    """The method."""

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> PlopNest:
        """Make the method with its network."""
        return PlopNest(self, self.network(model, pretrained=pretrained))


class MibNest(Mib):
    """MiB; new classifiers and the background's begin as `prepare` tunes them."""

    config: MibNestConfig

    def init_new_classifier(self) -> None:
        """Not as background: `prepare` does it."""

    def prepare(self, batches: Iterable[StepBatch]) -> None:
        """NeST's tuning."""
        super().prepare(batches)
        if self.teacher is not None:
            tune_new_classifier(self, batches, self.config)


class PlopNest(Plop):
    """PLOP; new classifiers and the background's begin as `prepare` tunes them."""

    config: PlopNestConfig

    def init_new_classifier(self) -> None:
        """Not as background: `prepare` does it."""

    def prepare(self, batches: Iterable[StepBatch]) -> None:
        """PLOP's medians, and NeST's tuning."""
        super().prepare(batches)
        if self.teacher is not None:
            tune_new_classifier(self, batches, self.config)


def tune_new_classifier(method: SoftmaxMethod[Any], batches: Iterable[StepBatch], config: NestConfig) -> None:
    """One pass over the step to begin the transformation, others to tune it; batch statistics move too, as coded."""
    weights, biases = method.network.rows()
    weight, bias = torch.cat(weights[:-1]).detach(), torch.cat(biases[:-1]).detach()
    classes = range(len(weight), len(weight) + len(weights[-1]))
    sums, counts, passes = weight.new_zeros(()), weight.new_zeros(()), 0
    for batch in batches:
        said, count = method.teacher_outputs(batch.inputs), batch.num_new
        logits = upsample(said.logits[:count], said.canvas.padded)
        labels = padded_labels(batch.inputs.labels[:count], said.canvas)
        found = importance_sums(said.decoded[:count].float(), logits, labels, weight, classes)
        sums, counts, passes = sums + found[0], counts + found[1], passes + 1
    transformation = Transformation(weight, bias, all_reduce_sum(sums), all_reduce_sum(counts))
    _tune(method, batches, transformation, config, config.tuning_epochs * passes)
    with torch.no_grad():
        rows, new_biases = transformation.rescaled()
        weights[0][0].copy_(rows[0])
        weights[-1].copy_(rows[len(weight) :])
        biases[-1].copy_(new_biases)


class Transformation(nn.Module):
    """New rows as sums over old ones, each times a matrix element by element; the background's row times a vector."""

    def __init__(self, weight: Tensor, bias: Tensor, sums: Tensor, counts: Tensor) -> None:
        """weight: (old, C), bias: (old,), background first; sums, counts: see `importance_sums`."""
        super().__init__()
        self.weight, self.old_bias = weight, bias
        found = (counts > 0)[:, None, None]
        importance = torch.where(found, sums / counts.clamp(min=1)[:, None, None], 1)  # no pixel: all are alike
        self.importance = nn.Parameter(importance)
        self.projection = nn.Parameter(importance.sum(2).softmax(1))
        self.background_importance = nn.Parameter(torch.ones_like(weight[:1]))
        self.background_projection = nn.Parameter(torch.ones_like(weight[:1, :1]))
        self.bias = nn.Parameter(bias[:1].repeat(len(sums)))

    def rows(self) -> Tensor:
        """(old + new, C)."""
        new = torch.einsum("ik,ikc->ic", self.projection, self.importance * self.weight)
        background = self.background_projection * self.background_importance * self.weight[:1]
        return torch.cat([background, self.weight[1:], new])

    def forward(self, features: Tensor) -> Tensor:
        """(B, old + new, h, w) logits of (B, C, h, w) features."""
        return F.conv2d(features, self.rows()[..., None, None], torch.cat([self.old_bias, self.bias]))

    def rescaled(self) -> tuple[Tensor, Tensor]:
        """Rows and new biases, with norms like those of the old ones."""
        rows, old = self.rows(), len(self.weight)
        background = rows[:1] * self.weight[0].norm() / rows[0].norm()
        new = rows[old:] * self.weight.norm(dim=1).mean() / rows[old:].norm(dim=1).mean()
        return torch.cat([background, rows[1:old], new]), self.bias * self.old_bias.norm() / self.bias.norm()


def importance_sums(
    features: Tensor, logits: Tensor, labels: Tensor, weight: Tensor, classes: range
) -> tuple[Tensor, Tensor]:
    """(new, old, C) sums over the pixels of each new class of q_k [f_c w_kc > 0], and (new,) how many these are.

    q: the old model's softmax; f: its features; a channel speaks for class k where it has the sign of its weight.
    """
    size = (GRID, GRID)
    probabilities = upsample(logits, size).softmax(1).movedim(1, -1)
    features, labels = upsample(features, size).movedim(1, -1), nearest_labels(labels, size)
    sums, counts = [], []
    for label in classes:
        q, f = probabilities[labels == label], features[labels == label]
        with autocast_disabled(f):
            above, below = q.T @ (f > 0).to(q.dtype), q.T @ (f < 0).to(q.dtype)
        sums.append(torch.where(weight > 0, above, below) * (weight != 0))
        counts.append(q.new_tensor(len(q)))
    return torch.stack(sums), torch.stack(counts)


def _tune(
    method: SoftmaxMethod[Any],
    batches: Iterable[StepBatch],
    transformation: Transformation,
    config: NestConfig,
    iterations: int,
) -> None:
    """Unbiased cross-entropy, SGD, poly schedule."""
    parameters = list(transformation.parameters())
    optimizer = torch.optim.SGD(parameters, config.tuning_lr, momentum=0.9, weight_decay=1e-4, nesterov=True)
    poly = torch.optim.lr_scheduler.PolynomialLR(optimizer, iterations, power=0.9)
    method.train_mode()
    for batch in chain.from_iterable(batches for _ in range(config.tuning_epochs)):
        with torch.no_grad():
            output = method.network(batch.inputs.images, batch.inputs.boxes)
        logits = output.canvas.upsample(transformation(output.decoded).float())
        loss = unbiased_ce(logits, method.labels(batch), old=len(transformation.weight))
        gradients = torch.autograd.grad(loss, parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = all_reduce_sum(gradient) / world_size()
        optimizer.step()
        poly.step()
