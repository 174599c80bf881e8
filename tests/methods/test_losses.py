"""Losses against torch's own, written out."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from ipseg.methods.losses import image_bce, pixel_bce, pixel_ce


def image(seed: int, channels: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and labels of two small images, a third of the pixels ignored."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(2, channels, 3, 5, generator=generator)
    labels = torch.randint(0, channels, (2, 3, 5), generator=generator)
    return logits, labels.masked_fill(torch.rand(2, 3, 5, generator=generator) < 0.3, 255)


@given(st.integers(0, 10_000))
def test_pixel_bce_is_torchs_on_one_hot_labels_summed_over_channels_and_averaged_over_counted_pixels(seed):
    logits, labels = image(seed)
    counted = labels != 255
    one_hot = F.one_hot(labels.where(counted, 0), 4).permute(0, 3, 1, 2).float()
    each = F.binary_cross_entropy_with_logits(logits, one_hot, reduction="none").sum(1)
    assert torch.allclose(pixel_bce(logits, labels), each[counted].mean(), atol=1e-5)


def test_pixel_bce_by_hand():
    logits = torch.tensor([0.0, 0.0, 0.0]).view(1, 3, 1, 1)
    assert pixel_bce(logits, torch.tensor([[[2]]])).item() == pytest.approx(3 * math.log(2))


@pytest.mark.parametrize("loss", [pixel_bce, pixel_ce])
def test_where_nothing_counts_the_loss_is_zero_and_has_no_gradient(loss):
    logits = torch.randn(1, 3, 2, 2, requires_grad=True)
    value = loss(logits, torch.full((1, 2, 2), 255))
    value.backward()
    assert value.item() == 0
    assert not logits.grad.any()


@pytest.mark.parametrize("loss", [pixel_bce, pixel_ce])
def test_an_ignored_pixel_has_no_gradient_and_does_not_thin_out_the_others(loss):
    logits, labels = image(1)
    logits.requires_grad_()
    value = loss(logits, labels)
    value.backward()
    assert not logits.grad.permute(0, 2, 3, 1)[labels == 255].any()
    assert logits.grad.permute(0, 2, 3, 1)[labels != 255].any(1).all()
    only = labels != 255
    kept = logits.detach().permute(0, 2, 3, 1)[only].T[None, :, :, None]
    assert torch.allclose(value, loss(kept, labels[only][None, :, None]), atol=1e-6)


def test_pixel_ce_is_torchs_mean():
    logits, labels = image(2)
    assert torch.allclose(pixel_ce(logits, labels), F.cross_entropy(logits, labels, ignore_index=255))


def test_image_bce_is_the_mean_over_classes_and_images():
    logits = torch.tensor([[0.0, 2.0], [-1.0, 0.0]])
    labels = torch.tensor([[True, True], [False, True]])
    by_hand = [math.log(2), math.log(1 + math.exp(-2)), math.log(1 + math.exp(-1)), math.log(2)]
    assert image_bce(logits, labels).item() == pytest.approx(sum(by_hand) / 4)
