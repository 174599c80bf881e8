"""Reading tensors out of files that strangers made: safetensors, or what torch.save wrote, tensors alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from ipseg.errors import UserError

State = dict[str, Tensor]
OF_TORCH = (".pt", ".pth", ".bin", ".tar")
NESTED = ("state_dict", "model", "module")
"""Where training programs put the tensors beside other things."""


def read_weights(path: Path) -> tuple[State, dict[str, str]]:
    """The tensors by name, in float32, and the metadata if there are any."""
    suffix = path.suffix.lower()
    if suffix != ".safetensors" and suffix not in OF_TORCH:
        kinds = ", ".join([".safetensors", *OF_TORCH])
        raise UserError(f"backbone weights must be none, imagenet, wheel or a file ({kinds}), got {path}.")
    if not path.is_file():
        raise UserError(f"backbone weights are missing: {path}.")
    _refuse_text(path)
    try:
        state, metadata = _read_safetensors(path) if suffix == ".safetensors" else (_read_torch(path), {})
    except Exception as error:  # of many kinds: the file decides what goes wrong
        raise _unreadable(path, str(error)) from error
    if not state:
        raise UserError(f"backbone weights {path}: no tensors with names in it. It must hold a state dict.")
    return {key: value.float() if value.is_floating_point() else value for key, value in state.items()}, metadata


def _read_safetensors(path: Path) -> tuple[State, dict[str, str]]:
    with safe_open(path, framework="pt") as opened:
        return {key: opened.get_tensor(key) for key in opened.keys()}, opened.metadata() or {}  # noqa: SIM118


def _read_torch(path: Path) -> State:
    found: Any = torch.load(path, map_location="cpu", weights_only=True)
    for _ in range(4):  # not for ever: a mapping can hold itself
        if not isinstance(found, Mapping):
            return {}
        inner = next((found[key] for key in NESTED if isinstance(found.get(key), Mapping)), None)
        if inner is None:
            return {str(key): value for key, value in found.items() if isinstance(value, Tensor)}
        found = inner
    return {}


def _refuse_text(path: Path) -> None:
    """Pages and pointers that are saved instead of the file itself."""
    with path.open("rb") as opened:
        head = opened.read(512)
    if any(byte < 9 for byte in head):  # no text has them, every file of tensors does
        return
    start = head.lstrip().lower()
    if start.startswith(b"version https://git-lfs"):
        what = "a pointer of Git LFS; `git lfs pull` fetches the file itself"
    elif start.startswith((b"<!doctype", b"<html", b"<?xml")):
        what = "a web page: the page about the file was saved instead of the file. Download it again"
    else:
        what = "a text file" if head else "empty"
    raise UserError(f"backbone weights {path}: not weights but {what}.")


def _unreadable(path: Path, reason: str) -> UserError:
    objects = re.search(r"Unsupported global: GLOBAL (\S+)", reason)
    if objects:
        return UserError(
            f"backbone weights {path}: it holds other objects than tensors ({objects[1]}), which could run code when "
            "read, so it is refused. Save the tensors alone: torch.save(model.state_dict(), FILE)."
        )
    inner = re.search(r"Weights\w+ error: (.+)", reason)
    first = inner[1] if inner else (reason.splitlines() or ["it ends too early"])[0]
    return UserError(f"backbone weights are damaged or of another kind: {path} ({first[:200]}).")
