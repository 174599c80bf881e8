"""REMINDER beside the numbers of its authors' code (vectors/README.md)."""

from __future__ import annotations

import pytest
import torch
from given_network import assert_close, load_cases
from torch import Tensor

from ipseg.methods.prototypes import class_masks, class_means
from ipseg.methods.reminder import cell_shares, csw_distill, similar_classes
from ipseg.models.boxes import full_boxes
from ipseg.models.features import Canvas
from ipseg.models.softmax import SoftmaxOutput


def seen(features: Tensor, labels: Tensor) -> SoftmaxOutput:
    size = (labels.shape[-2], labels.shape[-1])
    return SoftmaxOutput((), features, features, Canvas(full_boxes(labels[:, None]), size, size))


@pytest.mark.parametrize("v", load_cases("reminder_csw_kd"))
def test_the_distillation_and_its_gradient_are_the_authors(v):
    old, logits = int(v["n_old"]), v["logit"].requires_grad_()
    masks = class_masks(v["label"], range(old, old + int(v["n_new"])))
    means, _ = class_means(v["feature"], cell_shares(masks, seen(v["feature"], v["label"])))
    assert_close(means, v["out_batch_prototype"][old:])
    similarity = similar_classes(means, v["old_prototype"], float(v["delta"]))
    loss = csw_distill(logits, v["old_logit"], masks, similarity, float(v["temperature"]))
    assert_close(loss, v["out_loss"])
    loss.backward()
    assert_close(logits.grad, v["out_grad_logit"])


@pytest.mark.parametrize("v", load_cases("reminder_prototypes"))
def test_a_prototype_is_the_mean_of_means_over_all_that_show_the_class(v):
    """Theirs counts batches, ours images: a batch depends on the number of processes."""
    old = int(v["n_old"])
    classes = range(old, old + int(v["n_new"]))
    found = []
    for features, labels in zip(v["features"], v["label"], strict=True):
        masks = class_masks(labels, classes)
        found.append(class_means(features, cell_shares(masks, seen(features, labels))))
    there = torch.stack([counts > 0 for _, counts in found]).float()
    means = torch.einsum("bk,bkc->kc", there, torch.stack([means for means, _ in found]))
    assert_close(means / there.sum(0).clamp(min=1)[:, None], v["out_prototype"][old:])
