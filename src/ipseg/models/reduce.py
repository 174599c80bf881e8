"""Sums over the processes of a distributed run; a single process has its own values."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed
from torch import Tensor


def world_size() -> int:
    """Number of processes."""
    several = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_world_size() if several else 1


def all_reduce_sum(value: Tensor) -> Tensor:
    """The sum over all processes, each of which must call this, and go backward through it if it has a gradient."""
    if world_size() == 1:
        return value
    total: Tensor = _Sum.apply(value)  # type: ignore[no-untyped-call]
    return total


def all_reduce_max(value: Tensor) -> Tensor:
    """The largest over all processes; its gradient goes to those that have it."""
    if world_size() == 1:
        return value
    largest = value.detach().clone()
    torch.distributed.all_reduce(largest, op=torch.distributed.ReduceOp.MAX)
    own = value == largest
    return all_reduce_sum(value.where(own, 0)) / all_reduce_sum(own.to(value.dtype))


def of_first_process(value: Tensor) -> Tensor:
    """The first process's value, in all of them: what was drawn is the same everywhere. It has no gradient."""
    if world_size() > 1:
        torch.distributed.broadcast(value, 0)
    return value


class _Sum(torch.autograd.Function):
    """The sum over all processes; so is its gradient, for each one's sum is in the losses of all."""

    @staticmethod
    def forward(_ctx: Any, mine: Tensor) -> Tensor:
        return _summed(mine)

    @staticmethod
    def backward(_ctx: Any, gradient: Tensor) -> Tensor:
        return _summed(gradient)


def _summed(mine: Tensor) -> Tensor:
    total = mine.contiguous().clone()
    torch.distributed.all_reduce(total)
    return total
