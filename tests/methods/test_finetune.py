"""Fine-tuning: one softmax that grows, nothing frozen, nothing remembered."""

from __future__ import annotations

import pytest
import torch

from ipseg.data.batch import BatchPlan
from ipseg.errors import UserError
from ipseg.methods.finetune import FinetuneConfig
from ipseg.methods.registry import method_config
from ipseg.model.backbone import BackboneConfig
from ipseg.model.network import ModelConfig


@pytest.fixture
def finetune(scenario):
    method = FinetuneConfig().build(ModelConfig(backbone=BackboneConfig(name="resnet10t"), width=8, rates=(1,)))
    method.begin_step(scenario.steps[0])
    return method


def test_it_grows_by_the_steps_classes_and_keeps_the_old_logits(finetune, scenario):
    images = torch.rand(1, 3, 64, 64)
    before = finetune.network.eval()(images)
    finetune.begin_step(scenario.steps[1])
    after = finetune.network.eval()(images)
    assert (before.shape[1], after.shape[1]) == (3, 4)
    assert torch.equal(after[:, :3], before)
    assert torch.allclose(finetune.predict(images).scores.sum(1), torch.ones(1, 64, 64), atol=1e-5)


def test_everything_learns_and_slower_after_the_base_step(finetune, scenario):
    assert [group.factor for group in finetune.parameter_groups()] == [0.1, 1.0]
    finetune.begin_step(scenario.steps[1])
    groups = finetune.parameter_groups()
    assert [group.factor for group in groups] == pytest.approx([0.01, 0.1])
    given = {id(parameter) for group in groups for parameter in group.parameters}
    assert given == {id(parameter) for parameter in finetune.network.parameters()}


def test_the_loss_is_cross_entropy_on_the_steps_labels(finetune, batch, scenario):
    finetune.begin_step(scenario.steps[1])
    crops = batch.crops
    finetune.network.eval()
    logits = finetune.network(crops.images)
    expected = torch.nn.functional.cross_entropy(logits, crops.labels, ignore_index=255)
    assert torch.allclose(finetune.loss(batch)["segmentation"], expected, atol=1e-6)


def test_it_looks_at_current_pictures_only(finetune):
    assert finetune.plan(16, memory=100) == BatchPlan(16)


def test_an_unknown_method_is_answered_with_the_nearest_one():
    with pytest.raises(UserError, match=r'no method "finetun"\. Did you mean finetune\?'):
        method_config({"name": "finetun"})


def test_a_method_of_ones_own_is_named_by_module_and_class():
    assert method_config({"name": "ipseg.methods.finetune:FinetuneConfig"}).later_lr == 0.1
    with pytest.raises(UserError, match="cannot be imported"):
        method_config({"name": "ipseg.methods.finetune:Nothing"})
    with pytest.raises(UserError, match="not a dataclass"):
        method_config({"name": "ipseg.methods.finetune:Finetune"})
