"""IPSeg's life: what freezes, what learns, what it is taught by, and what it says."""

from __future__ import annotations

import copy

import pytest
import torch
from learning import learn
from torch import nn

from ipseg.data.batch import BatchPlan, StepBatch
from ipseg.errors import UserError
from ipseg.methods.base import Prediction
from ipseg.methods.ipseg import IPSeg
from ipseg.methods.ipseg_config import IPSegConfig
from ipseg.model.network import logits_of
from ipseg.scenario.catalog import describe


def state(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def unchanged(before: dict[str, torch.Tensor], module: nn.Module) -> bool:
    return all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


# ---- what freezes and what learns -----------------------------------------------------------------------------------


def test_in_the_base_step_everything_learns(make_method, hand_made):
    method = make_method(step=0)
    batch = StepBatch(hand_made([0, 1, 2], classes=2), current=2, image_level=2)
    parts = (method.network.encoder, method.network.permanent, method.network.temporary[0], method.network.posterior)
    before = [state(part) for part in parts]
    learn(method, batch, 1)
    assert not any(unchanged(old, part) for old, part in zip(before, parts, strict=True))


def test_later_the_encoder_its_batch_statistics_and_the_old_heads_stay_the_same_bit_for_bit(make_method, batch):
    method = make_method(step=1)
    network = method.network
    encoder, old_head = state(network.encoder), state(network.temporary[0])
    learned = [network.permanent, network.temporary[1], network.posterior]
    before = [state(part) for part in learned]
    learn(method, batch)
    assert unchanged(encoder, network.encoder)
    assert unchanged(old_head, network.temporary[0])
    assert not any(unchanged(old, part) for old, part in zip(before, learned, strict=True))


def test_later_batch_normalisation_rests_everywhere_and_only_the_posterior_trains_with_dropout(make_method, batch):
    method = make_method(step=1)
    statistics = {name: tensor.clone() for name, tensor in method.network.named_buffers()}
    method.train_mode()
    norms = [module for module in method.network.modules() if isinstance(module, nn.BatchNorm2d)]
    assert norms
    assert not any(module.training for module in norms)
    assert method.network.posterior.training
    learn(method, batch)
    assert all(torch.equal(statistics[name], tensor) for name, tensor in method.network.named_buffers())


@pytest.mark.parametrize("choice", ["learned", "frozen"])
def test_scale_and_shift_of_batch_normalisation_learn_in_later_steps_or_stay(make_method, batch, choice):
    method = make_method(step=1, norm_weights=choice)
    branches = (method.network.permanent, method.network.temporary[1])
    norms = [part for branch in branches for part in branch.modules() if isinstance(part, nn.BatchNorm2d)]
    before = [(norm.weight.clone(), norm.bias.clone()) for norm in norms]
    learn(method, batch)
    stayed = [
        torch.equal(norm.weight, w) and torch.equal(norm.bias, b) for norm, (w, b) in zip(norms, before, strict=True)
    ]
    assert stayed == [choice == "frozen"] * len(norms)


def test_in_the_base_step_batch_normalisation_learns(make_method):
    method = make_method(step=0)
    method.train_mode()
    assert all(module.training for module in method.network.modules())


def test_frozen_parts_have_no_place_in_the_optimiser(make_method):
    method = make_method(step=2)
    network = method.network
    given = {id(parameter) for group in method.parameter_groups() for parameter in group.parameters}
    for part in (network.permanent, network.temporary[2], network.posterior):
        assert all(id(parameter) in given for parameter in part.parameters())
    for part in (network.encoder, *network.temporary[:2]):
        assert not any(id(parameter) in given or parameter.requires_grad for parameter in part.parameters())


def test_the_permanent_branch_learns_at_a_tenth_of_the_rate_after_the_base_step(make_method):
    def factor(method) -> float:
        wanted = id(method.network.permanent.classifier.weight)
        return next(g.factor for g in method.parameter_groups() if any(id(p) == wanted for p in g.parameters))

    assert factor(make_method(step=0)) == 1.0
    assert factor(make_method(step=1)) == 0.1
    assert factor(make_method(step=1, permanent_lr=0.5)) == 0.5


def test_the_posteriors_rate_is_a_setting_of_its_own(make_method):
    method = make_method(step=1, posterior_lr=0.3)
    group = next(g for g in method.parameter_groups() if g.factor == 0.3)
    assert {id(p) for p in group.parameters} == {id(p) for p in method.network.posterior.parameters()}


@pytest.mark.parametrize(("choice", "own"), [("permanent", False), ("base", False), ("base", True)])
def test_a_new_head_begins_as_the_permanent_branch_or_as_the_base_steps_head(make_method, batch, choice, own):
    method = make_method(step=2, new_head=choice, own_decoders=own)
    network = method.network
    given = network.permanent if choice == "permanent" else network.temporary[0]
    assert unchanged(state(given.trunk), network.temporary[2].trunk)
    rows = network.temporary[2].classifier.weight  # c_f, c'_b and the class, which was an unknown object until now
    assert torch.equal(rows, given.classifier.weight[[0, 1, 0]])
    images = batch.crops.images
    with torch.no_grad():
        features = network.eval().encoder(images)
        new, other = (logits_of(head, features)[:, :2] for head in (network.temporary[2], given))
    assert torch.allclose(new, other, atol=1e-5)  # its own decoder included, which begins as the shared one


def test_without_decoupling_a_new_head_begins_as_the_permanent_branch_in_any_case(make_method):
    method = make_method(step=1, new_head="base", decoupling=False, noise_filtering=False)
    assert unchanged(state(method.network.permanent.trunk), method.network.temporary[1].trunk)


def test_known_classes_can_be_negatives_of_the_permanent_branch(make_method, batch):
    ignored, negative = (make_method(known_classes=choice).loss(batch) for choice in ("ignore", "negative"))
    assert torch.equal(ignored["current"], negative["current"])
    assert not torch.equal(ignored["permanent"], negative["permanent"])


def test_the_backbone_learns_at_a_tenth_of_the_rate_in_the_base_step(make_method):
    method = make_method(step=0)
    group = next(g for g in method.parameter_groups() if g.factor == 0.1)
    assert {id(p) for p in group.parameters} == {id(p) for p in method.network.encoder.backbone.parameters()}


def old_classes(method, features) -> torch.Tensor:
    """Where f_{t-1} sees an old class."""
    return method._old_classes(method._past(features), torch.zeros(1))


def test_the_previous_model_stands_still_while_the_new_one_learns(make_method, batch):
    method = make_method(step=1)
    before = copy.deepcopy(method)
    learn(method, batch)
    assert not torch.equal(method.network.permanent.classifier.weight, before.network.permanent.classifier.weight)
    previous, at_first = method._previous, before._previous
    assert unchanged(state(at_first.permanent), previous.permanent)
    assert unchanged(state(at_first.posterior), previous.posterior)
    with torch.no_grad():
        features = method.network.encoder(batch.crops.images, batch.crops.boxes)
        after = old_classes(method, features)
        first = old_classes(before, features)
    assert first.any()
    assert torch.equal(after, first)


def test_the_previous_model_is_exactly_the_one_that_stood_at_the_end_of_the_step_before(
    make_method, scenario, hand_made
):
    method = make_method(step=1)
    images = hand_made([0]).images
    said = method.predict(images).labels
    method.begin_step(scenario.steps[2])
    with torch.no_grad():
        method.network.eval()
        features = method.network.encoder(images)
        assert torch.equal(old_classes(method, features), said)
    assert said.any()


# ---- how a batch is made up -----------------------------------------------------------------------------------------


def at_step(step: int, **settings):
    """Only plan() is asked: no network needed."""
    planner = IPSeg(IPSegConfig(**settings), nn.Module())
    planner.step = describe("voc/15-1").steps[step]
    planner._previous = object() if step else None
    return planner


def test_the_authors_ratio_gives_the_posterior_one_current_picture_of_sixteen_in_15_1():
    plan = at_step(1).plan(16, memory=100)
    assert plan == BatchPlan(current=8, rehearsed=8, wholes=15, image_level=1)


def test_a_step_with_more_classes_has_more_current_pictures_for_the_posterior():
    planner = at_step(1)
    planner.step = describe("voc/10-5").steps[1]  # 5 of 15 classes are new
    assert planner.plan(16, memory=100).wholes == 16 - 5


@pytest.mark.parametrize(
    ("settings", "plan"),
    [
        ({"rehearsal": 0.0}, BatchPlan(16, 0, 15, 1)),
        ({"rehearsal": 0.25}, BatchPlan(12, 4, 15, 1)),
        ({"posterior_current": 0.5}, BatchPlan(8, 8, 8, 8)),
        ({"posterior_current": 0.75}, BatchPlan(8, 8, 8, 8)),  # there are no more current ones
        ({"image_posterior": False}, BatchPlan(8, 8, 0)),
    ],
)
def test_shares_of_a_batch_are_settings(settings, plan):
    assert at_step(1, **settings).plan(16, memory=100) == plan


def test_without_memory_and_in_the_base_step_all_pictures_are_current():
    assert at_step(1).plan(16, memory=0) == BatchPlan(16, image_level=16)
    assert at_step(0).plan(16, memory=100) == BatchPlan(16, image_level=16)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_smallest_batch_still_holds_a_current_picture(size):
    plan = at_step(1, rehearsal=0.9).plan(size, memory=3)
    assert plan.current >= 1
    assert plan.wholes >= 1  # without any the posterior would forget


# ---- the loss and the answer ----------------------------------------------------------------------------------------


def test_the_loss_is_equation_7(make_method, batch):
    full = make_method(lambda_current=0.5, lambda_permanent=0.25).loss(batch)
    plain = make_method(lambda_current=1.0, lambda_permanent=1.0).loss(batch)
    assert set(full) == {"current", "permanent", "image"}
    assert torch.allclose(full["current"], 0.5 * plain["current"])
    assert torch.allclose(full["permanent"], 0.25 * plain["permanent"])
    assert torch.equal(full["image"], plain["image"])


def test_without_the_posterior_there_is_neither_branch_nor_loss(make_method, batch):
    method = make_method(image_posterior=False)
    assert method.network.posterior is None
    assert set(method.loss(batch)) == {"current", "permanent"}
    prediction = method.predict(batch.crops.images)
    assert prediction.posterior is None
    assert torch.equal(prediction.scores, prediction.pixel)


def test_the_answer_is_equations_3_8_and_9(make_method, hand_made):
    method = make_method(alpha_bc=0.8, alpha_nf=0.3)
    images = hand_made([0]).images
    prediction = method.predict(images)
    network = method.network.eval()
    with torch.no_grad():
        features = network.encoder(images)
        permanent, *heads = (
            features.enlarge(head(features.decoded, features.stages))
            for head in (network.permanent, *network.temporary)
        )
        image = network.posterior(features.pooled).sigmoid()
    scores = [permanent[:, 1].sigmoid()]  # c'_b; c'_u is dropped
    for head in heads:
        for channel in range(2, head.shape[1]):
            noise = torch.where(head[:, 0] >= head[:, channel], 0.3, 1.0)
            scores.append(head[:, channel].sigmoid() * noise)
    pixel = torch.stack(scores, 1)
    prior = torch.cat([torch.full((2, 1), 0.8), image], 1)
    assert torch.allclose(prediction.pixel, pixel, atol=1e-6)
    assert torch.allclose(prediction.scores, pixel * prior[..., None, None], atol=1e-6)
    assert torch.allclose(prediction.unknown, permanent[:, 0].sigmoid(), atol=1e-6)
    assert torch.equal(prediction.labels, prediction.scores.argmax(1))


def test_a_label_of_the_previous_model_counts_from_the_confidence_that_is_asked_for(make_method, batch):
    def old(confidence):
        method = make_method(confidence=confidence)
        with torch.no_grad():
            features = method.network.eval().encoder(batch.crops.images)
            return old_classes(method, features) > 0

    never, sure, always = old(1.0), old(0.7), old(None)
    assert not never.any()
    assert sure.any()
    assert sure.sum() < always.sum()
    assert (always | ~sure).all()


def test_a_pseudo_label_is_as_sure_as_the_pixel_is_whatever_the_posterior_made_of_it(make_method):
    posterior = torch.tensor([[0.5, 0.5]])
    pixel = torch.tensor([0.05, 0.8, 0.1])[None, :, None, None]
    fused = torch.tensor([0.045, 0.4, 0.05])[None, :, None, None]
    past = Prediction(fused, pixel, posterior)
    assert make_method(confidence=0.7)._old_classes(past, torch.zeros(1)).item() == 1
    assert make_method(confidence=0.9)._old_classes(past, torch.zeros(1)).item() == 0


def test_without_decoupling_too_a_gate_leaves_the_pseudo_labels_as_they_are(make_method, batch):
    off = {"decoupling": False, "noise_filtering": False}
    every, gated = (make_method(gate=gate, **off) for gate in ("none", "exact"))
    with torch.no_grad():
        features = every.network.eval().encoder(batch.crops.images)
        found = old_classes(every, features)
        assert torch.equal(old_classes(gated, features), found)
    assert found.any()


def test_noise_filtering_without_decoupling_is_refused():
    with pytest.raises(UserError, match="noise_filtering: false"):
        IPSegConfig(decoupling=False)


@pytest.mark.parametrize(
    ("name", "value"),
    [("alpha_bc", 1.1), ("alpha_nf", -0.1), ("rehearsal", 1.0), ("confidence", 2.0), ("lambda_current", -1.0)],
)
def test_settings_out_of_range_are_refused_by_name(name, value):
    with pytest.raises(UserError, match=rf"method\.{name}"):
        IPSegConfig(**{name: value})
