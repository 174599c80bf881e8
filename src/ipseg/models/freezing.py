"""Freezing: parameters, batch statistics, copies."""

from __future__ import annotations

import copy
from itertools import chain
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


def set_mode(module: nn.Module, *, training: bool) -> None:
    """As `module.train(training)`, which is skipped where the module, its parts and their parts have this mode already.

    It walks through all modules, and a network of many heads has thousands. Nobody sets, or adds, anything deeper
    than parts of parts, and what is below these follows them.
    """
    parts = list(module.children())
    if any(part.training is not training for part in (module, *parts, *chain(*(part.children() for part in parts)))):
        module.train(training)


def freeze(module: nn.Module) -> None:
    """No gradient, and batch statistics stay as they are."""
    module.requires_grad_(requires_grad=False)
    module.eval()


def train_dropout(module: nn.Module) -> None:
    """Training mode for a frozen module: dropout and stochastic depth draw, batch statistics stay as they are."""
    if not module.training:
        module.train()
        for part in module.modules():
            if isinstance(part, _BatchNorm):
                part.eval()


def freeze_norms(module: nn.Module) -> None:
    """No gradient for scale and shift of batch normalization, that of several processes too."""
    for part in module.modules():
        if isinstance(part, _BatchNorm):
            part.requires_grad_(requires_grad=False)


Module = TypeVar("Module", bound=nn.Module)


def frozen_copy(module: Module) -> Module:
    """The module as it stands now, whatever becomes of it."""
    kept = copy.deepcopy(module)
    freeze(kept)
    return kept


class FrozenCopy(nn.Module):
    """A copy that never learns; its batch statistics stay as they are in training too."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = frozen_copy(module)

    def train(self, mode: bool = True) -> FrozenCopy:
        """Evaluation mode, whatever is asked for."""
        return super().train(mode=False)

    @torch.no_grad()
    def forward(self, *inputs: Tensor) -> list[Tensor]:
        """The module's output, without gradient."""
        outputs: list[Tensor] = self.module(*inputs)
        return outputs


def trainable(module: nn.Module) -> list[nn.Parameter]:
    """The parameters that learn."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]
