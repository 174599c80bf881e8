"""Initial weights of what is not pretrained."""

from __future__ import annotations

from typing import TypeVar

from torch import nn

Module = TypeVar("Module", bound=nn.Module)


def he_init(module: Module) -> Module:
    """He's normal initialization, as in the code of SSUL and IPSeg; linear layers begin without bias.

    PyTorch's own draws have 0.41 times its spread. Before a batch normalization the spread of a convolution does not
    matter forwards, but its gradient falls as the spread grows: at the same rate it learns 6 times as slowly.
    """
    for part in module.modules():
        if isinstance(part, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(part.weight)
        if isinstance(part, nn.Linear):
            nn.init.zeros_(part.bias)
    return module
