"""The equations of inference on two classes and two pixels."""

from __future__ import annotations

import torch

from ipseg.methods.fusion import filter_noise, fuse


def pixels(*channels: list[float]) -> torch.Tensor:
    """(1, C, 1, 2): one row for each channel."""
    return torch.tensor(channels)[None, :, None, :]


def test_equation_3_weighs_each_class_by_the_images_posterior_and_the_background_by_alpha_bc():
    pixel = pixels([0.5, 0.2], [0.6, 0.4], [0.7, 0.1])  # background, two classes
    fused = fuse(pixel, torch.tensor([[0.5, 0.1]]), alpha_bc=0.9)
    assert torch.allclose(fused, pixels([0.45, 0.18], [0.30, 0.20], [0.07, 0.01]))
    assert pixel.argmax(1).tolist() == [[[2, 1]]]
    assert fused.argmax(1).tolist() == [[[0, 1]]]  # the image says that class 2 is hardly there


def test_each_image_of_a_batch_has_its_own_posterior():
    pixel = torch.ones(2, 2, 1, 1)
    fused = fuse(pixel, torch.tensor([[0.25], [0.75]]), alpha_bc=1.0)
    assert fused[:, 1].flatten().tolist() == [0.25, 0.75]


def test_equation_9_scales_a_class_down_where_its_own_head_rates_other_foreground_at_least_as_high():
    logits = pixels([2.0, -1.0], [0.5, 3.0])
    other = pixels([1.0, 0.0])
    filtered = filter_noise(pixels([0.8, 0.3], [0.6, 0.9]), logits, other, alpha_nf=0.4)
    assert torch.allclose(filtered, pixels([0.8, 0.12], [0.24, 0.9]))


def test_equal_logits_count_as_other_foreground():
    filtered = filter_noise(pixels([0.5, 0.5]), pixels([1.0, 1.0]), pixels([1.0, 0.999]), alpha_nf=0.4)
    assert torch.allclose(filtered, pixels([0.2, 0.5]))


def test_a_factor_of_one_filters_nothing():
    probability = torch.rand(1, 3, 4, 4)
    assert torch.equal(filter_noise(probability, torch.zeros(1, 3, 4, 4), torch.ones(1, 1, 4, 4), 1.0), probability)
