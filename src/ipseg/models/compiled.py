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

_enabled: ContextVar[bool] = ContextVar("_enabled", default=False)
VARIANTS = 64
"""Compiled variants kept per function: with and without gradient, each for other numbers of images and outputs."""


@contextmanager
def compiling(*, enabled: bool) -> Iterator[None]:
    """Compilable parts called within the block run compiled, and compile first where they must."""
    if enabled:
        torch._dynamo.config.recompile_limit = VARIANTS
    token = _enabled.set(enabled)
    try:
        yield
    finally:
        _enabled.reset(token)


def compilable(part: Callable[P, R]) -> Callable[P, R]:
    """Mark a function of tensors and modules as worth fusing."""

    @cache
    def fused() -> Callable[P, R]:
        return torch.compile(part)  # even this word takes seconds, for torch then loads its compiler

    @wraps(part)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return (fused() if _enabled.get() else part)(*args, **kwargs)

    return run
