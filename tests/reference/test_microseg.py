"""MicroSeg beside the numbers of its authors' code (vectors/README.md), map by map and loss by loss."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from given_network import assert_close, load_cases
from torch import Tensor

from ipseg.methods.losses import pixel_bce
from ipseg.methods.microseg import MicroSegConfig
from ipseg.methods.regions import (
    collapse,
    micro_loss,
    old_classes,
    region_bce,
    region_pixels,
    region_prediction,
    region_vectors,
    to_pixels,
    unlabeled_as_unknown,
)
from ipseg.models.resize import upsample

STEPS, MICRO, PREDICTION = (load_cases(f"microseg_{name}") for name in ("step", "micro_loss", "prediction"))


def linear(vectors: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """(B, channels, R): region heads as one linear map."""
    return torch.einsum("bcr,kc->bkr", vectors[..., 0], weight) + bias[:, None]


def annotated(label: Tensor) -> Tensor:
    """Their labels before pseudo-labels (0 unknown, 1 unused, then classes) as learned indices."""
    return torch.where(label == 255, label, (label - 1).clamp(min=0))


@pytest.mark.parametrize("v", STEPS)
def test_vectors_labels_losses_and_gradients_of_a_step_are_the_authors(v):
    feature, weight, bias = (v[name].clone().requires_grad_() for name in ("feature", "region_weight", "region_bias"))
    regions, unknowns, count = v["region"], int(v["classes_per_head"][0]), int(v["n_regions"])
    vectors = region_vectors(feature, regions)
    assert_close(vectors[..., 0].transpose(1, 2)[:, :count], v["out_region_vector"])
    logits = linear(vectors, weight, bias)
    assert_close(logits.transpose(1, 2)[:, :count], v["out_region_logit"])
    assert_close(to_pixels(F.pad(logits, (0, 1)), regions), v["out_pixel_logit"])

    labels, old = annotated(v["label"]), torch.zeros_like(regions)
    if v["step"]:
        before = linear(region_vectors(v["old_feature"], regions), v["old_region_weight"], v["old_region_bias"])
        old = old_classes(collapse(before, unknowns), regions, MicroSegConfig().confidence)
    targets = unlabeled_as_unknown(labels, old)
    assert torch.equal(targets, v["out_pseudo_label"] if v["step"] else v["label"])

    segmentation = region_bce(collapse(logits, unknowns), regions, targets)
    micro = micro_loss(logits[:, :unknowns], region_pixels(regions))
    dense = pixel_bce(collapse(upsample(v["dense_logit"], labels.shape[-2:]), unknowns), targets)
    assert_close(segmentation, v["out_loss_region_bce"])
    assert_close(micro, v["out_loss_micro"])
    assert_close(dense, v["out_loss_dense_bce"])
    total = segmentation + micro + (0 if v["step"] else dense)
    assert_close(total, v["out_loss_total"])
    total.backward()
    for ours, name in ((feature, "feature"), (weight, "weight"), (bias, "bias")):
        assert_close(ours.grad, v[f"out_grad_{name}"])


@pytest.mark.parametrize("v", MICRO)
def test_the_loss_between_clusters_is_the_authors_with_a_region_for_every_pixel(v):
    maps = v["maps"].flatten(2).requires_grad_()
    loss = micro_loss(maps, torch.ones_like(maps[:, 0]))
    loss.backward()
    assert_close(loss, v["out_loss"])
    assert_close(maps.grad.view_as(v["maps"]), v["out_grad"])


@pytest.mark.parametrize("v", PREDICTION)
def test_scores_and_labels_are_the_authors(v):
    logits = v["pixel_logit"][:1, :, :10, :10]  # each pixel a region of its own, as many as there may be
    regions = torch.arange(100).view(1, 10, 10)
    prediction = region_prediction(collapse(logits.flatten(2), int(v["unknown_channels"])), regions)
    assert_close(prediction.scores, v["out_score"][:1, :, :10, :10])
    assert torch.equal(prediction.labels, v["out_prediction"][:1, :10, :10])


def test_a_pixel_of_no_region_is_background():
    prediction = region_prediction(torch.full((1, 4, 100), 9.0), torch.full((1, 3, 3), 255))
    assert prediction.scores[0, :, 0, 0].tolist() == [1.0, 0.5, 0.5]
    assert not prediction.labels.any()
