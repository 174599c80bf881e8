"""Sums over the processes of a distributed run; a single process has its own values."""

from __future__ import annotations

import torch
import torch.distributed
from torch import Tensor


def world_size() -> int:
    """Number of processes."""
    several = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_world_size() if several else 1


def all_reduce_sum(value: Tensor) -> Tensor:
    """The sum over all processes, each of which must call this."""
    if world_size() == 1:
        return value
    total = value.clone()
    torch.distributed.all_reduce(total)
    return total
