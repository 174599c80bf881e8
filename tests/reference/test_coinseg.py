"""CoinSeg beside the numbers of its authors' code (vectors/README.md), where these do not repeat a slip of it.

Theirs pools cells of no region into region 0, gives the regions of different images one label, and shifts the positive
logit of a contrast alone. What is left of each is compared: with their regions, their labels, and their shift.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from given_network import assert_close, load_cases
from test_microseg import annotated, linear
from torch import Tensor

from ipseg.methods.coinseg import (
    CoinSegConfig,
    contrast,
    contrast_logits,
    label_contrast,
    region_contrast,
    region_distill,
)
from ipseg.methods.distillation import feature_distance
from ipseg.methods.labels import nearest_labels
from ipseg.methods.losses import pixel_bce
from ipseg.methods.prototypes import class_masks, class_means
from ipseg.methods.regions import old_classes, region_bce, region_vectors, to_pixels, unlabeled_as_unknown
from ipseg.models.resize import upsample

STEPS, CONTRASTS = (load_cases(f"coinseg_{name}") for name in ("step", "contrast"))
CONFIG = CoinSegConfig()
LIMIT = 100


def directions(features: Tensor) -> Tensor:
    return F.normalize(features, dim=1)


def shifted_contrast(new: Tensor, old: Tensor, labels: Tensor, limit: int = LIMIT) -> Tensor:
    """Theirs: as `label_contrast`, but the highest logit is taken off the positive one, and not off the others."""
    masks = class_masks(nearest_labels(labels, new.shape[-2:]), range(limit))
    (means, counts), (old_means, _) = class_means(directions(new), masks), class_means(directions(old), masks)
    there = counts > 0
    logits = contrast_logits(means[there], old_means[there])
    others = ~torch.eye(len(logits), dtype=torch.bool).repeat(1, 2)
    positive = logits[:, len(logits) :].diagonal() - logits.detach().amax(1)
    negative = (logits.exp() * others).sum(1)
    return ((positive.exp() + negative).log() - positive).mean()


@pytest.mark.parametrize("v", STEPS)
def test_labels_losses_and_gradients_of_a_step_are_the_authors_with_their_slips(v):
    feature, weight, bias = (v[name].clone().requires_grad_() for name in ("feature", "region_weight", "region_bias"))
    regions, count = v["region"], v["out_region_vector"].shape[1]
    pooled = regions.where(regions != 255, 0)
    vectors = region_vectors(feature, pooled)
    assert_close(vectors[..., 0].mT[:, :count], v["out_region_vector"])
    logits = linear(vectors, weight, bias)
    assert_close(logits.mT[:, :count], v["out_region_logit"])
    assert_close(to_pixels(F.pad(logits, (0, 1)), regions), v["out_pixel_logit"])

    labels = annotated(v["label"])
    if not v["step"]:
        targets = unlabeled_as_unknown(labels, torch.zeros_like(labels))
        dense = pixel_bce(upsample(v["dense_logit"], labels.shape[-2:]), targets)
        assert_close(dense, v["out_loss_dense_bce"])
        parts = {"region_bce": region_bce(logits, regions, targets)}
        total = parts["region_bce"] + dense
    else:
        before = linear(region_vectors(v["old_feature"], pooled), v["old_region_weight"], v["old_region_bias"])
        targets = unlabeled_as_unknown(labels, old_classes(before, regions, CONFIG.confidence))
        assert torch.equal(targets, v["out_pseudo_label"])
        counted = torch.ones_like(regions, dtype=torch.bool)
        cells = torch.ones_like(feature[:, 0], dtype=torch.bool)
        old = v["old_feature"]
        parts = {
            "region_bce": region_bce(logits, regions, targets),
            "kd": CONFIG.distillation * region_distill(logits, before, regions, counted),
            "feature": CONFIG.features * feature_distance(feature, old, cells),
            "contrast_region": CONFIG.region_contrast * shifted_contrast(feature, old, v["out_merged_region"]),
            "contrast_label": CONFIG.label_contrast * shifted_contrast(feature, old, targets),
        }
        total = torch.stack([*parts.values()]).sum()
    for name, part in parts.items():
        assert_close(part, v[f"out_loss_{name}"])
    assert_close(total, v["out_loss_total"])
    total.backward()
    for ours, name in ((feature, "feature"), (weight, "weight"), (bias, "bias")):
        if f"out_grad_{name}" in v:
            assert_close(ours.grad, v[f"out_grad_{name}"])


@pytest.mark.parametrize("v", CONTRASTS)
def test_a_contrast_and_its_gradient_are_the_authors_with_their_shift(v):
    new = v["new"].clone().requires_grad_()
    loss = shifted_contrast(new, v["old"], v["label"], int(v["label_limit"]))
    loss.backward()
    assert_close(loss, v["out_loss"])
    assert_close(new.grad, v["out_grad_new"])


@pytest.mark.parametrize("v", CONTRASTS)
def test_without_the_shift_it_is_the_cross_entropy_of_finding_the_own_old_mean(v):
    limit, labels = int(v["label_limit"]), nearest_labels(v["label"], v["new"].shape[-2:])
    new, old = directions(v["new"]), directions(v["old"])
    masks = class_masks(labels, range(limit))
    (means, counts), (old_means, _) = class_means(new, masks), class_means(old, masks)
    means, old_means = means[counts > 0], old_means[counts > 0]
    expected = []
    for own, mean in enumerate(means):
        others = [each for place, each in enumerate(means) if place != own]
        choices = torch.stack([*old_means, *others]) @ mean / v["temperature"]
        expected.append(F.cross_entropy(choices[None], torch.tensor([own])))
    assert_close(label_contrast(new, old, labels, limit), torch.stack(expected).mean())


def test_regions_of_different_images_are_not_compared():
    torch.manual_seed(0)
    new, old = (directions(torch.randn(2, 5, 8, 8)) for _ in range(2))
    regions = (torch.arange(64).view(1, 8, 8) // 16).repeat(2, 1, 1)
    regions[0, :2] = 255  # their region 0 has no cell there: cells of no region are in no mean
    each = [label_contrast(new[i : i + 1], old[i : i + 1], regions[i : i + 1], LIMIT) for i in range(2)]
    assert_close(region_contrast(new, old, regions), (3 * each[0] + 4 * each[1]) / 7)


def test_a_contrast_of_nothing_is_zero_and_teaches_nothing():
    new = torch.randn(3, 4, requires_grad=True)
    contrast(new, torch.randn(3, 4), torch.zeros(3, dtype=torch.bool)).sum().backward()
    assert not new.grad.any()
    empty = torch.full((1, 2, 2), 255)
    assert region_contrast(torch.randn(1, 4, 2, 2), torch.randn(1, 4, 2, 2), empty) == 0
    assert label_contrast(torch.randn(1, 4, 2, 2), torch.randn(1, 4, 2, 2), empty, 5) == 0
