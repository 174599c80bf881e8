"""The detector that needs no model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipseg.saliency.fallback import lab, minimum_barrier, otsu, salient


def blob(height: int = 120, width: int = 160, color=(220, 60, 40), ground=(90, 120, 90)) -> tuple:
    """A disc on a plain ground with a little noise, and where it is."""
    rng = np.random.default_rng(0)
    image = np.full((height, width, 3), ground) + rng.integers(-6, 7, (height, width, 3))
    down, across = np.mgrid[:height, :width]
    disc = np.hypot(down - height * 0.5, across - width * 0.45) < 0.25 * min(height, width)
    image[disc] += np.array(color) - ground
    return image.clip(0, 255).astype(np.uint8), disc


@settings(max_examples=15)
@given(st.integers(1, 90), st.integers(1, 90), st.integers(0, 9))
def test_every_image_has_a_map_of_its_size_and_always_the_same(height, width, seed):
    image = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    found = salient(image)
    assert (found.shape, found.dtype) == ((height, width), bool)
    assert np.array_equal(found, salient(image.copy()))


@pytest.mark.parametrize("size", [(120, 160), (400, 300), (90, 200), (64, 64)])
def test_an_object_on_a_plain_ground_is_found(size):
    image, disc = blob(*size)
    found = salient(image)
    assert (found & disc).sum() / (found | disc).sum() > 0.75


def test_a_dark_object_is_found_as_a_bright_one_is():
    image, disc = blob(color=(10, 10, 20), ground=(200, 200, 190))
    found = salient(image)
    assert (found & disc).sum() / (found | disc).sum() > 0.75


@pytest.mark.parametrize("gray", [0, 128, 255])
def test_nothing_is_salient_in_a_blank_image(gray):
    noise = np.random.default_rng(0).integers(-3, 4, (100, 140, 3))
    assert not salient(np.full((100, 140, 3), gray, dtype=np.uint8)).any()
    assert not salient((gray + noise).clip(0, 255).astype(np.uint8)).any()


def test_a_barrier_is_what_the_best_path_from_the_border_must_cross():
    # The 9 is walled in by 5; the way in costs 5 - 0 up to the wall, and 9 - 0 to the middle.
    channel = np.zeros((5, 5, 1), dtype=np.float32)
    channel[1:4, 1:4] = 5
    channel[2, 2] = 9
    assert minimum_barrier(channel)[..., 0].tolist() == channel[..., 0].tolist()
    channel[1, 2] = 0  # a gate in the wall does not help: the middle itself is 9 above the border
    assert minimum_barrier(channel)[2, 2, 0] == 9
    channel[2, 2] = 0  # but now the inside is as the outside, and the gate leads there
    assert minimum_barrier(channel)[2, 2, 0] == 0
    channel[1, 2] = 5
    assert minimum_barrier(channel)[2, 2, 0] == 5


def test_black_and_white_differ_by_100_in_lab_and_grays_have_no_color():
    black, gray, white = lab(np.array([[[0] * 3, [119] * 3, [255] * 3]], dtype=np.uint8))[0]
    assert white - black == pytest.approx([100, 0, 0], abs=0.1)
    assert gray[0] == pytest.approx(50, abs=0.5)
    red = lab(np.array([[[255, 0, 0]]], dtype=np.uint8))[0, 0]
    assert red == pytest.approx([53.2, 80.1, 67.2], abs=0.3)  # the published values of sRGB red


def test_a_threshold_lies_in_the_middle_between_two_groups():
    values = np.concatenate([np.full(90, 0.2), np.full(10, 0.7)]).astype(np.float32)
    assert otsu(values) == pytest.approx(0.45, abs=0.02)
