"""Heads with decoders of their own: what they begin as, what learns, and what stays."""

from __future__ import annotations

import pytest
import torch
from learning import learn

from ipseg.model.network import count_parameters


def test_a_new_head_begins_with_the_shared_decoder_and_says_the_same(make_method, hand_made):
    images = hand_made([0]).images
    shared, own = (make_method(step=2, own_decoders=choice) for choice in (False, True))
    assert [head.decoder is None for head in own.network.temporary] == [True, False, False]
    assert torch.equal(own.predict(images).scores, shared.predict(images).scores)
    decoder = count_parameters(shared.network.encoder.decoder)
    assert count_parameters(own.network) == count_parameters(shared.network) + 2 * decoder


def test_its_decoder_learns_and_nothing_that_is_older(make_method, hand_made, scenario, batch):
    method = make_method(step=1, own_decoders=True)
    network = method.network
    learn(method, batch)
    assert not same(network.temporary[1].decoder, network.encoder.decoder)
    images = hand_made([0]).images
    old = method.predict(images).pixel[:, 1:]
    method.begin_step(scenario.steps[2])
    kept = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    learn(method, batch_of_step_2(hand_made, batch))
    changed = {name for name, tensor in network.state_dict().items() if not torch.equal(tensor, kept[name])}
    assert any(name.startswith("temporary.2.decoder") for name in changed)
    assert not any(name.startswith(("encoder", "temporary.0", "temporary.1")) for name in changed)
    assert torch.equal(method.predict(images).pixel[:, 1 : 1 + old.shape[1]], old)


@pytest.mark.parametrize("gate", ["exact", "bounded"])
def test_gated_heads_say_what_all_do(make_method, hand_made, gate):
    method = make_method(step=2, own_decoders=True)
    with torch.no_grad():
        for head in method.network.temporary[1:]:
            head.decoder.project[0][0].weight.mul_(1.5)
    images = hand_made([0], count=3).images
    whole = method.predict(images).labels
    method.config = type(method.config)(own_decoders=True, gate=gate, gate_threshold=0.0)
    assert torch.equal(method.predict(images).labels, whole)


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def batch_of_step_2(hand_made, batch):
    return type(batch)(hand_made([0, 4], classes=4), current=2, image_level=2)
