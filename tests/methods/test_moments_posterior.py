"""IPSeg with a posterior from moments: what batches and losses are then, when it learns, and what the past keeps."""

from __future__ import annotations

import torch
from learning import learn

from ipseg.data.batch import BatchPlan


def test_no_batch_is_made_for_the_posterior_and_no_loss_trains_it(make_method, batch):
    method = make_method(step=1, name="ipseg_moments")
    assert method.plan(16, memory=100) == BatchPlan(8, rehearsed=8)
    assert method.plan(16, memory=0) == BatchPlan(16)
    assert "image" not in method.loss(batch)
    before = {name: tensor.clone() for name, tensor in method.network.posterior.state_dict().items()}
    learn(method, batch)
    assert all(torch.equal(tensor, before[name]) for name, tensor in method.network.posterior.state_dict().items())


def test_it_learns_from_the_pictures_of_the_step_when_the_step_ends(make_method, batch):
    method = make_method(step=1, name="ipseg_moments")
    posterior = method.network.posterior
    assert torch.equal(posterior.weight, torch.zeros_like(posterior.weight))
    method.end_step([batch, batch])
    assert int(posterior.pictures) == 2 * len(batch.crops)
    new = len(method.step.old)  # the step's class, after the old ones
    assert int(posterior.pictures_of[new]) == 2 * int((batch.crops.labels == 1 + new).any(2).any(1).sum())


def test_old_classes_are_what_image_labels_says(make_method, batch):
    def pictures_of_old(**settings) -> int:
        method = make_method(step=1, name="ipseg_moments", pseudo_min_share=0.0, **settings)
        method.end_step([batch])
        return int(method.network.posterior.pictures_of[:2].sum())

    assert pictures_of_old() == 0  # part: absent
    assert pictures_of_old(image_labels="pseudo") > 0


def test_the_previous_model_keeps_what_it_knew(make_method, scenario, batch):
    method = make_method(step=1, name="ipseg_moments")
    method.end_step([batch])
    known = method.network.posterior.weight.clone()
    method.begin_step(scenario.steps[2])
    old = method._previous.posterior
    assert torch.equal(old.weight, known)
    assert method.network.posterior.weight.shape[0] == len(known) + 1
    assert torch.equal(method.network.posterior.weight[: len(known)], known)


def test_without_an_image_posterior_there_are_no_moments_either(make_method, batch):
    method = make_method(step=1, name="ipseg_moments", image_posterior=False)
    assert method.network.posterior is None
    method.end_step([batch])
