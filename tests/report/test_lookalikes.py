"""What is taken for what: the worst pairs, in words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ipseg.report.lookalikes import (
    Confusion,
    Pair,
    last_confusion,
    look_alikes,
    most_confused,
    say_missed,
    say_pair,
)

NAMES = ("background", "cow", "horse", "cat", "absent")
ANIMALS = Confusion(
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


def test_the_pair_that_is_mixed_up_most_comes_first_and_background_is_none():
    pairs = look_alikes(ANIMALS)
    assert pairs == [Pair("horse", "cow", pytest.approx(0.4), pytest.approx(0.2))]


def test_at_most_so_many_pairs_are_called_out():
    names = tuple(f"class {i}" for i in range(6))
    muddle = Confusion(names, np.full((6, 6), 10))
    assert [len(look_alikes(muddle, most)) for most in (1, 3, 99)] == [1, 3, 15]


def test_a_pair_is_said_in_words_with_the_worse_side_first():
    (pair,) = look_alikes(ANIMALS)
    assert say_pair(pair) == "40 % of horse is called cow, and 20 % of cow is called horse"
    assert say_pair(replace(pair, second_as_first=0.0)) == "40 % of horse is called cow; hardly any cow is called horse"
    assert "under 1 % of cow" in say_pair(replace(pair, second_as_first=0.007))


def test_what_is_missed_is_told_apart_from_what_is_confused():
    assert say_missed(ANIMALS, most=1) == "Most often missed: cat (90 % of it is called background)"
    assert say_missed(Confusion(("background", "cow"), np.diag([5, 5]))) == ""


def test_a_perfect_or_an_empty_model_has_no_look_alikes():
    assert look_alikes(Confusion(NAMES, np.diag([5, 5, 5, 5, 0]))) == []
    assert look_alikes(Confusion(NAMES, np.zeros((5, 5), int))) == []


def test_a_large_matrix_is_cut_to_the_classes_with_most_errors():
    assert most_confused(ANIMALS, 5) is ANIMALS
    part = most_confused(ANIMALS, 2)
    assert part.names == ("background", "cat")
    assert part.counts.tolist() == [[9000, 0], [900, 99]]
    places = [ANIMALS.names.index(name) for name in part.names]
    assert part.shares.tolist() == ANIMALS.shares[np.ix_(places, places)].tolist()  # of all pixels, as the whole says


def test_seeds_are_counted_together_and_old_results_have_no_matrix(make_run):
    def counted(run, matrix):
        return replace(run, steps=(*run.steps[:-1], replace(run.steps[-1], confusion=matrix)))

    runs = [counted(make_run(seed=seed), {"cat": {"cat": 3, "bus": seed}}) for seed in (1, 2)]
    found = last_confusion(runs)
    assert found is not None
    cat, bus = found.names.index("cat"), found.names.index("bus")
    assert found.counts[cat, [cat, bus]].tolist() == [6, 3]
    assert last_confusion([runs[0], make_run(seed=3)]) is None
