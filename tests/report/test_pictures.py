"""Layers of a picture: what is shown, and what is marked as wrong."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from ipseg.report.pictures import expected, layer

NAMES = ("background", "cow", "horse")


def opacity(source: str) -> np.ndarray:
    """How much each pixel of a layer covers."""
    data = base64.b64decode(source.partition(",")[2])
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGBA"))[..., 3]


def scene(size: int = 40) -> tuple[np.ndarray, np.ndarray]:
    truth = np.zeros((size, size), np.uint8)
    truth[10:30, 10:30] = 1
    return np.zeros((size, size, 3), np.uint8), truth


def test_what_is_right_has_no_outline():
    image, truth = scene()
    made = layer(image, truth, NAMES, truth)
    assert (made.errors, made.wrong, made.seen) == ("", "0 % wrong", "cow")


def test_a_wrong_area_is_outlined_and_nothing_else():
    image, truth = scene()
    made = layer(image, np.where(truth == 1, 2, truth), NAMES, truth)
    marks = opacity(made.errors)
    assert made.wrong == "25 % wrong"
    assert marks[10, 15] == marks[29, 15] == 255
    assert not marks[:8].any()
    assert not marks[:, 32:].any()


def test_an_error_up_to_the_edge_of_the_picture_is_outlined_there_too():
    image, truth = scene()
    marks = opacity(layer(image, np.full_like(truth, 2), NAMES, truth).errors)
    assert (marks[0] == 255).all()
    assert (marks[:, -1] == 255).all()


def test_an_edge_that_is_one_pixel_off_is_not_outlined():
    image, truth = scene()
    made = layer(image, np.roll(truth, 1, axis=1), NAMES, truth)
    assert made.errors == ""
    assert made.wrong == "2 % wrong"


def test_ignored_pixels_are_never_wrong():
    image, truth = scene()
    made = layer(image, np.full_like(truth, 2), NAMES, np.full_like(truth, 255))
    assert (made.errors, made.wrong) == ("", "0 % wrong")


def test_a_class_that_is_not_learned_yet_should_be_background_or_is_ignored():
    truth = np.array([[0, 1, 2, 255]], np.uint8)
    assert expected(truth, NAMES, {"background", "cow"}).tolist() == [[0, 1, 0, 255]]
    assert expected(truth, NAMES, {"background", "cow"}, unseen=255).tolist() == [[0, 1, 255, 255]]
