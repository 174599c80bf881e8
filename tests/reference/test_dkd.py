"""DKD beside the numbers of its authors' code (vectors/README.md)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from given_network import assert_close, load_cases, numbered_batch, step_of
from given_softmax import TINY, GivenSigmoid
from torch import Tensor

from ipseg.data.batch import StepBatch
from ipseg.methods.dkd import decomposed
from ipseg.methods.registry import method_config
from ipseg.scenario import IGNORE

CASES = load_cases("dkd_losses")


def at_the_step(v: dict[str, Tensor]) -> tuple[Any, StepBatch]:
    _, *steps = v["classes_per_head"].tolist()
    config = method_config({"name": "dkd", "positive_weight": float(v["pos_weight"])})
    method: Any = config.build(TINY, pretrained=False)
    method.step = step_of(steps, len(steps) - 1)
    labels = v["label"].where(v["label"] != IGNORE, 0)  # theirs takes void pixels for background
    size = (labels.shape[-2], labels.shape[-1])
    method.network = GivenSigmoid(v["feature"], v["weight"][1:], v["bias"][1:], size)
    method.network.auxiliary = torch.nn.Conv2d(v["weight"].shape[1], 1, 1)
    method.auxiliary.weight.data.copy_(v["weight"][:1, :, None, None])
    method.auxiliary.bias.data.copy_(v["bias"][:1])
    method.teacher = GivenSigmoid(v["old_feature"], v["old_weight"][1:], v["old_bias"][1:], size)
    crops = numbered_batch(labels, torch.zeros_like(labels), len(method.step.seen))
    return method, StepBatch(crops, len(crops))


@pytest.mark.parametrize("v", CASES)
def test_losses_and_gradients_of_one_iteration_are_the_authors_but_for_void_pixels(v):
    method, batch = at_the_step(v)
    parts = method.loss(batch)
    theirs = {
        "segmentation": v["out_mbce"].sum(),
        "auxiliary": v["out_ac"].sum(),
        "distillation": 5 * v["out_kd"].sum(),
        "decomposed": 5 * (v["out_dkd_pos"] + v["out_dkd_neg"]).sum(),
    }
    assert parts.keys() == theirs.keys()
    for name, value in theirs.items():
        assert_close(parts[name], value)
    total = sum(parts.values())
    assert_close(total, v["out_total"])
    total.backward()
    gradients = [method.auxiliary.weight.grad, method.network.classifiers[0].weight.grad]
    assert_close(method.network.feature.grad, v["out_grad_feature"])
    assert_close(torch.cat(gradients)[..., 0, 0], v["out_grad_weight"])


@pytest.mark.parametrize("v", CASES)
def test_logits_fall_into_what_speaks_for_a_class_and_what_speaks_against_it(v):
    method, batch = at_the_step(v)
    parts = decomposed(method.network(batch.inputs.images), method.network, len(method.step.seen))
    for part, theirs in zip(parts, ("out_pos_logit", "out_neg_logit"), strict=True):
        assert_close(part, v[theirs])


@pytest.mark.parametrize("v", CASES)
def test_new_classes_begin_as_the_auxiliary_one(v):
    method = method_config({"name": "dkd"}).build(TINY, pretrained=False)
    method.network.auxiliary = torch.nn.Conv2d(v["weight"].shape[1], 1, 1)
    method.network.width = v["weight"].shape[1]
    method.auxiliary.weight.data.copy_(v["weight"][:1, :, None, None])
    method.auxiliary.bias.data.copy_(v["bias"][:1])
    sizes = v["classes_per_head"].tolist()[1:]
    for index in range(len(sizes)):
        method.begin_step(step_of(sizes, index))
    new = method.network.classifiers[-1]
    assert torch.equal(new.weight[..., 0, 0], v["out_new_weight_init"])
    assert torch.equal(new.bias, v["out_new_bias_init"])
