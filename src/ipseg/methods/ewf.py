"""EWF (Xiao et al., CVPR 2023): after a step the weights before and after it are averaged."""

from __future__ import annotations

import math

import torch
from torch import nn


def new_share(new: int, seen: int) -> float:
    """The weight of what the step learned: sqrt(|new| / |seen|), the background counted among the seen classes."""
    return math.sqrt(new / (1 + seen))


@torch.no_grad()
def fuse_weights(network: nn.Module, old: nn.Module, share: float) -> None:
    """Every tensor that the old network has too, batch statistics included, becomes (1 - share) old + share new.

    What grows with the classes (prototypes) has another shape than before and stays.
    """
    before = old.state_dict()
    for name, tensor in network.state_dict().items():
        if name in before and tensor.is_floating_point() and tensor.shape == before[name].shape:
            tensor.copy_(before[name].lerp(tensor, share))
