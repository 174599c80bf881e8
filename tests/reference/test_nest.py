"""NeST beside the numbers of its authors' code (vectors/README.md)."""

from __future__ import annotations

import pytest
import torch
from given_network import assert_close, load_cases
from torch import nn

from ipseg.methods.nest import Transformation, importance_sums
from ipseg.models.resize import upsample

CASES = load_cases("nest")


def begun(v) -> Transformation:
    """A transformation as the case's images make it: sums of 18,432 numbers, here in double precision."""
    features, logits, labels = (v[name].flatten(0, 1) for name in ("features", "old_logits", "label"))
    features, logits, weight = features.double(), logits.double(), v["old_weight"].double()
    logits = upsample(logits, (int(v["image_size"]), int(v["image_size"])))
    classes = range(int(v["n_old"]), int(v["n_old"] + v["n_new"]))
    sums, counts = importance_sums(features, logits, labels, weight, classes)
    return Transformation(v["old_weight"], v["old_bias"], sums.float(), counts.float())


@pytest.fixture(params=CASES)
def tuned(request):
    """A case, and its transformation with the case's values after tuning."""
    v, transformation = request.param, begun(request.param)
    for name in ("importance", "projection", "bias"):
        getattr(transformation, name).data.copy_(v[f"tuned_{name}"])
    transformation.background_importance.data.copy_(v["tuned_bg_importance"])
    transformation.background_projection.data.copy_(v["tuned_bg_projection"])
    return v, transformation


@pytest.mark.parametrize("v", CASES)
def test_the_transformation_begins_as_the_authors(v):
    transformation = begun(v)
    assert_close(transformation.importance, v["out_importance"])
    assert_close(transformation.projection, v["out_projection"])


def test_logits_and_gradients_while_it_is_tuned_are_the_authors(tuned):
    v, transformation = tuned
    logits = transformation(v["features"][0])
    assert_close(logits, v["out_tuning_logit"])
    factor = torch.arange(1, logits.numel() + 1).view_as(logits) / logits.numel()
    (logits * factor).sum().backward()
    for name in ("importance", "projection", "bias"):
        assert_close(getattr(transformation, name).grad, v[f"out_grad_{name}"])
    assert_close(transformation.background_importance.grad, v["out_grad_bg_importance"])
    assert_close(transformation.background_projection.grad, v["out_grad_bg_projection"])


def test_what_it_leaves_has_the_norms_of_the_authors(tuned):
    v, transformation = tuned
    rows, biases = transformation.rescaled()
    old = len(v["old_weight"])
    assert_close(rows[:old], v["out_old_weight"])
    assert_close(rows[old:], v["out_new_weight"])
    assert_close(biases, v["out_new_bias"])


def test_a_class_without_a_pixel_begins_as_the_mean_of_all_old_ones():
    """The authors' code divides by zero."""
    weight = torch.tensor([[1.0, 0.0], [3.0, 2.0]])
    transformation = Transformation(weight, torch.zeros(2), torch.zeros(1, 2, 2), torch.zeros(1))
    assert isinstance(transformation.importance, nn.Parameter)
    assert transformation.rows()[2].tolist() == [2.0, 1.0]
