"""Where the image lies in a canvas, and means that padding does not reach."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from ipseg.models.boxes import full_boxes, inside, pool, touched


def test_a_cell_is_touched_by_any_pixel_of_the_image():
    boxes = torch.tensor([[0.0, 0.0, 64.0, 96.0], [0.0, 31.0, 33.0, 64.0], [40.0, 40.0, 41.0, 41.0]])
    found = touched(boxes, (64, 96), (2, 3)).int().tolist()
    assert found == [[[1, 1, 1], [1, 1, 1]], [[1, 1, 0], [1, 1, 0]], [[0, 0, 0], [0, 1, 0]]]


@pytest.mark.parametrize("bins", [1, 2, 4])
def test_for_an_image_that_fills_its_canvas_pooling_is_adaptive_average_pooling(bins):
    features = torch.rand(2, 3, 8, 12)
    pooled = pool(features, full_boxes(torch.empty(2, 3, 256, 384)), (256, 384), bins)
    assert torch.allclose(pooled, F.adaptive_avg_pool2d(features, bins), atol=1e-6)


@given(
    top=st.integers(0, 5), left=st.integers(0, 5), height=st.integers(1, 3), width=st.integers(1, 3),
    bins=st.integers(1, 2),
)  # fmt: skip
def test_what_lies_outside_the_box_does_not_change_the_mean(top, left, height, width, bins):
    generator = torch.Generator().manual_seed(top)
    features = torch.rand(1, 2, 8, 8, generator=generator)
    box = 16.0 * torch.tensor([[top, left, top + height, left + width]])  # a cell is 16 pixels
    other = 100 * torch.rand(1, 2, 8, 8, generator=generator)
    rows, columns = slice(top, top + height), slice(left, left + width)
    other[..., rows, columns] = features[..., rows, columns]
    pooled = pool(features, box, (128, 128), bins)
    assert torch.equal(pooled, pool(other, box, (128, 128), bins))
    part = features[..., rows, columns]
    assert torch.allclose(pooled, F.adaptive_avg_pool2d(part, bins), atol=1e-5)


def test_a_cell_counts_by_the_area_that_it_shares_with_the_image():
    features = torch.tensor([1.0, 5.0, 100.0, 100.0]).expand(1, 1, 4, 4)
    box = torch.tensor([[0.0, 0.0, 32.0, 12.0]])  # cells of 8 pixels: one whole column and half of the next
    assert pool(features, box, (32, 32), 1).item() == pytest.approx((1 * 8 + 5 * 4) / 12)


def test_means_are_exact_in_mixed_precision_too():
    features, boxes = torch.rand(1, 2, 8, 8), torch.tensor([[0.0, 0.0, 50.0, 60.0]])
    exact = pool(features, boxes, (64, 64), 2)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(pool(features, boxes, (64, 64), 2), exact)


def test_inside_is_true_for_pixels_whose_center_lies_in_the_image():
    shown = inside(torch.tensor([[1.0, 0.0, 3.0, 2.0], [0.0, 0.6, 3.0, 2.4]]), (3, 3))
    assert shown[0].int().tolist() == [[0, 0, 0], [1, 1, 0], [1, 1, 0]]
    assert shown[1].int().tolist() == [[0, 1, 0]] * 3


def test_full_boxes_cover_the_canvas():
    images = torch.empty(3, 3, 5, 7)
    assert inside(full_boxes(images), (5, 7)).all()
    assert full_boxes(images).tolist() == [[0, 0, 5, 7]] * 3
