"""The machine a run is on: devices, versions, randomness."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ipseg.errors import UserError

PACKAGES = ("ipseg", "torch", "torchvision", "timm", "numpy", "pillow", "safetensors")


def choose_device(name: str) -> torch.device:
    """The device that was asked for, or a clear word that it is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device: torch.device | None
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda", "mps"):
        raise UserError(f'no device "{name}"; valid: auto, cpu, cuda, cuda:1, mps.')
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(
            f'device is "{name}", but torch sees no GPU here. Choose the device cpu or auto; see `ipseg doctor`.'
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f'device is "{name}", but there are {torch.cuda.device_count()} GPUs here.')
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise UserError('device is "mps", but torch sees no Apple GPU here.')
    return device


def seed_all(*keys: int) -> None:
    """Set torch's generators from a seed and where the run stands, so that nothing random needs to be saved."""
    torch.manual_seed(int(np.random.SeedSequence(keys).generate_state(1, np.uint64)[0] >> 1))


def set_deterministic(*, wanted: bool) -> None:
    """Ask torch for operations that give the same bits every time (they always do on the CPU)."""
    if wanted:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(wanted)
    torch.backends.cudnn.benchmark = not wanted


@contextmanager
def no_cudnn_benchmark() -> Iterator[None]:
    """While it lasts cuDNN does not try out all its ways at every new size: that pays only where sizes come again."""
    before, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, False
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def describe_system() -> dict[str, Any]:
    """Versions and git state, for the run's folder and for bug reports."""
    versions = {name: _version(name) for name in PACKAGES}
    return {"python": platform.python_version(), "platform": platform.platform(), "versions": versions, "git": _git()}


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git() -> dict[str, Any] | None:
    """The commit that the package runs from, where it runs from a repository."""
    here = Path(__file__).parent

    def ask(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603, S607

    try:
        return {"commit": ask("rev-parse", "HEAD"), "changed": bool(ask("status", "--porcelain"))}
    except (OSError, subprocess.CalledProcessError):
        return None
