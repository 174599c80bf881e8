"""RCIL (Zhang et al., CVPR 2022): beside each 3x3 convolution one that learns; before the next step they merge."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.fusion import fuse_conv_bn_weights

from ipseg.config import scoped
from ipseg.data.batch import StepBatch
from ipseg.errors import UserError, require_at_least
from ipseg.methods.distillation import background_takes_new, squares_apart, unbiased_ce, unbiased_distill
from ipseg.methods.losses import global_count, pixel_ce
from ipseg.methods.softmax import SoftmaxConfig, SoftmaxMethod
from ipseg.models.boxes import inside, touched
from ipseg.models.decoder import Norm
from ipseg.models.freezing import freeze
from ipseg.models.network import ModelConfig
from ipseg.models.precision import autocast_disabled
from ipseg.models.reduce import of_first_process
from ipseg.models.softmax import SoftmaxOutput
from ipseg.scenario import Step

WINDOWS = (4, 8, 12, 16, 20, 24)
"""Sides of the squares that are averaged before maps are compared."""


@dataclass(frozen=True, kw_only=True)
class RcilConfig(SoftmaxConfig):
    """RCIL. The defaults are those of its code for VOC."""

    name: str = "rcil"
    """The method."""

    distillation: float = scoped(100.0, "later")
    """Weight of the unbiased distillation (the code's)."""

    pooled: float = scoped(0.01, "later")
    """Weight of the distance of pooled maps, over space and over channels (the code's for VOC; ADE20K: 0.000005)."""

    pooled_last: float = scoped(0.0005, "later")
    """The same for the last map: the logits over space, the decoder's output over channels (the code's for VOC; ADE20K:
    0.0000005)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("distillation", "pooled", "pooled_last"):
            require_at_least(f"method.{name}", getattr(self, name), 0)

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> Rcil:
        """Make the method with its network."""
        network = self.network(model, pretrained=pretrained)
        if not double_convolutions(network.encoder.backbone):
            raise UserError(
                f"method rcil learns beside 3x3 convolutions that a batch normalization follows, and backbone "
                f"{model.backbone.name} has none. Choose one with them: resnet101."
            )
        double_convolutions(network.encoder.decoder)
        return Rcil(self, network)


# ---- two branches ---------------------------------------------------------------------------------------------------


class TwoBranches(nn.Conv2d):
    """Half the sum of two convolutions, each with its batch normalization. The own weights are those of the first."""

    def __init__(self, convolution: nn.Conv2d, norm: _BatchNorm) -> None:
        super().__init__(
            convolution.in_channels,
            convolution.out_channels,
            3,
            convolution.stride,  # type: ignore[arg-type]
            convolution.padding,  # type: ignore[arg-type]
            convolution.dilation,  # type: ignore[arg-type]
            convolution.groups,
            bias=False,
        )
        self.weight = convolution.weight
        self.second = nn.Parameter(convolution.weight.detach().clone())
        self.norms = nn.ModuleList(Norm(norm.num_features, eps=norm.eps, momentum=norm.momentum) for _ in range(2))
        for each in self.norms:
            each.load_state_dict(norm.state_dict())
        self.shares: Tensor | None = None
        """(2, channels): how much of each branch counts while it trains."""

    def forward(self, x: Tensor) -> Tensor:
        first, second = (
            norm(self._conv_forward(x, weight, None))
            for norm, weight in zip(self.norms, (self.weight, self.second), strict=True)
        )
        if not self.training or self.shares is None:
            return cast("Tensor", (first + second) / 2)
        shares = self.shares.to(first.dtype)[..., None, None] / 2
        return cast("Tensor", first * shares[0] + second * shares[1])

    @torch.no_grad()
    def merge(self) -> None:
        """The first branch becomes what both were, frozen; the second stays as it is."""
        first, second = cast("list[Norm]", list(self.norms))
        weight, bias = merged((self.weight, self.second), (first, second))
        self.weight.copy_(weight)
        first.reset_running_stats()
        first.weight.fill_(math.sqrt(1 + first.eps))  # divides by as much
        first.bias.copy_(bias)
        self.weight.requires_grad = False
        freeze(first)


def merged(weights: Sequence[Tensor], norms: Sequence[_BatchNorm]) -> tuple[Tensor, Tensor]:
    """Weight and bias of one convolution that computes half the sum of several, each with its batch normalization."""
    fused = []
    for weight, norm in zip(weights, norms, strict=True):
        mean, var = cast("Tensor", norm.running_mean), cast("Tensor", norm.running_var)
        fused.append(fuse_conv_bn_weights(weight, None, mean, var, norm.eps, norm.weight, norm.bias))
    weight, bias = (torch.stack(each).mean(0) for each in zip(*fused, strict=True))
    return weight, bias


def double_convolutions(module: nn.Module) -> int:
    """Give a second branch to every 3x3 convolution that a batch normalization follows. Returns how many there are."""
    doubled = 0
    for parent in list(module.modules()):
        children = list(parent.named_children())
        for (name, convolution), (norm_name, norm) in pairwise(children):
            if type(convolution) is nn.Conv2d and convolution.kernel_size == (3, 3) and isinstance(norm, _BatchNorm):
                setattr(parent, name, TwoBranches(convolution, norm))
                # timm's layers that normalize and activate at once go on activating: the sum, not each branch
                setattr(parent, norm_name, getattr(norm, "act", nn.Identity()))
                doubled += 1
    return doubled


# ---- the method -----------------------------------------------------------------------------------------------------


class Rcil(SoftmaxMethod[RcilConfig]):
    """MiB's losses on a network of two branches, and distances of pooled maps."""

    def branches(self) -> Iterator[TwoBranches]:
        """The doubled convolutions."""
        return (module for module in self.network.modules() if isinstance(module, TwoBranches))

    @torch.no_grad()
    def begin_step(self, step: Step) -> None:
        """Merge what was learned; new classes start with the background's weights."""
        super().begin_step(step)
        if self.teacher is not None:
            for layer in self.branches():
                layer.merge()
            first, new = (cast("nn.Conv2d", self.network.classifiers[at]) for at in (0, -1))
            new.weight.copy_(first.weight[:1].expand_as(new.weight))

    def train_mode(self) -> None:
        """What is merged keeps its statistics."""
        super().train_mode()
        if self.teacher is not None:
            for layer in self.branches():
                layer.norms[0].eval()

    def loss(self, batch: StepBatch) -> Mapping[str, Tensor]:
        """Unbiased cross-entropy and distillation, and the distance of pooled maps."""
        crops, labels, config = batch.inputs, self.labels(batch), self.config
        self.draw_shares()
        output = self.network(crops.images, crops.boxes)
        logits = output.upsampled()
        if self.teacher is None:
            return {"segmentation": pixel_ce(logits, labels)}
        before, shown = self.teacher_outputs(crops), inside(crops.boxes, output.canvas.original)
        return {
            "segmentation": unbiased_ce(logits, labels, old=1 + len(self.step.old)),
            "distillation": config.distillation * unbiased_distill(logits, before.upsampled(), shown),
            "pooled": self.pooled(output, before, crops.boxes),
        }

    def draw_shares(self) -> None:
        """For each channel the first branch alone, the second alone, or both: one draw a batch, in all processes."""
        layers = list(self.branches())
        channels = [layer.out_channels for layer in layers]
        drawn = of_first_process(torch.randint(0, 3, (sum(channels),), device=layers[0].weight.device))
        for layer, share in zip(layers, torch.split(drawn, channels), strict=True):
            layer.shares = torch.stack([share, 2 - share]).to(layer.weight.dtype)

    def pooled(self, new: SoftmaxOutput, old: SoftmaxOutput, boxes: Tensor) -> Tensor:
        """The means over maps of both distances; heavier the more there is to keep."""
        config = self.config
        folded = background_takes_new(new.logits, old.logits.shape[1])
        pairs = zip((*new.stages, new.decoded, folded), (*old.stages, old.decoded, old.logits), strict=True)
        maps = [
            squares_apart(ours, theirs, touched(boxes, new.canvas.padded, ours.shape[-2:])) for ours, theirs in pairs
        ]
        schedule = math.sqrt((1 + len(self.step.seen)) / len(self.step.new))  # with background, as the authors count
        weights = [config.pooled] * len(maps[1:]) + [config.pooled_last]
        over_space = [weight * spatial_distance(each) for weight, each in zip(weights, maps, strict=True)]
        over_channels = [weight * channel_distance(each) for weight, each in zip(weights[1:], maps[:-1], strict=True)]
        return schedule * (torch.stack(over_space).mean() + torch.stack(over_channels).mean())


def spatial_distance(apart: Tensor) -> Tensor:
    """The mean over windows of the norm of the averaged difference; beyond the map it is 0, and counts.

    apart: (B, C, h, w), of squared maps. Averages of squares are products with two matrices, a window's side of one.
    """
    norms = []
    for side in WINDOWS:
        down, across = (_windows(size, side, apart) for size in apart.shape[-2:])
        with autocast_disabled(apart):
            norms.append(_mean_norm(down @ apart @ across.T))
    return torch.stack(norms).mean()


def channel_distance(apart: Tensor) -> Tensor:
    """The norm of the difference averaged over each three neighboring channels; beyond the map it is 0, and counts."""
    padded = F.pad(apart, (0, 0, 0, 0, 1, 1))
    return _mean_norm((padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]) / 3)


def _windows(size: int, side: int, like: Tensor) -> Tensor:
    """(size + 1, size): the mean over windows of an even side, one for each edge between cells."""
    edges, cells = torch.arange(size + 1, device=like.device)[:, None], torch.arange(size, device=like.device)
    return ((cells >= edges - side // 2) & (cells < edges + side // 2)).to(like.dtype) / side


def _mean_norm(apart: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(apart.flatten(1), dim=1)
    return norms.sum() / global_count(norms.new_full((), len(norms)))
