"""A convolution beside given features learns as a plain one does, with less work."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call
from torch.utils.flop_counter import FlopCounterMode

from ipseg.model.conv_beside import ConvBeside

LEARNED, GIVEN, WEIGHT = torch.rand(2, 3, 6, 5), torch.rand(2, 9, 6, 5), torch.rand(4, 12, 3, 3)


def beside(learned: Tensor, given: Tensor, weight: Tensor) -> Tensor:
    return functional_call(ConvBeside(3, 9, 4), {"weight": weight}, ((learned, given),))


def plain(learned: Tensor, given: Tensor, weight: Tensor) -> Tensor:
    return F.conv2d(torch.cat([learned, given], dim=1), weight, padding=1)


def learn(convolve, *, frozen=True, mixed=False) -> tuple[Tensor, list[Tensor | None], int]:
    """The answer, the gradients of all three, and how much work these were."""
    parts = [
        LEARNED.clone().requires_grad_(),
        GIVEN.clone().requires_grad_(not frozen),
        WEIGHT.clone().requires_grad_(),
    ]
    with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
        answer = convolve(*parts)
    with FlopCounterMode(display=False) as work:
        answer.float().square().mean().backward()
    return answer.detach(), [part.grad for part in parts], work.get_total_flops()


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("mixed", [True, False])
def test_answers_and_gradients_are_those_of_a_plain_convolution(frozen, mixed):
    (answer, gradients, _), (expected, wanted, _) = (
        learn(each, frozen=frozen, mixed=mixed) for each in (beside, plain)
    )
    assert answer.dtype == expected.dtype
    assert torch.equal(answer, expected)
    assert (gradients[1] is None) == frozen
    for got, want in zip(gradients, wanted, strict=True):
        assert (got is None and want is None) or torch.allclose(got, want, rtol=1e-2 if mixed else 1e-5)


def test_what_is_given_costs_no_gradient():
    ours, theirs = learn(beside)[2], learn(plain)[2]
    assert ours == theirs * (3 + 12) // (12 + 12)  # of the input 3 channels of 12; of the weight all


@pytest.mark.parametrize("learns", [True, False])
def test_where_nothing_is_learned_there_is_no_gradient(learns):
    learned = LEARNED.clone().requires_grad_(learns)
    with torch.set_grad_enabled(not learns):
        assert not beside(learned, GIVEN, WEIGHT).requires_grad
