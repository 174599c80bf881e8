"""A convolution in two parts learns as one of the joined channels does, with less work."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call
from torch.utils.flop_counter import FlopCounterMode

from ipseg.models.heads import SplitConv

X, STAGE, WEIGHT = torch.rand(2, 3, 6, 5), torch.rand(2, 9, 6, 5), torch.rand(4, 12, 3, 3)


def split(x: Tensor, stage: Tensor, weight: Tensor) -> Tensor:
    return functional_call(SplitConv(3, 9, 4), {"weight": weight}, (x, stage))


def joined(x: Tensor, stage: Tensor, weight: Tensor) -> Tensor:
    return F.conv2d(torch.cat([x, stage], dim=1), weight, padding=1)


def learn(convolve, *, frozen=True, mixed=False) -> tuple[Tensor, list[Tensor | None], int]:
    """The output, the gradients of all three, and how much work these were."""
    parts = [X.clone().requires_grad_(), STAGE.clone().requires_grad_(not frozen), WEIGHT.clone().requires_grad_()]
    with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
        output = convolve(*parts)
    with FlopCounterMode(display=False) as work:
        output.float().square().mean().backward()
    return output.detach(), [part.grad for part in parts], work.get_total_flops()


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("mixed", [True, False])
def test_outputs_and_gradients_are_those_of_a_convolution_of_joined_channels(frozen, mixed):
    (output, gradients, _), (expected, wanted, _) = (
        learn(each, frozen=frozen, mixed=mixed) for each in (split, joined)
    )
    close = {"rtol": 2e-2 if mixed else 1e-5}
    assert output.dtype == expected.dtype
    assert torch.allclose(output, expected, **close)
    assert (gradients[1] is None) == frozen
    for got, want in zip(gradients, wanted, strict=True):
        assert (got is None and want is None) or torch.allclose(got, want, **close)


def test_a_frozen_stage_costs_no_gradient():
    ours, theirs = learn(split)[2], learn(joined)[2]
    assert ours == theirs * (3 + 12) // (12 + 12)  # of the input 3 channels of 12; of the weight all
