"""The confusion matrix, and its largest errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ipseg.report.confusion import Confusion, last_confusion

NAMES = ("background", "cow", "horse", "cat", "absent")
ANIMALS = Confusion.of_counts(
    NAMES,
    np.array(
        [
            [9000, 50, 50, 0, 0],
            [20, 60, 20, 0, 0],
            [10, 40, 50, 0, 0],
            [900, 1, 0, 99, 0],
            [0, 0, 0, 0, 0],
        ]
    ),
)


def test_the_largest_errors_come_first_whatever_the_number_of_pixels():
    assert ANIMALS.largest(3) == [
        ("cat", "background", pytest.approx(0.9)),
        ("horse", "cow", pytest.approx(0.4)),
        ("cow", "background", pytest.approx(0.2)),
    ]
    assert len(ANIMALS.largest(99)) == 5  # none below a hundredth


def test_a_perfect_or_an_empty_model_has_no_errors():
    assert Confusion.of_counts(NAMES, np.diag([5, 5, 5, 5, 0])).largest() == []
    assert Confusion.of_counts(NAMES, np.zeros((5, 5), int)).largest() == []


def test_a_large_matrix_is_cut_to_the_classes_with_most_errors():
    part = ANIMALS.worst(2)
    assert part.names == ("background", "cat")
    places = [ANIMALS.names.index(name) for name in part.names]
    assert part.shares.tolist() == ANIMALS.shares[np.ix_(places, places)].tolist()  # of all pixels, as the whole says
    assert ANIMALS.worst(99).names == NAMES


def test_seeds_are_counted_together_and_old_results_have_no_matrix(make_run):
    def counted(run, matrix):
        return replace(run, steps=(*run.steps[:-1], replace(run.steps[-1], confusion=matrix)))

    runs = [counted(make_run(seed=seed), {"cat": {"cat": 3, "bus": seed}}) for seed in (1, 2)]
    found = last_confusion(runs)
    assert found is not None
    cat, bus = found.names.index("cat"), found.names.index("bus")
    assert found.shares[cat, [cat, bus]].tolist() == [6 / 9, 3 / 9]
    assert last_confusion([runs[0], make_run(seed=3)]) is None
