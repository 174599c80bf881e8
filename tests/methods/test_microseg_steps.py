"""MicroSeg in its steps: the dense heads of the base step, and the regions that a prediction reads."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ipseg.data.batch import StepBatch
from ipseg.methods.registry import method_config
from ipseg.models.backbone import BackboneConfig
from ipseg.models.network import ModelConfig


@pytest.fixture
def batch(hand_made):
    """Step 0's, cat and cow; a region for every square of 8 pixels."""
    rows, columns = torch.meshgrid(torch.arange(64) // 8, torch.arange(64) // 8, indexing="ij")
    regions = (8 * rows + columns).expand(2, 64, 64)
    return StepBatch(replace(hand_made([0, 1, 2], classes=2), regions=regions), num_new=2)


@pytest.fixture
def make(scenario):
    def build(steps: int):
        torch.manual_seed(0)
        model = ModelConfig(backbone=BackboneConfig(name="test_resnet"), width=8, rates=(1, 2))
        method = method_config({"name": "microseg"}).build(model)
        for step in scenario.steps[:steps]:
            method.begin_step(step)
        return method

    return build


def test_dense_heads_train_the_encoder_in_the_base_step_and_are_gone_after_it(make, batch):
    method = make(1)
    before = set(method.network.state_dict())
    method.prepare([])
    learning = {id(parameter) for group in method.parameter_groups() for parameter in group.parameters}
    assert all(id(parameter) in learning for parameter in method.network.dense.parameters())
    method.train_mode()
    losses = method.loss(batch)
    assert set(losses) == {"segmentation", "micro", "dense"}
    losses["dense"].backward()
    assert all(parameter.grad is not None for parameter in method.network.encoder.decoder.parameters())
    method.end_step([])
    assert set(method.network.state_dict()) == before


def test_a_later_step_has_none(make, batch):
    method = make(2)
    method.prepare([])
    method.train_mode()
    assert set(method.loss(batch)) == {"segmentation", "micro"}


def test_a_prediction_of_a_batch_reads_its_regions(make, batch):
    method = make(1)
    scores = method.predict_batch(batch.inputs).scores
    for corner in (scores[..., :8, :8], scores[..., 8:16, 56:]):  # constant in a region
        assert torch.equal(corner, corner[..., :1, :1].expand_as(corner))
    none = replace(batch.inputs, regions=torch.full((2, 64, 64), 255))
    assert not method.predict_batch(none).labels.any()
