"""Eq. 5 by hand: what each branch is taught at one pixel, for every case that a pixel can be."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ipseg.methods.labels import (
    classes_present,
    coupled_labels,
    labels_at_cells,
    permanent_labels,
    temporary_labels,
    where_unlabeled,
)
from ipseg.models.features import Canvas
from ipseg.scenario import MAX_CLASSES

C_U, C_B = 0, 1  # channels of the permanent branch
C_F, FIRST = 0, 2  # channels of a temporary branch: c_f, c'_b, then the step's classes
IGNORE = 255


def one(value: int) -> torch.Tensor:
    return torch.tensor([[[value]]])


CASES = [  # y, the previous model sees an old class there, salient -> y~^p
    (0, False, False, C_B),
    (0, False, True, C_U),
    (0, True, False, IGNORE),
    (0, True, True, IGNORE),
    (5, False, False, IGNORE),
    (5, False, True, IGNORE),
    (5, True, True, IGNORE),
    (IGNORE, False, False, IGNORE),
    (IGNORE, False, True, IGNORE),
    (IGNORE, True, True, IGNORE),
]


@pytest.mark.parametrize(("y", "old", "salient", "expected"), CASES)
def test_the_permanent_branch_is_taught_what_equation_5_says(y, old, salient, expected):
    assert permanent_labels(one(y), one(old).bool(), one(salient).bool()).item() == expected


@pytest.mark.parametrize(
    ("y", "salient", "expected"),
    [
        (0, False, C_B),
        (0, True, C_F),  # old or unknown alike: the branch only learns that it is none of its own
        (4, False, FIRST),
        (4, True, FIRST),
        (6, True, FIRST + 2),
        (IGNORE, False, IGNORE),
        (IGNORE, True, IGNORE),
    ],
)
def test_a_temporary_branch_is_taught_what_equation_5_says(y, salient, expected):
    assert temporary_labels(one(y), one(salient).bool(), first=4).item() == expected


@pytest.mark.parametrize(
    ("y", "old_class", "salient", "expected"),
    [
        (0, 0, False, 1),
        (0, 0, True, 0),
        (0, 2, False, 3),  # class k is channel k + 1, after unknown and background
        (0, 2, True, 3),
        (4, 2, True, 5),  # an annotation goes before what the previous model thinks
        (4, 0, False, 5),
        (IGNORE, 2, True, IGNORE),
    ],
)
def test_coupled_labels_are_those_of_ssul(y, old_class, salient, expected):
    assert coupled_labels(one(y), one(old_class), one(salient).bool()).item() == expected


@st.composite
def label_maps(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    size = draw(st.integers(1, 12))
    y = draw(st.lists(st.sampled_from([0, 3, 4, IGNORE]), min_size=size, max_size=size))
    old, salient = (draw(st.lists(st.booleans(), min_size=size, max_size=size)) for _ in range(2))
    return torch.tensor(y)[None, None], torch.tensor(old)[None, None], torch.tensor(salient)[None, None]


@given(label_maps())
def test_the_permanent_branch_never_learns_on_a_class_of_the_step_or_where_nothing_is_annotated(maps):
    y, old, salient = maps
    labels = permanent_labels(y, old, salient)
    assert set(labels.unique().tolist()) <= {C_U, C_B, IGNORE}
    assert (labels[y > 0] == IGNORE).all()


@given(label_maps())
def test_what_is_ignored_stays_ignored_and_no_other_pixel_of_a_temporary_branch_is(maps):
    y, old, salient = maps
    assert torch.equal(temporary_labels(y, salient, first=3) == IGNORE, y == IGNORE)
    assert torch.equal(coupled_labels(y, old.long(), salient) == IGNORE, y == IGNORE)


def test_classes_present_lists_the_indices_that_some_pixel_has():
    maps = torch.tensor([[[0, 1], [3, 255]], [[255, 255], [255, 255]], [[2, 2], [2, 2]]])
    assert classes_present(maps, 3).tolist() == [[True, False, True], [False] * 3, [False, True, False]]
    assert classes_present(maps[:0], 3).shape == (0, 3)  # one of several processes may have no image to look at


def test_an_area_is_a_share_of_the_whole_map_and_must_be_exceeded():
    quarter = torch.tensor([[[1, 1, 0, 0, 255, 255, 255, 255]]])
    assert classes_present(quarter, 1, min_area=0.24).item() is True
    assert classes_present(quarter, 1, min_area=0.25).item() is False


def test_the_last_class_that_a_byte_has_room_for_is_taught():
    last, nothing = one(MAX_CLASSES), one(0)
    assert temporary_labels(last, nothing.bool(), first=1).item() == MAX_CLASSES + 1 != IGNORE
    assert coupled_labels(last, nothing, nothing.bool()).item() == MAX_CLASSES + 1 != IGNORE
    assert coupled_labels(nothing, last, nothing.bool()).item() == MAX_CLASSES + 1


def test_what_a_model_finds_counts_only_where_nothing_is_annotated():
    y, found = torch.tensor([[[0, 0, 3, IGNORE]]]), torch.tensor([[[1, 0, 1, 1]]])
    assert where_unlabeled(found, y).tolist() == [[[1, 0, 0, IGNORE]]]


@pytest.mark.parametrize(
    ("mode", "cells"),
    [("nearest", [[0, 2, 4, IGNORE], [10, 12, 14, IGNORE]]), ("nearest-exact", [[6, 8, IGNORE, IGNORE], [IGNORE] * 4])],
)
def test_a_cell_has_the_label_of_its_first_pixel_or_the_one_in_its_middle_and_padding_has_none(mode, cells):
    labels = torch.arange(15).view(1, 3, 5)
    canvas = Canvas(torch.zeros(1, 4), (4, 8), (3, 5))
    assert labels_at_cells(labels, canvas, (2, 4), mode)[0].tolist() == cells
