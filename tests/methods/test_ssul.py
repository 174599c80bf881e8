"""SSUL and SSUL-M: what is taught, what learns at which rate, what a new head begins as. IPSeg switched off agrees."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from ipseg.data.batch import BatchPlan, StepBatch
from ipseg.errors import UserError
from ipseg.methods.labels import confident_old_classes
from ipseg.methods.registry import method_config
from ipseg.models.backbone import BackboneConfig
from ipseg.models.network import ModelConfig

both_heads = pytest.mark.parametrize("head", ["ssul", "ipseg"])
OFF = {"image_posterior": False, "decoupling": False}


def logits(network, images: torch.Tensor, heads: list) -> torch.Tensor:
    """SSUL's channels at the images' size, as a second hand would write them."""
    features = network.encoder(images)
    made = torch.cat([head(features.decoded, features.stages) for head in heads], 1)
    return F.interpolate(made, images.shape[-2:], mode="bilinear", align_corners=False)


@torch.no_grad()
def by_hand(method, crops, labels: torch.Tensor) -> float:
    """Binary cross-entropy with one label map over unknown, background, cat, cow, dog."""
    network = method.network
    said = logits(network, crops.images, [network.permanent, network.background, *network.temporary])
    target = F.one_hot(labels, 5).permute(0, 3, 1, 2).float()
    each = F.binary_cross_entropy_with_logits(said, target, reduction="none").sum(1)
    return float(each[crops.labels != 255].mean())


# ---- what is taught -------------------------------------------------------------------------------------------------


def test_an_old_class_counts_from_the_threshold_and_only_where_it_beats_unknown_and_background():
    said = torch.tensor(
        [  # unknown, background, two old classes
            [0.1, 0.1, 0.71, 0.2],
            [0.1, 0.1, 0.69, 0.2],
            [0.1, 0.1, 0.2, 0.7001],
            [0.9, 0.1, 0.8, 0.2],
            [0.1, 0.9, 0.8, 0.2],
        ]
    )
    found = confident_old_classes(said.double().logit().T[None, :, None], 0.7)
    assert found.flatten().tolist() == [1, 0, 2, 0, 0]


@both_heads
def test_pseudo_labels_fill_what_nobody_annotated_and_saliency_the_rest(head, make_method, batch):
    method = make_method(step=1, name="ssul", head=head)
    network, crops = method.network, batch.inputs
    with torch.no_grad():  # nothing has moved yet: the model as it stood after the base step
        before = [network.permanent, network.background, *network.temporary[:-1]]
        confidence, best = logits(network.eval(), crops.images, before).sigmoid().max(1)
    pseudo = (best > 1) & (confidence >= 0.7)
    assert pseudo.any()
    assert ((best > 1) & ~pseudo).any()
    labels = torch.where(crops.salient, 0, 1)
    labels = torch.where(pseudo, best, labels)
    labels = torch.where(crops.labels == 3, 4, labels)  # dog, the third class, is channel 4
    method.train_mode()
    assert method.loss(batch)["segmentation"].item() == pytest.approx(by_hand(method, crops, labels), rel=1e-5)


def test_a_replayed_class_teaches_its_own_channel_and_its_background_is_not_the_unknown(make_method, hand_made):
    """In the published code both are one off: class c teaches the channel of c - 1, background that of the unknown."""
    method = make_method(step=1, name="ssul_m", confidence=1.0)  # no pseudo-labels
    crops = hand_made([0, 3])
    crops.labels[1] = torch.where(crops.labels[1] == 3, 2, crops.labels[1])  # cow, stored in the base step: channel 3
    labels = torch.where(crops.salient, 0, 1)
    labels = torch.where(crops.labels == 2, 3, labels)
    labels = torch.where(crops.labels == 3, 4, labels)
    method.train_mode()
    loss = method.loss(StepBatch(crops, num_new=1))["segmentation"]
    assert loss.item() == pytest.approx(by_hand(method, crops, labels), rel=1e-5)


def test_all_seen_takes_full_labels_for_replayed_images_alone_and_says_so(make_method, hand_made):
    crops = hand_made([0, 3])
    full = replace(crops, full=torch.where(crops.labels == 3, 1, crops.labels))
    method = make_method(step=1, name="ssul_m", mem_labels="all_seen")
    assert method.config.oracle() == ["method.mem_labels=all_seen"]
    same = replace(crops, labels=torch.cat([crops.labels[:1], full.full[1:]]))
    losses = []
    for each, image in ((method, full), (make_method(step=1, name="ssul_m"), same)):
        each.train_mode()
        losses.append(each.loss(StepBatch(image, num_new=1))["segmentation"].item())
    assert losses[0] == losses[1]
    assert method_config({"name": "ssul_m"}).replayed_labels == "annotated"
    assert method_config({"name": "ssul", "mem_labels": "all_seen"}).replayed_labels is None


def test_unknown_joins_the_background_at_inference(make_method, batch):
    method = make_method(step=1, name="ssul")
    network, images = method.network.eval(), batch.inputs.images
    with torch.no_grad():
        said = logits(network, images, [network.permanent, network.background, *network.temporary]).sigmoid()
    prediction = method.predict(images)
    assert torch.allclose(prediction.scores, torch.cat([said[:, :1] + said[:, 1:2], said[:, 2:]], 1), atol=1e-6)
    assert torch.allclose(prediction.unknown, said[:, 0], atol=1e-6)


def test_ipseg_with_everything_off_is_ssul_with_the_larger_heads(make_method, batch):
    """The same weights, the background's head a copy of the other, give the same loss and the same answers."""
    ipseg = make_method(step=1, **OFF)
    model = ModelConfig(backbone=BackboneConfig(name="resnet10t"), width=8, rates=(1, 2))
    ssul = method_config({"name": "ssul", "head": "ipseg"}).build(model)
    weights = ipseg.network.state_dict()
    for row, name in enumerate(("permanent", "background")):
        weights |= {
            key.replace("permanent", name, 1): value[row : row + 1] if ".classifier." in key else value
            for key, value in ipseg.network.state_dict().items()
            if key.startswith("permanent.")
        }
    step = ipseg.step
    ssul.begin_step(replace(step, index=0, old=(), new=step.old, future=step.new))
    ssul.network.load_state_dict({key: value for key, value in weights.items() if not key.startswith("temporary.1")})
    ssul.begin_step(step)
    answers = [method.predict(batch.inputs.images).scores for method in (ssul, ipseg)]
    assert torch.allclose(*answers, atol=1e-6)
    for method in (ssul, ipseg):
        method.train_mode()
    losses = [method.loss(batch)["segmentation"].item() for method in (ssul, ipseg)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


# ---- what learns ----------------------------------------------------------------------------------------------------


@both_heads
@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_output_row_of_a_new_head_begins_as_the_unknown(head, count, make_method):
    """The published family copies too few rows where heads have more than their classes; with one class, none."""
    method = make_method(step=1, name="ssul", head=head)
    step = replace(method.step, index=2, old=method.step.seen, new=tuple("abc"[:count]), future=())
    method.begin_step(step)
    unknown, new = method.network.permanent, method.network.temporary[-1]
    ours, theirs = new.trunk.state_dict(), unknown.trunk.state_dict()
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    assert torch.equal(new.classifier.weight, unknown.classifier.weight.expand_as(new.classifier.weight))
    assert torch.equal(new.classifier.bias, unknown.classifier.bias.expand(count))


def test_new_head_and_unknown_learn_at_the_rate_the_background_hardly_and_all_else_is_frozen(make_method):
    method = make_method(step=2, name="ssul")
    network = method.network
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    groups = [
        ({names[id(parameter)] for parameter in group.parameters}, group.factor) for group in method.parameter_groups()
    ]
    parts = ("trunk.block.0.weight", "classifier.weight", "classifier.bias")  # normalization is frozen, as published
    assert groups == [
        ({f"temporary.2.{part}" for part in parts}, 1.0),
        ({f"permanent.{part}" for part in parts}, 1.0),
        ({f"background.{part}" for part in parts}, 1e-4),
    ]
    learning = set().union(*(group for group, _ in groups))
    assert {name for name, parameter in network.named_parameters() if parameter.requires_grad} == learning
    method.train_mode()
    assert not any(module.training for module in network.modules())


def test_in_the_base_step_everything_learns_and_the_backbone_at_a_tenth(make_method):
    method = make_method(step=0, name="ssul")
    backbone, rest = method.parameter_groups()
    assert (backbone.factor, rest.factor) == (0.1, 1.0)
    count = sum(1 for _ in method.network.parameters())
    assert len(backbone.parameters) + len(rest.parameters) == count
    assert method.network.temporary[0].classifier.out_channels == 2


def test_what_the_unknown_learns_does_not_move_the_background(make_method, batch):
    """Why they are two heads: in one, its rate would reach the background through the convolution they share."""
    method = make_method(step=1, name="ssul", background_lr=0.0)
    images = batch.inputs.images
    kept, moving = ([method.network.background], [method.network.permanent])
    with torch.no_grad():
        before = [logits(method.network.eval(), images, heads) for heads in (kept, moving)]
    groups = [{"params": group.parameters, "lr": 0.1 * group.factor} for group in method.parameter_groups()]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    method.train_mode()
    method.loss(batch)["segmentation"].backward()
    optimizer.step()
    with torch.no_grad():
        after = [logits(method.network, images, heads) for heads in (kept, moving)]
    assert torch.equal(before[0], after[0])
    assert not torch.equal(before[1], after[1])


def test_the_previous_model_stays_as_it_was_while_the_unknown_learns(make_method, batch):
    method = make_method(step=1, name="ssul")
    method.train_mode()
    features = method.network.encoder(batch.inputs.images)
    old = [torch.zeros(2, 2, 64, 64)]
    before = method._teacher_logits(features, old)
    with torch.no_grad():
        for parameter in method.network.permanent.parameters():
            parameter.add_(10)
    assert torch.equal(method._teacher_logits(features, old), before)


def test_ssul_m_is_ssul_with_half_a_batch_from_memory_and_the_same_base_step(make_method):
    assert make_method(step=1, name="ssul").plan(8, memory=4) == BatchPlan(8)
    assert make_method(step=1, name="ssul_m").plan(8, memory=4) == BatchPlan(4, num_replayed=4)
    assert make_method(step=1, name="ssul_m").plan(1, memory=4) == BatchPlan(1)
    assert make_method(step=0, name="ssul_m").plan(8, memory=4) == BatchPlan(8)
    ssul, ssul_m, other = (
        method_config(settings).base_settings()
        for settings in ({"name": "ssul"}, {"name": "ssul_m", "confidence": 0.5}, {"name": "ssul", "head": "ipseg"})
    )
    assert ssul == ssul_m != other


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "ssul", "head": "deeplab"}, r"method\.head.*ssul"),
        ({"name": "ssul", "confidence": 1.5}, r"method\.confidence"),
        ({"name": "ssul", "background_lr": -1}, r"method\.background_lr"),
        ({"name": "ssul_m", "replay_share": 1}, r"method\.replay_share"),
        ({"name": "ssul_m", "mem_labels": "all"}, r"method\.mem_labels.*all_seen"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(settings, message):
    with pytest.raises(UserError, match=message):
        method_config(settings)
