"""IPSeg with an LDA posterior: what batches and losses are then, when it learns, what its heads begin with."""

from __future__ import annotations

import pytest
import torch
from learning import learn

from ipseg.data.batch import BatchPlan, StepBatch
from ipseg.methods.ipseg_lda import IPSegLDAConfig
from ipseg.models.network import count_parameters

LDA = {"name": "ipseg_lda"}


def learned(method) -> None:
    """As if the posterior had learned something: it says yes here and no there."""
    with torch.no_grad():
        method.network.posterior.weight.normal_(generator=torch.Generator().manual_seed(1))


# ---- the posterior --------------------------------------------------------------------------------------------------


def test_no_batch_is_made_for_the_posterior_and_no_loss_trains_it(make_method, batch):
    method = make_method(step=1, **LDA)
    assert method.plan(16, memory=100) == BatchPlan(8, num_replayed=8)
    assert method.plan(16, memory=0) == BatchPlan(16)
    assert set(method.loss(batch)) == {"temporary", "permanent"}
    before = {name: tensor.clone() for name, tensor in method.network.posterior.state_dict().items()}
    learn(method, batch)
    assert all(torch.equal(tensor, before[name]) for name, tensor in method.network.posterior.state_dict().items())


def test_it_learns_from_the_images_of_the_step_when_the_step_ends(make_method, batch):
    method = make_method(step=1, **LDA)
    posterior = method.network.posterior
    assert torch.equal(posterior.weight, torch.zeros_like(posterior.weight))
    method.end_step([batch, batch])
    assert int(posterior.images) == 2 * len(batch.inputs)
    new = len(method.step.old)  # the step's class, after the old ones
    assert int(posterior.images_of[new]) == 2 * int((batch.inputs.labels == 1 + new).any(2).any(1).sum())
    assert not posterior.images_of[:new].any()  # classes of other steps count as absent


def test_a_frozen_backbone_sees_beside_the_one_that_the_base_step_teaches(make_method, hand_made):
    alone, both = (make_method(step=0, frozen_backbone=choice, **LDA) for choice in (False, True))
    images = hand_made([0]).images
    with torch.no_grad():
        for parameter in both.network.encoder.frozen_backbone.parameters():
            parameter.mul_(1.01)
        pooled = [method.network.eval().encoder(images).pooled for method in (alone, both)]
    width = pooled[0].shape[1]
    assert pooled[1].shape[1] == 2 * width
    assert torch.equal(pooled[1][:, :width], pooled[0])
    assert not torch.equal(pooled[1][:, width:], pooled[0])


def test_the_base_step_teaches_the_backbone_of_the_heads_and_never_the_frozen_one(make_method, hand_made):
    method = make_method(step=0, backbone_lr=1.0, **LDA)
    encoder = method.network.encoder
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    learn(method, StepBatch(hand_made([0, 1], classes=2), num_new=2))
    changed = {name for name, tensor in encoder.state_dict().items() if not torch.equal(tensor, before[name])}
    assert any(name.startswith("backbone") and name.endswith("running_mean") for name in changed)
    assert not any(name.startswith("still") for name in changed)


def test_base_steps_with_and_without_a_frozen_backbone_are_not_alike():
    one, other = (IPSegLDAConfig(frozen_backbone=choice).base_settings() for choice in (True, False))
    assert one != other


# ---- the teacher ----------------------------------------------------------------------------------------------------


def test_the_teacher_keeps_what_it_knew(make_method, scenario, batch):
    method = make_method(step=1, **LDA)
    method.end_step([batch])
    known = method.network.posterior.weight.clone()
    method.begin_step(scenario.steps[2])
    _, posterior = method.teacher
    assert torch.equal(posterior.weight, known)
    assert torch.equal(method.network.posterior.weight[: len(known)], known)


def test_the_fused_teacher_gives_the_prediction_of_the_step_before(make_method, scenario, hand_made):
    method = make_method(step=1, **LDA)
    learned(method)
    crops = hand_made([0], classes=4)
    said = method.predict(crops.images).labels
    method.begin_step(scenario.steps[2])
    with torch.no_grad():
        features = method.network.eval().encoder(crops.images)
        labels = method._teacher_labels(features, crops.labels)
    assert said.any()
    assert torch.equal(labels, said.where(crops.labels == 0, 0))


# ---- decoders of their own ------------------------------------------------------------------------------------------


def test_a_later_head_begins_with_the_shared_decoder_and_says_the_same(make_method, hand_made):
    images = hand_made([0]).images
    method = make_method(step=2, **LDA)
    heads, prediction = method.network.temporary, method.predict(images)
    assert [head.decoder is None for head in heads] == [True, False, False]
    own = count_parameters(heads)
    for head in heads:
        head.decoder = None
    assert own == count_parameters(heads) + 2 * count_parameters(method.network.encoder.decoder)
    assert torch.equal(method.predict(images).pixel, prediction.pixel)


def test_its_decoder_learns_and_nothing_that_is_older(make_method, hand_made, scenario, batch):
    method = make_method(step=1, **LDA)
    network = method.network
    learn(method, batch)
    weights = [network.temporary[1].decoder.project[0][0].weight, network.encoder.decoder.project[0][0].weight]
    assert not torch.equal(*weights)
    images = hand_made([0]).images
    old = method.predict(images).pixel[:, 1:]
    method.begin_step(scenario.steps[2])
    kept = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    learn(method, StepBatch(hand_made([0, 4], classes=4), num_new=2))
    changed = {name for name, tensor in network.state_dict().items() if not torch.equal(tensor, kept[name])}
    assert any(name.startswith("temporary.2.decoder") for name in changed)
    assert not any(name.startswith(("encoder", "temporary.0", "temporary.1")) for name in changed)
    assert torch.equal(method.predict(images).pixel[:, 1 : 1 + old.shape[1]], old)


def test_gated_heads_with_decoders_of_their_own_say_what_all_do(make_method, hand_made):
    method = make_method(step=2, **LDA)
    learned(method)
    with torch.no_grad():
        for head in method.network.temporary[1:]:
            head.decoder.project[0][0].weight.mul_(1.5)
    images = hand_made([0], count=3).images
    labels = method.predict(images).labels
    method.config = IPSegLDAConfig(gate="exact")
    gated = method.predict(images)
    assert torch.equal(gated.labels, labels)
    assert gated.heads_run is not None


@pytest.mark.parametrize(("name", "value"), [("alpha_bc", 2.0), ("replay_share", 1.0), ("lambda_permanent", -1.0)])
def test_settings_out_of_range_are_refused_by_name(name, value):
    from ipseg.errors import UserError

    with pytest.raises(UserError, match=rf"method\.{name}"):
        IPSegLDAConfig(**{name: value})
