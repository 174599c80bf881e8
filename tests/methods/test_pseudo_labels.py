"""PLOP's pseudo-labels: entropy once normalized, true medians, and 255 stays 255."""

from __future__ import annotations

import math
from math import log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ipseg.methods.pseudo_labels import BINS, OFFICIAL_BINS, ClassHistograms, entropy, pseudo_labels, weighted_ce

CPU = torch.device("cpu")
NEAR = 2 / BINS


def logits(*pixels: list[float]) -> torch.Tensor:
    return torch.tensor(pixels).log().T[None, :, None]


def test_entropy_goes_from_zero_to_one_for_any_number_of_classes():
    for classes in (2, 3, 150):
        same = torch.zeros(1, classes, 1, 1)
        sure = same.clone()
        sure[0, 0] = 1000
        assert entropy(same).item() == pytest.approx(1, abs=1e-6)
        assert entropy(sure).item() == 0
    expected = -(0.9 * log(0.9) + 0.1 * log(0.1)) / log(2)
    assert entropy(logits([0.9, 0.1])).item() == pytest.approx(expected)


def test_the_median_is_each_class_s_own():
    medians = ClassHistograms(3, BINS, CPU)
    medians.add(torch.tensor([0, 0, 0, 2]), torch.tensor([0.1, 0.2, 0.9, 0.5]))
    medians.add(torch.tensor([0, 0]), torch.tensor([0.15, 1.0]))  # in any number of parts
    found = medians.medians()
    assert found.tolist() == pytest.approx([0.2, 0, 0.5], abs=NEAR)  # no pixel was of class 1


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=60))
def test_at_most_half_of_the_values_lie_below_the_median_and_at_most_half_above(values):
    medians = ClassHistograms(1, BINS, CPU)
    medians.add(torch.zeros(len(values), dtype=torch.long), torch.tensor(values))
    median = medians.medians().item()
    assert sum(value < median - NEAR for value in values) <= len(values) / 2
    assert sum(value > median + NEAR for value in values) <= len(values) / 2


def test_the_official_thresholds_add_up_numbers_of_bins_instead_of_their_counts():
    entropies = ClassHistograms(4, OFFICIAL_BINS, CPU)
    entropies.add(torch.zeros(5, dtype=torch.long), torch.tensor([0.001, 0.002, 0.003, 0.6, 0.7]))
    entropies.add(torch.ones(4, dtype=torch.long), torch.tensor([0.001, 0.02, 0.021, 0.5]))
    entropies.add(torch.full((3,), 2), torch.tensor([0.1, 0.3, 0.5]))
    # 2.5 of three in the first bin; two pixels, of which bin 2 is said to have one below it and has two; too few
    expected = pytest.approx([2.5 / 3 / 100, (2 + (2 - 1) / 2) / 100, -math.inf, 0])
    assert entropies.official_thresholds().tolist() == expected
    entropies.add(torch.arange(9_999) % 3 // 2 + 2, torch.linspace(0.01, 0.5, 9_999))
    assert entropies.official_thresholds()[3].item() == -math.inf  # 3,333 pixels
    entropies.add(torch.full((9_999,), 3), torch.linspace(0.01, 0.5, 9_999))
    assert entropies.official_thresholds()[3].item() == math.inf  # 13,332: every label counts


def test_a_sure_pixel_takes_the_old_label_an_unsure_one_is_ignored_and_annotations_stay():
    sure, unsure = [0.02, 0.98], [0.45, 0.55]
    background = [0.99, 0.01]
    old = logits(sure, unsure, background, sure, sure)
    labels = torch.tensor([[[0, 0, 0, 2, 255]]])
    taught, nu = pseudo_labels(labels, old, torch.tensor([0.5, 0.5]))
    assert taught.flatten().tolist() == [1, 255, 0, 2, 255]
    assert nu.tolist() == pytest.approx([2 / 3])


def test_each_class_has_its_own_threshold():
    old = logits([0.9, 0.1], [0.1, 0.9])
    taught, _ = pseudo_labels(torch.zeros(1, 1, 2, dtype=torch.long), old, torch.tensor([0.1, 0.9]))
    assert taught.flatten().tolist() == [255, 1]


def test_an_image_without_background_counts_in_full():
    _, nu = pseudo_labels(torch.tensor([[[2, 255]]]), logits([0.5, 0.5], [0.5, 0.5]), torch.tensor([0.1, 0.1]))
    assert nu.tolist() == [1]


def test_the_cross_entropy_is_weighed_by_image_and_unsure_pixels_dilute_it():
    made = logits([0.5, 0.5], [0.2, 0.8]).expand(2, -1, -1, -1)
    taught = torch.tensor([[[0, 255]], [[0, 1]]])
    loss = weighted_ce(made, taught, torch.tensor([0.5, 1.0])[:, None, None], torch.ones(2, 1, 2, dtype=torch.bool))
    assert loss.item() == pytest.approx(-(0.5 * log(0.5) + log(0.5) + log(0.8)) / 4)
    nothing = weighted_ce(made, torch.full((2, 1, 2), 255), torch.ones(2, 1, 1), torch.zeros(2, 1, 2, dtype=torch.bool))
    assert nothing.item() == 0
