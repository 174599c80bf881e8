"""Parts of the network that torch.compile may fuse. A part is compiled once and serves all heads, steps and models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")

_fusing: ContextVar[bool] = ContextVar("_fusing", default=False)
VARIANTS = 64
"""So many forms of a part are kept: with and without gradient, each with other numbers of images and outputs."""


@contextmanager
def fusing(*, wanted: bool) -> Iterator[None]:
    """Within the block fusible parts run as fused kernels, and compile first where they must; elsewhere as written."""
    if wanted:
        torch._dynamo.config.recompile_limit = VARIANTS
    token = _fusing.set(wanted)
    try:
        yield
    finally:
        _fusing.reset(token)


def fusible(part: Callable[P, R]) -> Callable[P, R]:
    """Mark a function of tensors and modules as worth fusing."""

    @cache
    def fused() -> Callable[P, R]:
        return torch.compile(part)  # even this word takes seconds, for torch then loads its compiler

    @wraps(part)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return (fused() if _fusing.get() else part)(*args, **kwargs)

    return run
