"""IPSeg's life: what freezes, what learns, what it is taught by, and what it says."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from ipseg.data.batch import BatchPlan, StepBatch, join
from ipseg.engine.iteration import make_optimiser
from ipseg.engine.recipe import TrainingConfig
from ipseg.errors import UserError
from ipseg.methods.ipseg import IPSeg, _first_and_wholes
from ipseg.methods.ipseg_config import IPSegConfig
from ipseg.scenario.catalog import describe
from ipseg.scenario.split import IGNORE


def state(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def unchanged(before: dict[str, torch.Tensor], module: nn.Module) -> bool:
    return all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


def learn(method, batch: StepBatch, iterations: int = 3) -> None:
    optimiser = make_optimiser(method, TrainingConfig(lr=0.05))
    for group in optimiser.param_groups:
        group["lr"] = 0.05 * group["factor"]
    for _ in range(iterations):
        method.train_mode()
        loss = torch.stack(list(method.loss(batch).values())).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


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
    assert at_step(1, rehearsal=0.9).plan(size, memory=3).current >= 1


# ---- image-level labels ---------------------------------------------------------------------------------------------


def image_labels(method, pictures) -> torch.Tensor:
    """The targets of L_IP, row by row."""
    with torch.no_grad():
        features = method.network.eval().encoder(pictures.images, pictures.boxes)
    return method._image_labels(pictures, method._past_scores(features, method._past(features)))


def test_part_knows_the_steps_own_classes_only(make_method, hand_made):
    method = make_method(image_labels="part")
    labels = image_labels(method, hand_made([0, 3]))
    assert labels.tolist() == [[False, False, True]] * 2


def test_pseudo_adds_the_classes_that_the_previous_heads_see_in_the_very_picture(make_method, hand_made):
    method = make_method(image_labels="pseudo", pseudo_min_share=0.2)
    pictures = hand_made([0, 3], count=12)
    labels = image_labels(method, pictures)
    assert labels[:, 2].all()
    assert 0 < labels[:, :2].sum() < 24  # some do and some do not, or the next lines prove nothing
    for row in range(12):
        one = replace(pictures, **{n: getattr(pictures, n)[row : row + 1] for n in ("images", "boxes", "labels")})
        one = replace(one, salient=pictures.salient[row : row + 1], stored=pictures.stored[row : row + 1])
        assert torch.equal(image_labels(method, one)[0], labels[row])
    order = torch.arange(11, -1, -1)
    turned = replace(
        pictures, **{n: getattr(pictures, n)[order] for n in ("images", "boxes", "labels", "salient", "stored")}
    )
    assert torch.equal(image_labels(method, turned), labels[order])


def test_pseudo_labels_do_not_ask_the_posterior(make_method, hand_made):
    method = make_method(pseudo_min_share=0.2)
    pictures = hand_made([0, 3], count=6)
    before = image_labels(method, pictures)
    with torch.no_grad():
        for posterior in (method.network.posterior, method._previous.posterior):
            for classifier in posterior.classifiers:
                classifier.bias.fill_(-100.0)  # it now sees nothing anywhere
    assert before[:, :2].any()
    assert torch.equal(image_labels(method, pictures), before)


def test_pseudo_labels_by_the_model_are_its_answer(make_method, hand_made):
    method = make_method(pseudo_min_share=0.2, pseudo_labels_by="model")
    pictures = hand_made([0, 3], count=6)
    answered = method.previous_classes(pictures.images, pictures.boxes).where(pictures.labels != 3, 0)
    seen = method.image_classes(answered.where(pictures.labels != IGNORE, IGNORE))[:, :2]
    assert seen.any()
    assert torch.equal(image_labels(method, pictures)[:, :2], seen)
    with torch.no_grad():
        for classifier in method._previous.posterior.classifiers:
            classifier.bias.fill_(-100.0)
    assert not image_labels(method, pictures)[:, :2].any()


@pytest.mark.parametrize("gate", ["none", "exact"])
def test_the_model_gives_pseudo_labels_to_pictures_that_it_was_not_asked_about_yet(make_method, hand_made, gate):
    method = make_method(pseudo_labels_by="model", pseudo_labels_on="everywhere", gate=gate)
    pictures = hand_made([0], count=4)
    with torch.no_grad():
        features = method.network.eval().encoder(pictures.images, pictures.boxes)
    whole, first = method._past(features), method._past(features[:2])
    assert torch.equal(method._past_scores(features, first).max(1).indices, whole.labels)


def test_padding_has_no_classes(make_method, hand_made):
    method = make_method(pseudo_min_share=0.0)
    pictures = hand_made([0], count=2)
    hidden = replace(pictures, labels=torch.full_like(pictures.labels, IGNORE))
    assert image_labels(method, pictures)[:, :2].any()
    assert not image_labels(method, hidden).any()


def test_what_is_annotated_as_a_new_class_is_never_its_old_look_alike(make_method, hand_made):
    pictures = hand_made([3], count=6)  # all of it
    assert not image_labels(make_method(pseudo_min_share=0.2), pictures)[:, :2].any()
    literal = make_method(pseudo_min_share=0.2, pseudo_labels_on="everywhere")
    assert image_labels(literal, pictures)[:, :2].any()


def test_remembered_pictures_have_their_stored_label_alone_unless_asked_otherwise(make_method, hand_made):
    crops, wholes = hand_made([0, 3], count=2, seed=1), hand_made([0], count=6, seed=2)
    pictures = join([crops, wholes])
    for where, added in (("unlabelled", False), ("everywhere", True)):
        method = make_method(pseudo_min_share=0.2, pseudo_labels_on=where)
        targets = {}
        method.network.posterior.register_forward_hook(lambda _m, _x, logits, kept=targets: kept.update(logits=logits))
        loss = method.loss(StepBatch(crops, 2, wholes, image_level=1))["image"]
        logits = targets["logits"]
        current = image_labels(method, pictures)[: len(logits) - 6]
        stored_alone = torch.cat([current, wholes.stored]).float()
        alone = nn.functional.binary_cross_entropy_with_logits(logits, stored_alone)
        assert torch.allclose(loss, alone, atol=1e-5) is not added


def test_stored_labels_are_united_with_the_others(make_method, hand_made):
    method = make_method(image_labels="part")
    pictures = hand_made([0])
    pictures = replace(pictures, stored=torch.tensor([[True, False, False], [False, True, False]]))
    assert image_labels(method, pictures).tolist() == [[True, False, False], [False, True, False]]


def test_full_reads_the_oracles_labels_and_is_named_as_an_oracle(make_method, hand_made):
    method = make_method(image_labels="full")
    pictures = hand_made([0, 3])
    full = torch.zeros_like(pictures.labels)
    full[0, 0, 0], full[1, 0, 0] = 1, 2
    assert image_labels(method, replace(pictures, full=full)).tolist() == [[True, False, False], [False, True, False]]
    assert IPSegConfig(image_labels="full").oracle() == ["method.image_labels=full"]
    assert IPSegConfig().oracle() == []
    assert IPSegConfig(image_labels="full", image_posterior=False).oracle() == []  # nothing sees them then


def test_the_posterior_learns_from_some_current_crops_and_all_whole_pictures_never_from_rehearsed_crops(hand_made):
    def rows(current: int, rehearsed: int, wholes: int, image_level: int) -> list[int]:
        more = hand_made([0], count=wholes) if wholes else None
        batch = StepBatch(hand_made([0, 3], count=current + rehearsed), current, more, image_level)
        return _first_and_wholes(torch.arange(current + rehearsed + wholes), batch).tolist()

    assert rows(3, 3, 4, 2) == [0, 1, 6, 7, 8, 9]
    assert rows(1, 5, 4, 1) == [0, 6, 7, 8, 9]
    assert rows(4, 0, 0, 4) == [0, 1, 2, 3]
    assert rows(2, 2, 0, 2) == [0, 1]


def test_the_image_loss_pairs_each_picture_with_its_own_label(make_method, hand_made):
    method = make_method(image_labels="part")
    crops, wholes = hand_made([0, 3], count=3, seed=1), hand_made([0], count=4, seed=2)
    wholes = replace(wholes, stored=torch.tensor([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 0]]).bool())
    loss = method.loss(StepBatch(crops, 3, wholes, image_level=1))["image"]
    network = method.network
    with torch.no_grad():
        features = network.encoder(torch.cat([crops.images[:1], wholes.images]))
        logits = network.posterior(features.pooled)
    targets = torch.cat([torch.tensor([[False, False, True]]), wholes.stored]).float()
    assert torch.allclose(loss, nn.functional.binary_cross_entropy_with_logits(logits, targets), atol=1e-5)


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
