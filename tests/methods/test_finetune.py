"""Fine-tuning and joint training: one softmax that grows, nothing frozen."""

from __future__ import annotations

import pytest
import torch

from ipseg.data.batch import BatchPlan
from ipseg.errors import UserError
from ipseg.methods.finetune import FinetuneConfig, JointConfig
from ipseg.models.backbone import BackboneConfig
from ipseg.models.network import ModelConfig
from ipseg.scenario import ScenarioConfig

MODEL = ModelConfig(backbone=BackboneConfig(name="test_resnet"), width=8, rates=(1,))


@pytest.fixture
def finetune(scenario):
    method = FinetuneConfig().build(MODEL)
    method.begin_step(scenario.steps[0])
    return method


def test_it_grows_by_the_steps_classes_and_keeps_the_old_logits(finetune, scenario):
    images = torch.rand(1, 3, 64, 64)
    before = finetune.network.eval()(images).logits
    finetune.begin_step(scenario.steps[1])
    after = finetune.network.eval()(images).logits
    assert (before.shape[1], after.shape[1]) == (3, 4)
    assert torch.equal(after[:, :3], before)
    assert torch.allclose(finetune.predict(images).scores.sum(1), torch.ones(1, 64, 64), atol=1e-5)


def test_everything_learns_and_slower_after_the_base_step(finetune, scenario):
    assert [group.factor for group in finetune.parameter_groups()] == [1.0, 1.0]
    finetune.begin_step(scenario.steps[1])
    groups = finetune.parameter_groups()
    assert [group.factor for group in groups] == pytest.approx([0.1, 0.1])  # MiB: 0.01, then 0.001, all layers alike
    given = {id(parameter) for group in groups for parameter in group.parameters}
    assert given == {id(parameter) for parameter in finetune.network.parameters()}


def test_the_loss_is_cross_entropy_on_the_steps_labels(finetune, batch, scenario):
    finetune.begin_step(scenario.steps[1])
    crops = batch.inputs
    finetune.network.eval()
    logits = finetune.network(crops.images).upsampled()
    expected = torch.nn.functional.cross_entropy(logits, crops.labels, ignore_index=255)
    assert torch.allclose(finetune.loss(batch)["segmentation"], expected, atol=1e-6)


def test_it_looks_at_current_images_only_unless_told_to_rehearse(finetune, scenario):
    finetune.begin_step(scenario.steps[1])
    assert finetune.plan(16, memory=100) == BatchPlan(16)
    replaying = FinetuneConfig(replay_share=0.25).build(MODEL)
    replaying.begin_step(scenario.steps[0])
    assert replaying.plan(16, memory=100) == BatchPlan(16)  # in the base step there is nothing to remember
    replaying.begin_step(scenario.steps[1])
    assert replaying.plan(16, memory=100) == BatchPlan(12, num_replayed=4)
    assert replaying.plan(16, memory=0) == BatchPlan(16)
    assert replaying.plan(2, memory=100) == BatchPlan(1, num_replayed=1)  # a small share is not none
    assert replaying.plan(1, memory=5) == BatchPlan(1)


def test_joint_training_is_one_step_or_none(scenario):
    whole = ScenarioConfig(name="joint").build("toy", ("cat", "cow"))
    method = JointConfig().build(MODEL)
    method.begin_step(whole.steps[0])
    assert method.predict(torch.rand(1, 3, 64, 64)).scores.shape[1] == 3
    with pytest.raises(UserError, match=r"joint learns all classes at once; here dog, emu .* scenario\.name joint"):
        JointConfig().build(MODEL).begin_step(scenario.steps[0])


def test_what_joint_training_advises_can_be_done_with_a_finished_run_too():
    extended = ScenarioConfig(name="grown", steps=(("cat", "cow"), ("dog",))).build("toy", ("cat", "cow", "dog"))
    with pytest.raises(UserError, match="here dog come in a later step") as caught:
        JointConfig().build(MODEL).begin_step(extended.steps[0])
    assert "Train a run of another method" in str(caught.value)
    assert " Set " not in str(caught.value)  # `ipseg extend` lets nobody set method or scenario
