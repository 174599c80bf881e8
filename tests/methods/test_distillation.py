"""The old model as a teacher: numbers that can be checked by hand."""

from __future__ import annotations

from math import log, sqrt

import pytest
import torch

from ipseg.methods.distillation import (
    background_takes_new,
    distill,
    distill_sigmoid,
    feature_distance,
    local_pod,
    pod_distance,
    unbiased_ce,
    unbiased_distill,
)

NEW = [[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]]
"""What the new model says of two pixels: background, an old class, a new class."""
OLD = [[0.6, 0.4], [0.9, 0.1]]
"""What the old model says of them: background, the old class."""
BOTH = torch.tensor([[[True, True]]])
ALL = torch.ones(1, 4, 4, dtype=torch.bool)
"""Every cell of a map of four by four shows the image."""


def logits(pixels: list[list[float]]) -> torch.Tensor:
    """(1, classes, 1, pixels), not normalized: a softmax must not care about the constant."""
    return torch.tensor(pixels).log().T[None, :, None] + 3


def labels(*values: int) -> torch.Tensor:
    return torch.tensor([[values]])


def test_to_the_unbiased_cross_entropy_background_means_background_or_an_old_class():
    loss = unbiased_ce(logits(NEW), labels(0, 2), old=2)
    assert loss.item() == pytest.approx(-(log(0.5 + 0.3) + log(0.7)) / 2)


def test_a_replayed_label_of_an_old_class_means_that_class():
    assert unbiased_ce(logits(NEW), labels(1, 2), old=2).item() == pytest.approx(-(log(0.3) + log(0.7)) / 2)


def test_in_a_base_step_the_unbiased_cross_entropy_is_the_plain_one():
    made, wanted = torch.randn(2, 4, 3, 3), torch.randint(0, 4, (2, 3, 3))
    assert torch.allclose(unbiased_ce(made, wanted, old=1), torch.nn.functional.cross_entropy(made, wanted))


def test_255_teaches_nothing():
    assert unbiased_ce(logits(NEW), labels(255, 2), old=2).item() == pytest.approx(-log(0.7))


def test_to_the_unbiased_distillation_a_new_class_is_background():
    loss = unbiased_distill(logits(NEW), logits(OLD), BOTH)
    first = 0.6 * log(0.5 + 0.2) + 0.4 * log(0.3)
    second = 0.9 * log(0.1 + 0.7) + 0.1 * log(0.2)
    assert loss.item() == pytest.approx(-(first / 2 + second / 2) / 2)


def test_lwf_compares_the_old_classes_alone():
    first = 0.6 * log(0.5 / 0.8) + 0.4 * log(0.3 / 0.8)
    second = 0.9 * log(0.1 / 0.3) + 0.1 * log(0.2 / 0.3)
    assert distill(logits(NEW), logits(OLD), BOTH).item() == pytest.approx(-(first / 2 + second / 2) / 2)


def test_lwf_mc_compares_each_old_class_by_itself_and_sums():
    new = torch.tensor([0.8, 0.5, 0.3]).logit()[None, :, None, None]
    old = torch.tensor([0.9, 0.4]).logit()[None, :, None, None]
    expected = -(0.9 * log(0.8) + 0.1 * log(0.2)) - log(0.5)
    assert distill_sigmoid(new, old, torch.ones(1, 1, 1, dtype=torch.bool)).item() == pytest.approx(expected)


@pytest.mark.parametrize("teach", [distill, distill_sigmoid, unbiased_distill])
def test_padding_is_not_distilled_and_nothing_at_all_is_zero(teach):
    new, old = logits(NEW).requires_grad_(), logits(OLD)
    first = torch.tensor([[[True, False]]])
    assert teach(new, old, first).item() == pytest.approx(teach(logits(NEW[:1]), logits(OLD[:1]), BOTH[..., :1]).item())
    nothing = teach(new, old, torch.zeros_like(BOTH)) + unbiased_ce(new, labels(255, 255), old=2)
    nothing.backward()
    assert nothing.item() == 0
    assert new.grad is not None
    assert not new.grad.any()


@pytest.mark.parametrize("teach", [distill, distill_sigmoid, unbiased_distill])
def test_scores_far_apart_and_mixed_precision_do_no_harm(teach):
    new, old = torch.tensor([[300.0, -300.0, 0.0]]), torch.tensor([[-300.0, 300.0]])
    new, old = new[..., None, None].requires_grad_(), old[..., None, None]
    counted = torch.ones(1, 1, 1, dtype=torch.bool)
    plain = teach(new, old, counted)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = teach(new, old, counted)
    plain.backward()
    assert torch.isfinite(plain)
    assert torch.isfinite(new.grad).all()
    assert mixed.dtype == torch.float32
    assert mixed.item() == plain.item()


def test_ilt_compares_every_number_of_a_map():
    new, old = torch.tensor([[[[1.0, 2.0]]], [[[0.0, 0.0]]]]), torch.tensor([[[[1.0, 0.0]]], [[[3.0, 1.0]]]])
    assert feature_distance(new, old, ALL[:, :1, :2].expand(2, 1, 2)).item() == pytest.approx((0 + 4 + 9 + 1) / 4)


def test_features_of_padding_teach_nothing():
    new, old = torch.rand(1, 3, 4, 4).requires_grad_(), torch.rand(1, 3, 4, 4)
    left = ALL.clone()
    left[..., 2:] = False
    feature = feature_distance(new, old, left)
    assert feature.item() == pytest.approx((new[..., :2] - old[..., :2]).square().mean().item())
    (feature + pod_distance(new, old, left)).backward()
    assert not new.grad[..., 2:].any()
    assert new.grad[..., :2].all()
    assert pod_distance(new, old.where(left[:, None], 7), left).item() == pod_distance(new, old, left).item()


# ---- local POD ------------------------------------------------------------------------------------------------------


def test_local_pod_of_equal_models_is_zero_and_so_is_its_gradient():
    new = torch.randn(2, 3, 4, 4).requires_grad_()
    loss = pod_distance(new, new.detach().clone(), ALL)
    loss.backward()
    assert loss.item() == 0
    assert not new.grad.any()


def test_local_pod_on_a_map_of_four_by_four():
    """One cell is 2, squared 4. It is 4/4 of a row's mean, 4/2 of a half row's, 4 of its own; and so in columns."""
    new = torch.zeros(1, 1, 4, 4)
    new[0, 0, 0, 0] = 2
    expected = sqrt(2 * (1**2 + 2**2 + 4**2))
    assert pod_distance(new, torch.zeros_like(new), ALL).item() == pytest.approx(expected)
    assert pod_distance(new, torch.zeros_like(new), ALL, scales=(1,)).item() == pytest.approx(sqrt(2))


def test_strips_give_what_tiles_give():
    made = torch.rand(2, 3, 8, 8)
    for scale in (1, 2, 4):
        side = 8 // scale
        cut = [made[..., i : i + side, j : j + side] for i in range(0, 8, side) for j in range(0, 8, side)]
        by_tile = torch.cat([part for tile in cut for part in (tile.mean(3).flatten(1), tile.mean(2).flatten(1))], 1)
        assert torch.allclose(by_tile.sort(1)[0], local_pod(made, (scale,)).sort(1)[0], atol=1e-6)


@pytest.mark.parametrize("size", [(1, 1), (3, 5), (2, 9)])
def test_local_pod_takes_maps_of_any_size(size):
    new = torch.rand(2, 3, *size).requires_grad_()
    loss = pod_distance(new, torch.rand(2, 3, *size), torch.ones(2, *size, dtype=torch.bool))
    loss.backward()
    assert torch.isfinite(new.grad).all()


def test_new_logits_are_added_to_the_background_s():
    made = torch.tensor([1.0, 2.0, 4.0, 8.0])[None, :, None, None]
    assert background_takes_new(made, 2).flatten().tolist() == [13.0, 2.0]
