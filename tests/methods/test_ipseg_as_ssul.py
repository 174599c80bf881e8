"""With image posterior and decoupling off, what is left is SSUL-M, written out here a second time."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

import ipseg.methods.ipseg
import ipseg.methods.ssul
from ipseg.data.batch import BatchPlan, StepBatch, join
from ipseg.methods.losses import pixel_bce

OFF = {"image_posterior": False, "decoupling": False}


def scores(network, images: torch.Tensor, heads: list) -> torch.Tensor:
    """SSUL's channels at the images' size: unknown, background, classes of every step."""
    features = network.encoder(images)
    logits = torch.cat([head(features.decoded, features.stages) for head in heads], 1)
    return F.interpolate(logits, images.shape[-2:], mode="bilinear", align_corners=False)


def test_with_everything_off_the_loss_is_that_of_ssul(make_method, batch):
    method = make_method(step=1, **OFF)
    network, crops = method.network, batch.inputs
    before = [network.permanent, *network.temporary[:-1]]  # as it stood after the base step: nothing has moved yet
    with torch.no_grad():
        confidence, best = scores(network.eval(), crops.images, before).sigmoid().max(1)

    labels = torch.where(crops.salient, 0, 1)  # unknown where something stands out, background elsewhere
    pseudo = (best > 1) & (confidence >= 0.7)
    labels = torch.where(pseudo, best, labels)
    labels = torch.where(crops.labels == 3, 4, labels)  # dog, the third class, is channel 4
    counted = crops.labels != 255
    assert pseudo.any()
    assert ((best > 1) & ~pseudo).any()  # and some are not sure enough

    method.train_mode()
    with torch.no_grad():
        logits = scores(network, crops.images, [network.permanent, *network.temporary])
    target = F.one_hot(labels, logits.shape[1]).permute(0, 3, 1, 2).float()
    each = F.binary_cross_entropy_with_logits(logits, target, reduction="none").sum(1)

    parts = method.loss(batch)
    assert set(parts) == {"segmentation"}
    assert parts["segmentation"].item() == pytest.approx(each[counted].mean().item(), rel=1e-5)


def test_with_everything_off_unknown_joins_the_background_at_inference(make_method, batch):
    method = make_method(step=1, **OFF)
    images = batch.inputs.images
    with torch.no_grad():
        said = scores(method.network.eval(), images, [method.network.permanent, *method.network.temporary]).sigmoid()
    expected = torch.cat([said[:, :1] + said[:, 1:2], said[:, 2:]], 1)
    assert torch.allclose(method.predict(images).scores, expected, atol=1e-6)


def test_ssuls_heads_have_channels_for_their_classes_only(make_method):
    method = make_method(step=2, **OFF)
    assert [head.classifier.out_channels for head in method.network.temporary] == [2, 1, 1]
    assert method.network.posterior is None


@pytest.fixture
def replaying(hand_made) -> StepBatch:
    """Two images of step 1 with a dog (3), then two from memory, of which one has the dog too."""
    crops = join([hand_made([0, 3], seed=1), hand_made([0], count=1, seed=2), hand_made([0, 3], count=1, seed=3)])
    return StepBatch(crops, num_new=2)


@pytest.fixture
def both(make_method):
    """IPSeg switched off and SSUL-M with the same weights in step 1.

    SSUL has heads of their own for unknown and background; here both begin with the permanent branch's weights.
    """
    ours = make_method(step=1, head="small", **OFF)
    theirs = make_method(step=1, name="ssul_m", mem_labels="current")
    _copy_weights(ours, theirs)
    for method in (ours, theirs):
        method.train_mode()
    return ours, theirs


def test_switched_off_with_small_heads_it_replays_and_labels_as_ssul_m(both, replaying, monkeypatch):
    ours, theirs = both
    assert ours.plan(16, memory=100) == theirs.plan(16, memory=100) == BatchPlan(8, 8)
    assert ours.config.replayed_labels == theirs.config.replayed_labels
    taught = []

    def watched(logits: torch.Tensor, labels: torch.Tensor, weights: None = None) -> torch.Tensor:
        assert weights is None
        taught.append((logits, labels))
        return pixel_bce(logits, labels)

    for module in (ipseg.methods.ipseg, ipseg.methods.ssul):
        monkeypatch.setattr(module, "pixel_bce", watched)
    for method in both:
        method.loss(replaying)
    (logits, labels), (other_logits, other_labels) = taught
    assert torch.equal(labels, other_labels)
    assert torch.allclose(logits, other_logits, rtol=1e-5, atol=1e-6)
    for rows in (slice(2), slice(2, 4)):  # unknown, background, pseudo-labels of cat and cow, dog, void: replayed too
        assert labels[rows].unique().tolist() == [0, 1, 2, 3, 4, 255]
    assert not (labels[2] == 4).any()  # stored without annotation, and the step does not show this one


def test_switched_off_with_small_heads_it_has_the_loss_gradients_and_scores_of_ssul_m(both, replaying):
    ours, theirs = both
    loss, other = (sum(method.loss(replaying).values()) for method in both)
    assert loss.item() == pytest.approx(other.item(), rel=1e-6)
    loss.backward()
    other.backward()
    mine, new = ours.network.permanent, ours.network.temporary[1]
    unknown, background = theirs.network.persistent_heads()
    for one, same in zip(new.parameters(), theirs.network.temporary[1].parameters(), strict=True):
        assert (one.grad is None and same.grad is None) or torch.allclose(one.grad, same.grad, rtol=1e-4, atol=1e-8)
    for part in ("weight", "bias"):
        rows = torch.cat([getattr(head.classifier, part).grad for head in (unknown, background)])
        assert torch.allclose(getattr(mine.classifier, part).grad, rows, rtol=1e-4, atol=1e-8)
    convolution = [head.trunk.block[0].weight.grad for head in (mine, unknown, background)]
    assert convolution[0].any()
    assert torch.allclose(convolution[0], convolution[1] + convolution[2], rtol=1e-4, atol=1e-8)
    images = replaying.inputs.images
    assert torch.allclose(ours.predict(images).scores, theirs.predict(images).scores, atol=1e-6)
    assert torch.equal(ours.predict(images).labels, theirs.predict(images).labels)


@torch.no_grad()
def _copy_weights(ours, theirs) -> None:
    theirs.network.encoder.load_state_dict(ours.network.encoder.state_dict())
    for row, head in enumerate(theirs.network.persistent_heads()):
        head.trunk.load_state_dict(ours.network.permanent.trunk.state_dict())
        for target, source in zip(
            head.classifier.parameters(), ours.network.permanent.classifier.parameters(), strict=False
        ):
            target.copy_(source[row : row + 1])
    for head, same in zip(theirs.network.temporary, ours.network.temporary, strict=True):
        head.load_state_dict(same.state_dict())
    theirs.teacher = [copy.deepcopy(head) for head in theirs.network.persistent_heads()]
