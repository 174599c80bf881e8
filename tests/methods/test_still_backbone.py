"""A posterior with a backbone that never learns: what it sees stays, and the heads do not notice."""

from __future__ import annotations

import torch
from learning import learn

from ipseg.methods.ipseg_config import IPSegConfig
from ipseg.model.network import count_parameters


def test_before_anything_is_learned_it_says_what_a_shared_backbone_says(make_method, hand_made):
    images = hand_made([0]).images
    shared, still = (make_method(step=1, posterior_backbone=choice) for choice in ("shared", "still"))
    assert torch.equal(still.predict(images).scores, shared.predict(images).scores)
    assert count_parameters(still.network) == count_parameters(shared.network) + count_parameters(
        shared.network.encoder.backbone
    )


def test_the_base_step_teaches_the_backbone_of_the_heads_alone(make_method, hand_made, batch):
    method = make_method(step=0, posterior_backbone="still", backbone_lr=1.0)
    encoder, images = method.network.encoder, hand_made([0]).images
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    pooled = encoder.eval()(images).pooled
    base = type(batch)(hand_made([0, 1], classes=2), current=2, image_level=2)
    learn(method, base)
    changed = {name for name, tensor in encoder.state_dict().items() if not torch.equal(tensor, before[name])}
    assert any(name.startswith("backbone") and name.endswith("running_mean") for name in changed)
    assert not any(name.startswith("still") for name in changed)
    assert torch.equal(encoder.eval()(images).pooled, pooled)


def test_a_posterior_that_is_not_there_needs_no_backbone(make_method):
    method = make_method(posterior_backbone="still", image_posterior=False)
    assert method.network.encoder.still is None


def test_base_steps_with_and_without_it_are_not_alike():
    ways = [IPSegConfig(posterior_backbone=choice).base_settings() for choice in ("shared", "still", "both")]
    assert all(one != other for one in ways for other in ways if one is not other)


def test_both_see_side_by_side(make_method, hand_made):
    shared, still, both = (make_method(step=0, posterior_backbone=choice) for choice in ("shared", "still", "both"))
    images = hand_made([0]).images
    with torch.no_grad():
        for method in (still, both):
            for parameter in method.network.encoder.still.parameters():
                parameter.mul_(1.01)
        pooled = [method.network.eval().encoder(images).pooled for method in (shared, still, both)]
    assert not torch.equal(pooled[0], pooled[1])
    assert torch.equal(pooled[2], torch.cat(pooled[:2], dim=1))
    assert both.predict(images).posterior.shape == (len(images), 2)
