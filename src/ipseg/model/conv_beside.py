"""A convolution of what is learned beside what is given, without the gradient of what is given."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ipseg.model.precision import mixed


class ConvBeside(nn.Conv2d):
    """A 3x3 convolution of two tensors, joined by their channels.

    Torch would compute the gradient of all channels, and drop that of what is given where it is frozen.
    """

    def __init__(self, learned: int, given: int, outputs: int) -> None:
        super().__init__(learned + given, outputs, 3, padding=1, bias=False)

    def forward(self, both: tuple[Tensor, Tensor]) -> Tensor:  # type: ignore[override]
        """both: what is learned, and what is given."""
        learned, given = both
        if given.requires_grad or not learned.requires_grad or not torch.is_grad_enabled():
            return super().forward(torch.cat(both, dim=1))
        convolved: Tensor = _Beside.apply(*mixed(learned, given, self.weight))  # type: ignore[no-untyped-call]
        return convolved


class _Beside(torch.autograd.Function):
    """Its backward asks for the two gradients that are wanted, each by itself."""

    @staticmethod
    def forward(ctx: Any, learned: Tensor, given: Tensor, weight: Tensor) -> Tensor:
        joined = torch.cat([learned, given], dim=1)
        ctx.save_for_backward(joined, weight)
        ctx.channels = learned.shape[1]
        return F.conv2d(joined, weight, padding=1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, Tensor]:
        joined, weight = ctx.saved_tensors
        learned, its_weight = joined[:, : ctx.channels], weight[:, : ctx.channels]
        return _backward(gradient, learned, its_weight)[0], None, _backward(gradient, joined, weight, of_weight=True)[1]


def _backward(gradient: Tensor, x: Tensor, weight: Tensor, *, of_weight: bool = False) -> tuple[Tensor, Tensor, None]:
    """Gradients of x and of the weight, of which one is computed."""
    one, wanted = [1, 1], [not of_weight, of_weight, False]
    gradients: tuple[Tensor, Tensor, None] = torch.ops.aten.convolution_backward(
        gradient, x, weight, None, one, one, one, False, [0, 0], 1, wanted
    )
    return gradients
