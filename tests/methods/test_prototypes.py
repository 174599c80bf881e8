"""Means of features over classes."""

from __future__ import annotations

import pytest
import torch

from ipseg.methods.labels import nearest_labels, padded_labels
from ipseg.methods.prototypes import class_masks, class_means, class_sums
from ipseg.models import reduce
from ipseg.models.features import Canvas


def test_a_class_has_the_mean_of_its_cells_and_one_that_is_not_there_has_zero():
    features = torch.tensor([[[[1.0, 2.0], [4.0, 8.0]], [[0.0, 0.0], [2.0, 0.0]]]])
    labels = torch.tensor([[[3, 255], [3, 4]]])
    means, counts = class_means(features, class_masks(labels, range(3, 6)))
    assert means.tolist() == [[2.5, 1.0], [8.0, 0.0], [0.0, 0.0]]
    assert counts.tolist() == [2.0, 1.0, 0.0]


def test_cells_may_belong_to_a_class_in_part():
    means, weights = class_means(torch.tensor([[[[1.0, 4.0]]]]), torch.tensor([[[[1.0, 0.5]]]]))
    assert means.tolist() == [[2.0]]
    assert weights.tolist() == [1.5]


def test_labels_are_those_of_the_nearest_pixel_and_void_stays_void():
    labels = torch.tensor([[[1, 1, 2, 255], [1, 1, 0, 0]]])
    assert nearest_labels(labels, (1, 2)).tolist() == [[[1, 2]]]
    assert nearest_labels(labels, (2, 4)).equal(labels)


def test_labels_are_padded_as_the_canvas_is_before_they_become_cells():
    canvas = Canvas(torch.zeros(1, 4), (4, 4), (3, 2))
    labels = padded_labels(torch.tensor([[[1, 2], [3, 4], [5, 6]]]), canvas)
    assert labels[0].tolist() == [[1, 2, 255, 255], [3, 4, 255, 255], [5, 6, 255, 255], [255, 255, 255, 255]]


def test_half_precision_is_widened_before_it_is_summed():
    features = torch.ones(1, 1, 64, 64, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        sums, _ = class_sums(features, torch.ones(1, 1, 64, 64))
    assert sums.item() == 4096
    assert sums.dtype == torch.float32


def test_every_process_has_the_sums_of_all_and_gradients_of_the_losses_of_all(monkeypatch):
    """Two processes that see the same: twice the sums, and each one's cells are in the losses of both."""
    monkeypatch.setattr(reduce, "world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda tensor: tensor.mul_(2))
    features = torch.tensor([[[[1.0, 3.0]]]], requires_grad=True)
    sums, counts = class_sums(features, torch.ones(1, 1, 1, 2))
    assert (sums.item(), counts.item()) == (8.0, 4.0)
    (sums / counts[:, None]).sum().backward()
    assert features.grad.flatten().tolist() == pytest.approx([0.5, 0.5])
