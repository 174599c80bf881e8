"""The network: backbone, decoder, one permanent branch, one temporary branch a step, the image posterior."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ipseg.errors import require_at_least, require_between
from ipseg.models.backbone import BackboneConfig
from ipseg.models.boxes import full_boxes, inside, pool
from ipseg.models.compiled import compilable
from ipseg.models.decoder import Aspp
from ipseg.models.features import Canvas, Features, Tile
from ipseg.models.freezing import FrozenCopy, freeze
from ipseg.models.heads import Head, SmallTrunk, Trunk, he_init
from ipseg.models.lda import StreamingLDA
from ipseg.models.posterior import Posterior, pool_parts


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The shape of the network."""

    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    """The feature extractor."""

    width: int = 256
    """Channels of the decoder and of every head."""

    rates: tuple[int, ...] = (6, 12, 18)
    """Dilations of the ASPP decoder."""

    decoder_dropout: float = 0.1
    """After the decoder's projection."""

    posterior_width: int = 4096
    """Of the posterior's two shared fully connected layers."""

    posterior_dropout: float = 0.5
    """After each of them."""

    def __post_init__(self) -> None:
        require_at_least("model.width", self.width, 1)
        require_at_least("model.posterior_width", self.posterior_width, 1)
        for rate in self.rates:
            require_at_least("model.rates", rate, 1)
        require_between("model.decoder_dropout", self.decoder_dropout, 0, 1)
        require_between("model.posterior_dropout", self.posterior_dropout, 0, 1)


class Encoder(nn.Module):
    """Backbone and decoder: everything that is frozen after the base step.

    frozen_backbone: the image posterior also reads a copy of the backbone that the base step does not train either.
    """

    def __init__(self, config: ModelConfig, *, frozen_backbone: bool = False, pretrained: bool = True) -> None:
        super().__init__()
        self.backbone = config.backbone.build(pretrained=pretrained)
        self.frozen_backbone = FrozenCopy(self.backbone) if frozen_backbone else None
        self.decoder = Aspp(self.backbone.channels[-1], config.width, config.rates, config.decoder_dropout)
        self.pooled_channels = self.backbone.channels[-1] * (2 if frozen_backbone else 1)
        """Of the image posterior's input, in each of its parts."""
        self.tile: Tile | None = None
        """Set while an image is seen in parts: models/tiles.py."""

    def forward(self, images: Tensor, boxes: Tensor | None = None, decoded: int | None = None) -> Features:
        """images: (B, 3, H, W) in 0-1, any size. boxes: where the images lie; by default they fill the canvas.

        decoded: how many of them, the first, need more than the posterior's input; all by default.
        """
        boxes = full_boxes(images) if boxes is None else boxes
        padded = pad_to_multiple(images, self.backbone.multiple).contiguous(memory_format=torch.channels_last)
        maps = self._maps(padded, boxes, len(images) if decoded is None else decoded, self.tile)
        canvas = Canvas(boxes, (padded.shape[-2], padded.shape[-1]), (images.shape[-2], images.shape[-1]))
        features = Features(*maps, canvas)
        return features if self.tile is None else features.within(self.tile.window)

    @compilable
    def _maps(
        self, images: Tensor, boxes: Tensor, decoded: int, tile: Tile | None
    ) -> tuple[tuple[Tensor, ...], Tensor, Tensor, Tensor, Tensor]:
        """Stages, last stage, its mean and the decoder's output for the first images; the posterior's input for all."""
        canvas = (images.shape[-2], images.shape[-1])
        shown = inside(boxes, canvas)
        *stages, last = self.backbone(images, shown)
        first = last[:decoded]
        if tile is None:
            mean = pool(first, boxes[:decoded], canvas, 1)
            pooled = [pool_parts(each, boxes, canvas) for each in self.posterior_maps(images, shown, last)]
        else:  # of the whole image
            mean, pooled = tile.mean, [tile.pooled]
        seen = self.decoder(first, mean)
        return tuple(stage[:decoded] for stage in stages), first, mean, seen, torch.cat(pooled, dim=1)

    def posterior_maps(self, images: Tensor, shown: Tensor, last: Tensor) -> list[Tensor]:
        """The feature maps that the image posterior reads; last: the backbone's last stage."""
        return [last] if self.frozen_backbone is None else [last, self.frozen_backbone(images, shown)[-1]]


HeadFactory = Callable[[int], Head]
"""Makes a head with so many outputs."""


def large_heads(encoder: Encoder, width: int) -> HeadFactory:
    """IPSeg's: three convolutions, each also fed with a stage of the backbone (section 3.4)."""
    stages = encoder.backbone.channels[:3]
    return lambda outputs: Head(Trunk(stages, width, width), width, outputs)


def small_heads(width: int) -> HeadFactory:
    """SSUL's: one convolution on the decoder's output."""
    return lambda outputs: Head(SmallTrunk(width, width), width, outputs)


def he_heads(make: HeadFactory) -> HeadFactory:
    """Heads with He's initialization."""
    return lambda outputs: he_init(make(outputs))


class Network(nn.Module):
    """Encoder, heads and image posterior. A method assembles it, and calls its parts on the features of one pass.

    permanent: the permanent branch, with c'_u and c'_b. background: a head for c'_b alone, where the permanent one has
    c'_u alone (SSUL). make_head: makes the head of a step.
    """

    def __init__(
        self,
        encoder: Encoder,
        make_head: HeadFactory,
        permanent: Head,
        background: Head | None = None,
        posterior: Posterior | StreamingLDA | None = None,
    ) -> None:
        super().__init__()
        self.encoder, self.make_head = encoder, make_head
        self.permanent, self.background = permanent, background
        self.temporary = nn.ModuleList()
        self.posterior = posterior

    def persistent_heads(self) -> list[Head]:
        """The branches that no step owns, in the order of their channels: unknown, then background."""
        return [self.permanent] if self.background is None else [self.permanent, self.background]

    def add_step(self, outputs: int, classes: int, decoder: nn.Module | None = None) -> Head:
        """Add a temporary branch with that many channels, and the posterior's classifier for that many classes."""
        head = self.make_head(outputs)
        head.decoder = decoder
        self.temporary.append(head)
        if self.posterior is not None:
            self.posterior.add_step(classes)
        self.to(self.permanent.classifier.weight.device)
        return head

    def freeze_previous(self) -> None:
        """Freeze what earlier steps learned: the encoder, and every temporary branch but the newest."""
        freeze(self.encoder)
        for old in self.temporary[:-1]:
            freeze(old)


def logits_of(head: nn.Module, features: Features) -> Tensor:
    """A head's logits at the size of the images, in float32."""
    decoder = cast("nn.Module | None", head.decoder)
    decoded = features.decoded if decoder is None else features.decode(decoder)
    logits: Tensor = head(decoded, features.stages)
    return features.canvas.upsample(logits.float())


def pad_to_multiple(images: Tensor, multiple: int) -> Tensor:
    """Zeros to the right and below. An image's canvas follows from its own size alone, whatever batch it is in."""
    height, width = images.shape[-2:]
    return F.pad(images, (0, -width % multiple, 0, -height % multiple))


def count_parameters(module: nn.Module) -> int:
    """All parameters, frozen ones included."""
    return sum(parameter.numel() for parameter in module.parameters())
