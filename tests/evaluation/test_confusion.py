"""The confusion matrix: by hand, against torchmetrics, and over any division of the pixels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ipseg.evaluation.confusion import ConfusionMatrix
from ipseg.evaluation.metrics import iou
from ipseg.models._torchvision import ensure_torchvision

CLASSES = 5
pixels = st.lists(st.tuples(st.sampled_from([*range(CLASSES), 255]), st.integers(0, CLASSES - 1)), max_size=60)


def counted(pairs: list[tuple[int, int]]) -> ConfusionMatrix:
    confusion = ConfusionMatrix(CLASSES)
    labels = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
    confusion.update(labels[:, 0], labels[:, 1])
    return confusion


def random_labels(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randint(0, CLASSES, (3, 17, 11), generator=generator)
    truth[torch.rand(truth.shape, generator=generator) < 0.2] = 255
    return truth, torch.randint(0, CLASSES, truth.shape, generator=generator)


def test_a_two_by_two_image_is_counted_as_by_hand():
    confusion = ConfusionMatrix(2)
    confusion.update(torch.tensor([[0, 0], [1, 1]]), torch.tensor([[0, 1], [1, 1]]))
    assert confusion.counts.tolist() == [[1, 1], [0, 2]]  # rows: truth
    assert iou(confusion.counts) == [1 / 2, 2 / 3]


@given(pixels)
def test_every_pixel_is_counted_in_its_cell_unless_the_truth_is_ignored(pairs):
    expected = np.zeros((CLASSES, CLASSES), dtype=np.int64)
    for truth, prediction in pairs:
        if truth != 255:
            expected[truth, prediction] += 1
    assert np.array_equal(counted(pairs).counts, expected)


@given(pixels, pixels)
def test_two_merged_halves_equal_one_pass(first, second):
    merged = counted(first)
    merged.merge(counted(second))
    assert np.array_equal(merged.counts, counted(first + second).counts)


@pytest.mark.parametrize("seed", [0, 1])
def test_iou_agrees_with_torchmetrics(seed):
    ensure_torchvision()  # torchmetrics imports it
    reference = pytest.importorskip("torchmetrics.classification").MulticlassJaccardIndex(
        CLASSES, average="none", ignore_index=255
    )
    confusion = ConfusionMatrix(CLASSES)
    for part in (seed, seed + 10):
        truth, prediction = random_labels(part)
        confusion.update(truth, prediction)
        reference.update(prediction, truth)
    assert iou(confusion.counts) == pytest.approx(reference.compute().tolist(), abs=1e-6)


def test_bytes_count_like_long_integers():
    truth, prediction = random_labels(3)
    as_bytes, as_long = ConfusionMatrix(CLASSES), ConfusionMatrix(CLASSES)
    as_bytes.update(truth.to(torch.uint8), prediction.to(torch.uint8))
    as_long.update(truth, prediction)
    assert np.array_equal(as_bytes.counts, as_long.counts)


def test_counts_are_whole_numbers_beyond_32_bits():
    confusion = counted([(1, 1)])
    confusion.matrix *= 2**40
    confusion.merge(counted([(1, 1)]))
    assert confusion.counts[1, 1] == 2**40 + 1


def test_counts_taken_earlier_do_not_change_later():
    confusion = counted([(0, 0)])
    before = confusion.counts
    confusion.merge(counted([(0, 0)]))
    assert before[0, 0] == 1


def test_what_is_predicted_where_the_truth_is_ignored_may_be_anything():
    confusion = ConfusionMatrix(2)
    confusion.update(torch.tensor([255, 1]), torch.tensor([255, 1]))
    assert confusion.counts.tolist() == [[0, 0], [0, 1]]


@pytest.mark.parametrize(
    ("truth", "prediction", "problem"),
    [
        ([0, 1], [0], "shape"),
        ([0, 2], [0, 1], "truth holds labels 0 to 2; valid: 0 to 1"),
        ([0, 1], [0, 2], "prediction holds labels 0 to 2; valid: 0 to 1"),
        ([0, 1], [-1, 1], "prediction holds labels -1 to 1"),
        ([0, 1], [0.0, 1.0], "whole numbers"),
    ],
)
def test_labels_that_would_be_miscounted_are_refused(truth, prediction, problem):
    confusion = ConfusionMatrix(2)
    with pytest.raises(ValueError, match=problem):
        confusion.update(torch.tensor(truth), torch.tensor(prediction))
    assert not confusion.counts.any()


def test_matrices_of_different_classes_are_not_added():
    with pytest.raises(ValueError, match="of 3 classes cannot be added to one of 2"):
        ConfusionMatrix(2).merge(ConfusionMatrix(3))


@pytest.mark.parametrize("classes", [0, 256])
def test_there_are_as_many_classes_as_a_mask_has_room_for(classes):
    with pytest.raises(ValueError, match="between 1 and 255"):
        ConfusionMatrix(classes)
