from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from ipseg.errors import UserError
from ipseg.report.overlay import legend_entries, outline_errors, overlay, with_legend
from ipseg.report.palette import colors

NAMES = ["background", "cat", "dog", "bus"]
label_maps = arrays(
    np.uint8, st.tuples(st.integers(1, 24), st.integers(1, 24)), elements=st.sampled_from([0, 1, 2, 3, 255])
)


def image_of(labels: np.ndarray) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (*labels.shape, 3), dtype=np.uint8)


@given(labels=label_maps, alpha=st.floats(0, 1))
@settings(max_examples=40, deadline=None)
def test_background_pixels_are_left_as_they_are(labels, alpha):
    image = image_of(labels)
    drawn = np.asarray(overlay(image, labels, NAMES, alpha))
    assert np.array_equal(drawn[labels == 0], image[labels == 0])


def test_a_class_moves_pixels_towards_its_color_and_its_border_is_darker():
    labels = np.zeros((20, 20), np.uint8)
    labels[5:15, 5:15] = 1
    drawn = np.asarray(overlay(np.full((20, 20, 3), 200, np.uint8), labels, NAMES)).astype(int)
    assert np.allclose(drawn[10, 10], 0.45 * 200 + 0.55 * colors(2)[1], atol=1)
    assert drawn[5, 10].sum() < drawn[10, 10].sum()


def test_ignored_pixels_are_hatched():
    drawn = np.asarray(overlay(np.zeros((20, 20, 3), np.uint8), np.full((20, 20), 255), NAMES))
    assert len(np.unique(drawn)) == 2


def test_a_label_without_a_name_is_an_error_that_says_which():
    with pytest.raises(UserError, match=r"\[4\]"):
        overlay(np.zeros((2, 2, 3), np.uint8), np.full((2, 2), 4), NAMES)


def test_labels_of_another_size_are_refused():
    with pytest.raises(UserError, match="do not fit"):
        overlay(np.zeros((2, 3, 3), np.uint8), np.zeros((2, 2), int), NAMES)


@given(labels=label_maps)
@settings(max_examples=40, deadline=None)
def test_the_legend_lists_exactly_the_classes_that_are_there(labels):
    texts = [text for _, text in legend_entries(labels, NAMES)]
    assert texts == [{1: "cat", 2: "dog", 3: "bus", 255: "ignored"}[label] for label in np.unique(labels) if label]


@pytest.mark.parametrize("size", [(1, 1), (96, 96), (30, 200), (2000, 1500)])
def test_a_legend_shows_every_color_below_an_image_of_any_size(size):
    entries = [(tuple(color), f"class {i} " + "x" * 3 * i) for i, color in enumerate(colors(30).tolist())]
    sheet = with_legend(Image.new("RGB", size, "white"), entries)
    assert sheet.width >= 320
    printed = {color for _, color in sheet.getcolors(sheet.width * sheet.height) or []}
    assert {color for color, _ in entries} <= printed


def test_a_legend_without_entries_adds_nothing():
    assert with_legend(Image.new("RGB", (400, 100)), []).size == (400, 100)


def marks(wrong: np.ndarray) -> np.ndarray:
    return np.asarray(outline_errors(Image.new("RGB", wrong.shape[::-1], "red"), wrong))[..., 2] > 0


def test_a_wrong_region_is_outlined_and_nothing_else():
    wrong = np.zeros((40, 40), bool)
    assert not marks(wrong).any()
    wrong[10:30, 10:30] = True
    outlined = marks(wrong)
    assert outlined[10, 15]
    assert outlined[29, 15]
    assert not outlined[:8].any()
    assert not outlined[:, 32:].any()
    assert not outlined[15:25, 15:25].any()


def test_an_edge_that_is_one_pixel_off_is_not_outlined():
    wrong = np.zeros((40, 40), bool)
    wrong[10:30, 10] = wrong[10, 10:30] = True
    assert not marks(wrong).any()


LETTERS = "üéßøяα–…"
NO_LETTER = "\uffff"
"""What is missing in a font is drawn as a box, and so is this."""


def test_letters_of_many_languages_are_drawn_as_themselves():
    drawn = {with_legend(Image.new("RGB", (40, 4)), [((9, 9, 9), text)]).tobytes() for text in LETTERS + NO_LETTER}
    assert len(drawn) == len(LETTERS) + 1
