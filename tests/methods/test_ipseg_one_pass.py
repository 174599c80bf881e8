"""One pass serves every use of the features, and a gate that skips heads changes no label and no loss."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ipseg.data.batch import StepBatch
from ipseg.errors import UserError
from ipseg.methods.decoupling import decoupled_losses
from ipseg.methods.ipseg import IPSegConfig
from ipseg.models.cuda_graphs import Recorder
from ipseg.models.network import logits_of


@pytest.mark.parametrize("settings", [{}, {"variant": "official"}, {"decoupling": False}, {"name": "ipseg_lda"}])
def test_a_gate_changes_no_label(make_method, hand_made, settings):
    images = hand_made([0], count=4).images
    every = make_method(**settings).predict(images)
    gated = make_method(gate="exact", **settings).predict(images)
    assert torch.equal(gated.labels, every.labels)
    assert torch.allclose(gated.posterior, every.posterior)
    assert gated.pixel is None
    assert 0 < gated.heads_run <= 1
    assert every.heads_run is None


@pytest.mark.parametrize(
    ("name", "settings"), [("ipseg", {}), ("ipseg", {"gate": "exact"}), ("ssul", {}), ("ipseg_lda", {})]
)
def test_a_recorded_network_labels_images_as_a_plain_one(make_method, hand_made, name, settings):
    method = make_method(step=2, name=name, **settings)
    batches = [hand_made([0], seed=seed, count=count).images for seed, count in enumerate((4, 4, 3, 4, 3, 3, 4))]
    method.recorder = Recorder(lambda work: work)
    recorded = [method.predict(images).labels for images in batches]
    method.recorder = None
    for images, labels in zip(batches, recorded, strict=True):
        assert torch.equal(labels, method.predict(images).labels)


def test_a_gate_changes_no_loss_for_every_head_teaches(make_method, hand_made):
    crops, wholes = hand_made([0, 3], count=4, seed=1), hand_made([0], count=2, seed=2)
    batch = StepBatch(crops, 4, wholes, num_posterior=2)
    every, gated = (make_method(gate=gate).loss(batch) for gate in ("none", "exact"))
    assert every.keys() == gated.keys()
    assert all(torch.equal(every[name], gated[name]) for name in every)


def test_a_gate_without_a_posterior_is_refused():
    with pytest.raises(UserError, match="gate"):
        IPSegConfig(gate="exact", image_posterior=False)


def test_one_pass_over_all_images_gives_what_a_pass_for_each_use_gives(make_method, hand_made):
    method = make_method(image_labels="part")
    method.train_mode()
    crops, wholes = hand_made([0, 3], count=4, seed=1), hand_made([0], count=3, seed=2)
    passes = []
    method.network.encoder.register_forward_hook(lambda *_: passes.append(1))
    loss = method.loss(StepBatch(crops, 4, wholes, num_posterior=1))
    assert len(passes) == 1
    network = method.network
    with torch.no_grad():
        features = network.encoder(crops.images, crops.boxes)
        found = method.pseudo_labels(crops).where(crops.labels == 0, 0)  # nothing has moved since the teacher
        new, permanent = (logits_of(head, features) for head in (network.temporary[-1], network.permanent))
        pooled = network.encoder(torch.cat([crops.images[:1], wholes.images])).pooled
        labels = torch.cat([method.image_labels(crops)[:1], method.image_labels(wholes)])
    old = found.where(found <= 2, 0)
    apart = decoupled_losses(new, permanent, crops, old, method.step, 0.5, 0.5)
    with torch.no_grad():
        logits = network.posterior(pooled)
    apart["posterior"] = nn.functional.binary_cross_entropy_with_logits(logits, labels.float())
    assert all(torch.allclose(loss[name], apart[name], atol=1e-5) for name in apart)
