"""Sets of classes per image: exact match and macro-F1, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ipseg.evaluation.image_level import ImageLevel


def sets(*rows: str) -> np.ndarray:
    """One image a row, one class a letter: "x.." holds the first of three classes."""
    return np.array([[letter == "x" for letter in row] for row in rows])


TRUTH = sets("x..", "xx.", ".x.", "...")
PIXEL = sets("x..", "x..", ".x.", "x..")
BOTH = sets("x..", "xx.", ".x.", "...")


def gathered() -> ImageLevel:
    level = ImageLevel()
    level.update(TRUTH[:1], pixel=PIXEL[:1], both=BOTH[:1])
    level.update(TRUTH[1:], pixel=PIXEL[1:], both=BOTH[1:])
    return level


def test_an_image_is_right_only_if_its_whole_set_is():
    assert gathered().accuracy([0, 1, 2]) == {"posterior": None, "pixel": 0.5, "both": 1.0}


def test_only_the_asked_columns_count():
    assert gathered().accuracy([0])["pixel"] == 0.75
    assert gathered().accuracy([2])["pixel"] == 1.0


def test_f1_is_the_mean_over_classes_that_occur():
    # pixel: class 0 hits 2, false alarm 1 -> 4/5; class 1 hits 1, misses 1 -> 2/3; class 2 nowhere -> left out
    assert gathered().f1([0, 1, 2]) == {"posterior": None, "pixel": pytest.approx((4 / 5 + 2 / 3) / 2), "both": 1.0}


def test_a_class_that_is_only_predicted_counts_as_zero():
    level = ImageLevel()
    level.update(sets("x."), posterior=sets("xx"))
    assert level.f1([0, 1])["posterior"] == 0.5


def test_without_images_or_classes_there_is_no_value():
    nothing = {"posterior": None, "pixel": None, "both": None}
    assert ImageLevel().accuracy([0]) == ImageLevel().f1([0]) == nothing
    assert gathered().accuracy([]) == gathered().f1([]) == nothing
    assert gathered().f1([2]) == nothing


def test_merged_parts_equal_one_pass():
    first, second = ImageLevel(), ImageLevel()
    first.update(TRUTH[:3], pixel=PIXEL[:3], both=BOTH[:3])
    second.update(TRUTH[3:], pixel=PIXEL[3:], both=BOTH[3:])
    merged = ImageLevel()
    for part in (first, second, ImageLevel()):
        merged.merge(part)
    assert merged.accuracy([0, 1]) == gathered().accuracy([0, 1])
    assert merged.f1([0, 1]) == gathered().f1([0, 1])


def test_a_reading_cannot_come_and_go_between_batches():
    level = gathered()
    with pytest.raises(ValueError, match="readings changed"):
        level.update(TRUTH, posterior=TRUTH, pixel=PIXEL, both=BOTH)


@pytest.mark.parametrize(("truth", "pixel"), [(TRUTH, PIXEL[:2]), (TRUTH, PIXEL[:, :2]), (TRUTH[0], PIXEL[0])])
def test_sets_of_other_shapes_are_refused(truth, pixel):
    with pytest.raises(ValueError, match="share one shape"):
        ImageLevel().update(truth, pixel=pixel)
