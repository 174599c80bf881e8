"""IoU and the groups that papers report, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ipseg.evaluation.metrics import harmonic_mean, iou, mean, miou_groups

IOUS = {"background": 0.9, "cat": 0.5, "dog": 0.7, "cow": 0.2, "sheep": 0.4}


def test_iou_is_hits_over_truth_and_prediction_together():
    counts = np.array([[6, 2, 0], [1, 3, 0], [0, 0, 4]])
    assert iou(counts) == [6 / 9, 3 / 6, 1.0]


def test_a_class_without_true_pixels_is_left_out_or_zero_as_asked():
    never_there = np.array([[5, 0, 1], [0, 2, 0], [0, 0, 0]])  # class 2 is predicted once, by mistake
    assert iou(never_there, "skip") == [5 / 6, 1.0, None]
    assert iou(never_there, "zero") == [5 / 6, 1.0, 0.0]
    assert mean(iou(never_there, "skip")) == pytest.approx(11 / 12)
    assert mean(iou(never_there, "zero")) == pytest.approx(11 / 18)


def test_a_class_that_is_there_and_never_predicted_is_zero_under_both_rules():
    counts = np.array([[5, 0], [3, 0]])
    assert iou(counts, "skip") == iou(counts, "zero") == [5 / 8, 0.0]


def test_the_mean_of_nothing_is_nothing():
    assert mean([]) is None
    assert mean([None, None]) is None


def test_groups_count_background_in_all_and_base():
    groups = miou_groups(IOUS, base=["cat", "dog"], new=["cow", "sheep"])
    assert groups == pytest.approx(
        {
            "all": 2.7 / 5,
            "base": 2.1 / 3,
            "new": 0.3,
            "harmonic": 2 * 0.7 * 0.3 / 1.0,
            "background": 0.9,
            "base_foreground": 0.6,
            "new_foreground": 0.3,
        }
    )


def test_there_is_no_new_group_after_the_first_step():
    groups = miou_groups({"background": 0.9, "cat": 0.5}, base=["cat"], new=[])
    assert groups["new"] is groups["new_foreground"] is groups["harmonic"] is None
    assert groups["all"] == groups["base"] == pytest.approx(0.7)


def test_classes_without_iou_do_not_pull_their_group_down():
    groups = miou_groups(IOUS | {"dog": None, "cow": None}, base=["cat", "dog"], new=["cow", "sheep"])
    assert groups["base"] == pytest.approx(0.7)
    assert groups["new"] == pytest.approx(0.4)
    assert groups["all"] == pytest.approx(0.6)


def test_the_harmonic_mean_is_zero_where_new_classes_are_not_learned():
    assert harmonic_mean(0.8, 0.0) == 0.0
    assert harmonic_mean(0.0, 0.0) == 0.0
    assert harmonic_mean(None, 0.5) is None
