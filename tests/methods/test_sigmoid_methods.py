"""Methods without a background channel: what a pixel is, which classes learn, what is drawn and kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ipseg.data.batch import BatchPlan, StepBatch
from ipseg.methods.registry import method_config
from ipseg.methods.sigmoid import new_class_bce
from ipseg.methods.star import star_plan
from ipseg.models.backbone import BackboneConfig
from ipseg.models.network import ModelConfig

MODEL = ModelConfig(backbone=BackboneConfig(name="test_resnet"), width=8, rates=(1,), decoder_dropout=0.0)


@pytest.fixture
def make(scenario):
    def made(name: str, steps: int = 2, **settings: Any) -> Any:
        torch.manual_seed(0)
        method = method_config({"name": name, **settings}).build(MODEL)
        for step in scenario.steps[:steps]:
            method.begin_step(step)
        return method

    return made


@pytest.mark.parametrize("name", ["dkd", "star", "adapter"])
def test_a_pixel_is_background_where_no_class_reaches_a_half(name, make):
    method, image = make(name, steps=1), torch.rand(1, 3, 64, 64)
    for bias, label in ((-50.0, 0), (50.0, 1)):
        with torch.no_grad():
            method.network.classifiers[0].bias.copy_(torch.tensor([bias, -50.0]))
        assert (method.predict(image).labels == label).all()


def test_a_class_s_own_pixels_weigh_more_and_ignored_ones_nothing():
    logits = torch.tensor([2.0, 2.0, 7.0]).view(1, 1, 1, 3)
    found = new_class_bce(logits, torch.tensor([[[3, 0, 255]]]), first=3, positive_weight=4.0)
    right, wrong = torch.nn.functional.softplus(torch.tensor([-2.0, 2.0])).tolist()
    assert found.item() == pytest.approx((4 * right + wrong) / 2)


def test_memory_keeps_classes_that_dkd_is_sure_of(make, hand_made):
    method = make("dkd_m")
    with torch.no_grad():
        for bias, sure in ((1.0, False), (3.0, True)):  # probabilities of 0.73 and 0.95
            method.network.classifiers[0].weight.zero_()
            method.network.classifiers[0].bias.copy_(torch.tensor([bias, -50.0]))
            method.network.classifiers[1].bias.fill_(-50)
            assert (method.pseudo_labels(hand_made([0])) == 1).all() == sure
    assert method.plan(10, memory=5) == BatchPlan(8, 2)


def test_only_what_is_missing_of_a_class_is_drawn():
    previous, current, predicted = (
        torch.tensor(each) for each in ([100.0, 40.0, 5.0], [50.0, 10.0], [80.0, 10.0, 9.0])
    )
    with_overlap = star_plan(previous, current, predicted, iterations=4, overlap=True)
    assert with_overlap.vectors.tolist() == [7, 0]  # (40 - 10) / 4; of the second there are more than before
    assert with_overlap.background == pytest.approx(99 / 80 - 0.5)
    disjoint = star_plan(previous, current, predicted, iterations=4, overlap=False)
    assert disjoint.vectors.tolist() == [10, 1]
    assert disjoint.cells.tolist() == [180, 50, 14, 10]


@pytest.mark.parametrize("name", ["star", "adapter"])
def test_a_step_keeps_prototypes_of_its_classes_and_draws_from_those_of_the_old_ones(name, make, hand_made, scenario):
    method = make(name, steps=1)
    base = [StepBatch(hand_made([0, 1, 2], classes=2), num_new=2)]
    method.prepare(base)
    method.end_step(base)
    kept = method.network.prototypes.clone()
    assert kept.shape == (2, 8)
    assert torch.allclose(kept.norm(dim=1), torch.ones(2), atol=1e-5)
    assert (method.network.cells[1:] > 0).all()
    method.begin_step(scenario.steps[1])
    later = [StepBatch(hand_made([0, 3], seed=1), num_new=2)]
    method.prepare(later)
    assert (method.drawn.bincount(minlength=2) == method.replay.vectors).all()
    parts = method.loss(later[0])
    assert all(torch.isfinite(part) for part in parts.values())
    method.config = method_config({"name": name, **({"variant": "official"} if name == "adapter" else {})})
    method.end_step(later)
    assert torch.equal(method.network.prototypes[:2], kept)
    assert (method.network.prototypes[2] != 0).any()
