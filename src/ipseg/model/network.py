"""The whole network: backbone, decoder, one permanent branch, one temporary branch a step, the image posterior."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ipseg.errors import require_at_least, require_between
from ipseg.model import initial
from ipseg.model.backbone import BackboneConfig
from ipseg.model.boxes import full_boxes, inside, pool
from ipseg.model.decoder import Aspp
from ipseg.model.freezing import Still, freeze
from ipseg.model.fusible import fusible
from ipseg.model.heads import Head, SmallTrunk, Trunk, enlarge
from ipseg.model.moments import Moments
from ipseg.model.posterior import Posterior, pool_parts
from ipseg.model.recording import recordable

PosteriorKind = Literal["learned", "moments"]
PosteriorBackbone = Literal["shared", "still", "both"]


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


Window = tuple[int, int, int, int]
"""Top, left, bottom and right, in pixels of a canvas."""


@dataclass(frozen=True)
class Tile:
    """What the encoder is given of a whole image when it sees a part of it."""

    mean: Tensor
    """(1, C, 1, 1): of the last stage, over the whole image."""
    pooled: Tensor
    """(1, D): the posterior's view of the whole image."""
    window: Window
    """What of the part is wanted; the rest is context."""


@dataclass(frozen=True)
class Features:
    """What one pass through backbone and decoder leaves for every branch."""

    stages: tuple[Tensor, ...]
    """The backbone's first three stages, finest first."""
    decoded: Tensor
    last: Tensor | None
    """The backbone's last stage, where it is kept."""
    pooled: Tensor
    """The posterior's view of the last stage. It may be of more pictures than the others."""
    mean: Tensor
    """(B, C, 1, 1): of the last stage."""
    boxes: Tensor
    """Where the pictures lie."""
    canvas: tuple[int, int]
    """Size of the padded pictures."""
    size: tuple[int, int]
    """Size of the pictures as they came."""
    window: tuple[slice, slice] | None = None
    """Of a tile: the rows and columns of the last stage that the other features show."""

    def __getitem__(self, rows: slice | Tensor) -> Features:
        stages, last = tuple(stage[rows] for stage in self.stages), None if self.last is None else self.last[rows]
        parts = {name: getattr(self, name)[rows] for name in ("decoded", "pooled", "boxes", "mean")}
        return replace(self, stages=stages, last=last, **parts)

    def within(self, window: Window) -> Features:
        """The features of a part of the image. The last stage stays whole: decoding looks far around."""
        top, left, bottom, right = window
        size = (min(bottom, self.size[0]) - top, min(right, self.size[1]) - left)
        cells = cells_of(window, self.canvas, self.decoded)
        return replace(
            self,
            stages=tuple(stage[..., *cells_of(window, self.canvas, stage)] for stage in self.stages),
            decoded=self.decoded[..., *cells],
            boxes=self.boxes.new_tensor([[0, 0, *size]]).expand(len(self.boxes), 4),
            canvas=(bottom - top, right - left),
            size=size,
            window=cells,
        )

    def decode(self, decoder: nn.Module) -> Tensor:
        """What another decoder than the encoder's makes of the last stage."""
        assert self.last is not None
        decoded: Tensor = decoder(self.last, self.mean)
        return decoded if self.window is None else decoded[..., *self.window]

    def enlarge(self, logits: Tensor) -> Tensor:
        """Logits of a head at the size of the pictures."""
        return enlarge(logits, self.canvas)[..., : self.size[0], : self.size[1]]


class Encoder(nn.Module):
    """Backbone and decoder: everything that is frozen after the base step.

    keep_last: the last stage is wanted too, by heads that decode it themselves or by losses. posterior_backbone: what
    the posterior sees with; `still` is a copy that the base step does not teach either.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        keep_last: bool = False,
        posterior_backbone: PosteriorBackbone = "shared",
        pretrained: bool = True,
    ) -> None:
        super().__init__()
        self.keep_last, self.posterior_backbone = keep_last, posterior_backbone
        self.backbone = config.backbone.build(pretrained=pretrained)
        self.still = None if posterior_backbone == "shared" else Still(self.backbone)
        self.decoder = Aspp(self.backbone.channels[-1], config.width, config.rates, config.decoder_dropout)
        self.tile: Tile | None = None
        """Set while an image is seen in parts: model/tiles.py."""

    def forward(self, images: Tensor, boxes: Tensor | None = None, decoded: int | None = None) -> Features:
        """images: (B, 3, H, W) in 0-1, any size. boxes: where the pictures lie; by default they fill the canvas.

        decoded: how many of them, the first, need more than the posterior's view; all by default.
        """
        boxes = full_boxes(images) if boxes is None else boxes
        size = (images.shape[-2], images.shape[-1])
        padded = pad_to_multiple(images, self.backbone.multiple).contiguous(memory_format=torch.channels_last)
        maps = self._maps(padded, boxes, len(images) if decoded is None else decoded, self.tile)
        features = Features(*maps, boxes, (padded.shape[-2], padded.shape[-1]), size)
        return features if self.tile is None else features.within(self.tile.window)

    @recordable
    @fusible
    def _maps(
        self, images: Tensor, boxes: Tensor, decoded: int, tile: Tile | None
    ) -> tuple[tuple[Tensor, ...], Tensor, Tensor | None, Tensor, Tensor]:
        """Stages, decoder's output and last stage of the first images, the posterior's view of all, and the mean."""
        canvas = (images.shape[-2], images.shape[-1])
        shown = inside(boxes, canvas)
        *stages, last = self.backbone(images, shown)
        first = last[:decoded]
        mean = pool(first, boxes[:decoded], canvas, 1) if tile is None else tile.mean
        seen = self.decoder(first, mean)
        kept = first if self.keep_last else None
        if tile is None:
            judged = self.judged(images, shown, last)
            pooled = torch.cat([pool_parts(each, boxes, canvas) for each in judged], dim=1)
        else:
            pooled = tile.pooled
        return tuple(stage[:decoded] for stage in stages), seen, kept, pooled, mean

    def judged(self, images: Tensor, shown: Tensor, last: Tensor) -> list[Tensor]:
        """The feature maps that the posterior sees; last: the backbone's."""
        maps = [] if self.posterior_backbone == "still" else [last]
        return maps if self.still is None else [*maps, self.still(images, shown)[-1]]


class Network(nn.Module):
    """The network of IPSeg and SSUL. Its branches are called by the method, on the features of one pass.

    head: IPSeg's, or SSUL's small one. apart: the background has a head of its own, and the permanent one has the
    unknown channel alone (SSUL). own_decoders: those that later heads begin with are copies of the base step's.
    posterior: how the image posterior comes about, none: there is none. posterior_backbone: what it sees with. he_init:
    layers begin as in the authors' code, not as PyTorch has it.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        posterior: PosteriorKind | None = "learned",
        head: Literal["ipseg", "ssul"] = "ipseg",
        apart: bool = False,
        own_decoders: bool = False,
        posterior_backbone: PosteriorBackbone = "shared",
        he_init: bool = False,
        pretrained: bool = True,
    ) -> None:
        super().__init__()
        self.config, self._small_heads = config, head == "ssul"
        self._he_init = he_init
        sees: PosteriorBackbone = posterior_backbone if posterior else "shared"
        self.encoder = Encoder(config, keep_last=own_decoders, posterior_backbone=sees, pretrained=pretrained)
        if he_init:
            initial.he_init(self.encoder.decoder)
        self.permanent = self._head(1 if apart else 2)
        self.background = self._head(1) if apart else None
        self.temporary = nn.ModuleList()
        seen = self.encoder.backbone.channels[-1] * (2 if sees == "both" else 1)
        self.posterior: Posterior | Moments | None = None
        if posterior == "learned":
            self.posterior = Posterior(seen, config.posterior_width, config.posterior_dropout, he_init=he_init)
        elif posterior == "moments":
            self.posterior = Moments(seen)

    def _head(self, outputs: int) -> Head:
        width = self.config.width
        stages = self.encoder.backbone.channels[:3]
        trunk = SmallTrunk(width, width) if self._small_heads else Trunk(stages, width, width)
        head = Head(trunk, width, outputs)
        return initial.he_init(head) if self._he_init else head

    def lasting(self) -> list[Head]:
        """The branches that no step owns, in the order of their channels: unknown, then background."""
        return [self.permanent] if self.background is None else [self.permanent, self.background]

    def grow(self, outputs: int, classes: int) -> Head:
        """Add a temporary branch with that many channels, and the posterior's classifier for that many classes."""
        head = self._head(outputs)
        if self.encoder.keep_last and self.temporary:
            head.decoder = copy.deepcopy(self.encoder.decoder).requires_grad_()
        self.temporary.append(head)
        if self.posterior is not None:
            self.posterior.grow(classes)
        self.to(self.permanent.classifier.weight.device)
        return head

    def freeze_the_past(self) -> None:
        """What earlier steps learned stays as it is: the encoder, and every temporary branch but the newest."""
        freeze(self.encoder)
        for old in self.temporary[:-1]:
            freeze(old)


@recordable
def logits_of(head: nn.Module, features: Features) -> Tensor:
    """A head's logits at the size of the pictures, in float32."""
    decoder = getattr(head, "decoder", None)
    decoded = features.decode(decoder) if decoder else features.decoded
    logits: Tensor = head(decoded, features.stages)
    return features.enlarge(logits.float())


def cells_of(window: Window, canvas: tuple[int, int], features: Tensor) -> tuple[slice, slice]:
    """Rows and columns of a feature map over a canvas that show a window, whose edges lie on cells."""
    stride = canvas[0] // features.shape[-2]
    top, left, bottom, right = (edge // stride for edge in window)
    return slice(top, bottom), slice(left, right)


def pad_to_multiple(images: Tensor, multiple: int) -> Tensor:
    """Zeros to the right and below. A picture's canvas follows from its own size alone, whatever batch it is in."""
    height, width = images.shape[-2:]
    return F.pad(images, (0, -width % multiple, 0, -height % multiple))


def count_parameters(module: nn.Module) -> int:
    """All parameters, frozen ones included."""
    return sum(parameter.numel() for parameter in module.parameters())
