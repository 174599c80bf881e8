from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from ipseg.errors import UserError
from ipseg.report import overlay as module
from ipseg.report.overlay import grid, heatmap, legend_entries, outline_errors, overlay, with_legend
from ipseg.report.palette import colors

NAMES = ["background", "cat", "dog", "bus"]
label_maps = arrays(
    np.uint8, st.tuples(st.integers(1, 24), st.integers(1, 24)), elements=st.sampled_from([0, 1, 2, 3, 255])
)


def picture_of(labels: np.ndarray) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (*labels.shape, 3), dtype=np.uint8)


@given(labels=label_maps, alpha=st.floats(0, 1))
@settings(max_examples=40, deadline=None)
def test_background_pixels_are_left_as_they_are(labels, alpha):
    image = picture_of(labels)
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
def test_a_legend_shows_every_color_below_a_picture_of_any_size(size):
    entries = [(tuple(color), f"class {i} " + "x" * 3 * i) for i, color in enumerate(colors(30).tolist())]
    sheet = with_legend(Image.new("RGB", size, "white"), entries)
    assert sheet.width >= 320
    shown = {color for _, color in sheet.getcolors(sheet.width * sheet.height) or []}
    assert {color for color, _ in entries} <= shown


def test_a_legend_without_entries_adds_nothing():
    assert with_legend(Image.new("RGB", (400, 100)), []).size == (400, 100)


def test_a_contact_sheet_shows_every_picture_also_where_rows_are_short():
    red, blue = Image.new("RGB", (16, 24), "red"), Image.new("RGB", (300, 200), "blue")
    sheet = grid([[red, blue], [blue]], ["small", "large"], ["one", "two"])
    shown = {color: count for count, color in sheet.getcolors(sheet.width * sheet.height) or []}
    assert shown[255, 0, 0] == 160 * 240
    assert shown[0, 0, 255] == 2 * 300 * 200


def test_a_contact_sheet_with_too_few_titles_is_refused():
    with pytest.raises(UserError, match="titles"):
        grid([[Image.new("RGB", (8, 8))]], [], ["row"])


def test_a_heat_map_grows_lighter_and_grays_what_is_unknown():
    pixels = np.asarray(heatmap(np.array([[0, 0.25, 0.5, 0.75, 1, 7, np.nan]]))).astype(int)[0]
    light = pixels[:5] @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(light) > 0).all()
    assert pixels[5].tolist() == pixels[4].tolist()
    assert pixels[6].tolist() == colors()[255].tolist()


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


@pytest.mark.parametrize(
    "draw",
    [
        lambda text: with_legend(Image.new("RGB", (40, 4)), [((9, 9, 9), text)]),
        lambda text: grid([[Image.new("RGB", (40, 4))]], [text], [""]),
        lambda text: grid([[Image.new("RGB", (40, 4))]], [""], [text]),
    ],
)
def test_letters_of_many_languages_are_drawn_as_themselves(draw):
    assert len({draw(letter).tobytes() for letter in LETTERS + NO_LETTER}) == len(LETTERS) + 1


def test_strips_of_an_overlay_leave_no_seams(monkeypatch):
    image, labels = np.full((900, 500, 3), 90, np.uint8), np.zeros((900, 500), np.uint8)
    labels[100:700, 50:400], labels[300:500, 200:450] = 1, 2
    labels[600:, 300:] = 255
    seen = []
    for rows in (7, 256, 10_000):
        monkeypatch.setattr(module, "STRIP", rows)
        seen.append(np.array(module.overlay(image, labels, ["background", "a", "b"])))
    assert all(np.array_equal(one, seen[0]) for one in seen)
