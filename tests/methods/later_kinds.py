"""Three kinds of methods that the contract must have room for, each as small as it gets: none is a method to use.

They are named `later_kinds:RebuiltConfig` and so on in a recipe, as anybody's are.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from ipseg.data.batch import StepBatch
from ipseg.methods.base import Prediction
from ipseg.methods.finetune import Finetune, FinetuneConfig
from ipseg.methods.losses import global_count, pixel_ce
from ipseg.methods.softmax import SoftmaxConfig, SoftmaxMethod
from ipseg.models.boxes import full_boxes, inside
from ipseg.models.decoder import Norm
from ipseg.models.freezing import freeze
from ipseg.models.network import ModelConfig
from ipseg.models.reduce import all_reduce_sum
from ipseg.models.softmax import SoftmaxNetwork, SoftmaxOutput
from ipseg.scenario import Step

# ---- layers rebuilt for a step, as RCIL ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RebuiltConfig(FinetuneConfig):
    name: str = "rebuilt"
    """The method."""

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> Rebuilt:
        return Rebuilt(self, self.network(model, pretrained=pretrained))


class Branches(nn.Module):
    """A convolution as it was, and one beside it that learns, with batch statistics of its own."""

    def __init__(self, kept: nn.Conv2d) -> None:
        super().__init__()
        self.learning = nn.Sequential(copy.deepcopy(kept), Norm(kept.out_channels).to(kept.weight.device))
        self.kept = kept
        freeze(self.kept)

    def forward(self, x: Tensor) -> Tensor:
        return (self.kept(x) + self.learning(x)) / 2

    @torch.no_grad()
    def merged(self) -> nn.Conv2d:
        """One convolution that says the same."""
        one = fuse_conv_bn_eval(*self.learning.eval())
        for tensor, kept in zip(one.parameters(), self.kept.parameters(), strict=True):
            tensor.lerp_(kept, 0.5)
        return one


class Rebuilt(Finetune):
    """What a step leaves is built by `begin_step`, what it needs while it learns by `prepare`: they never meet."""

    @property
    def layer(self) -> nn.Sequential:
        """One of the decoder's: convolution, normalization, ReLU in the base step; convolution, ReLU ever after."""
        return self.network.encoder.decoder.views[1]

    def begin_step(self, step: Step) -> None:
        super().begin_step(step)
        if step.index == 1:
            convolution, norm, relu = self.layer.eval()
            self.network.encoder.decoder.views[1] = nn.Sequential(fuse_conv_bn_eval(convolution, norm), relu)

    def prepare(self, _batches: Iterable[StepBatch]) -> None:
        if self.teacher is not None:
            self.layer[0] = Branches(self.layer[0])

    def end_step(self, _batches: Iterable[StepBatch]) -> None:
        if self.teacher is not None:
            self.layer[0] = self.layer[0].merged()


# ---- prototypes of classes, as SDR ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PrototypesConfig(SoftmaxConfig):
    name: str = "prototypes"
    """The method."""

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> Prototypes:
        return Prototypes(self, self.network(model, pretrained=pretrained))


class Prototypes(SoftmaxMethod[PrototypesConfig]):
    """Each class's mean feature: a running one while its step learns, one over the whole step afterwards."""

    def __init__(self, config: PrototypesConfig, network: SoftmaxNetwork) -> None:
        super().__init__(config, network)
        network.register_buffer("sums", torch.zeros(1, network.encoder.backbone.channels[-1]))
        network.register_buffer("counts", torch.zeros(1))

    def begin_step(self, step: Step) -> None:
        super().begin_step(step)
        for name in ("sums", "counts"):
            now = getattr(self.network, name)
            setattr(self.network, name, torch.cat([now, now.new_zeros(len(step.new), *now.shape[1:])]))

    def means(self) -> Tensor:
        """(1 + C, width); nothing is kept of the background."""
        return self.network.sums / self.network.counts.clamp(min=1)[:, None]

    def loss(self, batch: StepBatch) -> Mapping[str, Tensor]:
        seen = self.network(batch.inputs.images, batch.inputs.boxes)
        self._add(seen, batch)
        parts = {"segmentation": pixel_ce(seen.upsampled(), self.labels(batch))}
        if self.teacher is not None:
            said = self.teacher_outputs(batch.inputs).logits.argmax(1)
            apart = (seen.stages[-1].float() - self.means()[said].movedim(-1, 1)).square().mean(1)
            parts["prototypes"] = (apart * (said > 0)).sum() / global_count((said > 0).sum())
        return parts

    @torch.no_grad()
    def end_step(self, batches: Iterable[StepBatch]) -> None:
        self.network.eval()
        for buffer in (self.network.sums, self.network.counts):
            buffer[1 + len(self.step.old) :] = 0
        for batch in batches:
            self._add(self.network(batch.inputs.images, batch.inputs.boxes), batch)

    @torch.no_grad()
    def _add(self, seen: SoftmaxOutput, batch: StepBatch) -> None:
        """Count features where this step's classes are annotated; old classes' stay as their steps left them."""
        features, first = seen.stages[-1].float(), 1 + len(self.step.old)
        labels = F.interpolate(batch.inputs.labels[:, None].float(), features.shape[-2:])[:, 0]
        own = (labels[..., None] == torch.arange(first, 1 + len(self.step.seen), device=labels.device)).float()
        found = torch.cat([torch.einsum("bchw,bhwk->kc", features, own), own.sum((0, 1, 2))[:, None]], dim=1)
        found = all_reduce_sum(found)  # each process sees its share
        self.network.sums[first:] += found[:, :-1]
        self.network.counts[first:] += found[:, -1]


# ---- regions proposed by another network, as MicroSeg and CoinSeg --------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ProposalsConfig(SoftmaxConfig):
    name: str = "proposals"
    """The method."""

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> Proposals:
        return Proposals(self, self.network(model, pretrained=pretrained))


class Proposer(nn.Module):
    """Stands in for a trained network of proposals: cuts an image by color, with weights that never learn."""

    regions = 9

    def __init__(self) -> None:
        super().__init__()
        self.planes = nn.Conv2d(3, 3, 1)
        freeze(self)

    def forward(self, images: Tensor, boxes: Tensor) -> Tensor:
        """(B, H, W): the region of every pixel; padding is one of its own."""
        sides = (self.planes(images - images.mean((2, 3), keepdim=True)) > 0).long()
        regions = sides[:, 0] + 2 * sides[:, 1] + 4 * sides[:, 2]
        return regions.where(inside(boxes, (images.shape[-2], images.shape[-1])), self.regions - 1)


class Proposals(SoftmaxMethod[ProposalsConfig]):
    """A pixel says what its region says. Regions come from pixels, so that any photograph has them."""

    def __init__(self, config: ProposalsConfig, network: SoftmaxNetwork) -> None:
        super().__init__(config, network)
        network.proposer = Proposer()  # in the network: saved with it, moved with it

    def train_mode(self) -> None:
        super().train_mode()
        self.network.proposer.eval()

    def loss(self, batch: StepBatch) -> Mapping[str, Tensor]:
        return {"segmentation": pixel_ce(self._logits(batch.inputs.images, batch.inputs.boxes), self.labels(batch))}

    @torch.no_grad()
    def predict(self, images: Tensor, boxes: Tensor | None = None) -> Prediction:
        self.network.eval()
        scores = self._logits(images, full_boxes(images) if boxes is None else boxes).softmax(1)
        return Prediction(scores, scores)

    def _logits(self, images: Tensor, boxes: Tensor) -> Tensor:
        """(B, 1 + C, H, W): each region's mean logits, at all of its pixels."""
        logits = self.network(images, boxes).upsampled()
        of = F.one_hot(self.network.proposer(images, boxes), Proposer.regions).to(logits.dtype)
        means = torch.einsum("bchw,bhwr->bcr", logits, of) / of.sum((1, 2)).clamp(min=1)[:, None]
        return torch.einsum("bcr,bhwr->bchw", means, of)
