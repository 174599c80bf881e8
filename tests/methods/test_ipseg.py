"""IPSeg's life: what freezes, what learns, what it is taught by, and what it says."""

from __future__ import annotations

import copy

import pytest
import torch
from learning import learn
from torch import nn

from ipseg.data.ade import AdeConfig
from ipseg.data.batch import BatchPlan, StepBatch
from ipseg.errors import UserError
from ipseg.methods.ipseg import IPSeg, IPSegConfig
from ipseg.methods.registry import method_config
from ipseg.models.network import logits_of
from ipseg.scenario import describe

both_variants = pytest.mark.parametrize("variant", ["paper", "official"])


def state(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def unchanged(before: dict[str, torch.Tensor], module: nn.Module) -> bool:
    return all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


# ---- what freezes and what learns -----------------------------------------------------------------------------------


def test_in_the_base_step_everything_learns(make_method, hand_made):
    method = make_method(step=0)
    batch = StepBatch(hand_made([0, 1, 2], classes=2), num_new=2, num_posterior=2)
    parts = (method.network.encoder, method.network.permanent, method.network.temporary[0], method.network.posterior)
    before = [state(part) for part in parts]
    learn(method, batch, 1)
    assert not any(unchanged(old, part) for old, part in zip(before, parts, strict=True))


@both_variants
def test_later_the_encoder_its_batch_statistics_and_the_old_heads_stay_the_same_bit_for_bit(
    make_method, batch, variant
):
    method = make_method(step=1, variant=variant)
    network = method.network
    encoder, old_head = state(network.encoder), state(network.temporary[0])
    learned = [network.permanent, network.temporary[1], network.posterior]
    before = [state(part) for part in learned]
    learn(method, batch)
    assert unchanged(encoder, network.encoder)
    assert unchanged(old_head, network.temporary[0])
    assert not any(unchanged(old, part) for old, part in zip(before, learned, strict=True))


@both_variants
def test_later_batch_statistics_rest_everywhere_and_dropout_is_the_posteriors_and_the_official_encoders(
    make_method, batch, variant
):
    method = make_method(step=1, variant=variant)
    network = method.network
    statistics = {name: tensor.clone() for name, tensor in network.named_buffers()}
    method.train_mode()
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    assert norms
    assert not any(module.training for module in norms)
    assert network.posterior.training
    dropouts = [module.training for module in network.encoder.modules() if isinstance(module, nn.Dropout)]
    assert dropouts == [variant == "official"]
    learn(method, batch)
    assert all(torch.equal(statistics[name], tensor) for name, tensor in network.named_buffers())


def test_the_official_encoder_draws_dropout_for_the_losses_but_not_for_teacher_and_prediction(make_method, batch):
    method = make_method(step=1, variant="official")
    images = batch.inputs.images
    labels, scores = method.pseudo_labels(batch.inputs), method.predict(images).scores
    taught = []
    original = method._teacher_labels
    method._teacher_labels = lambda *args: taught.append(original(*args)) or taught[-1]
    losses = []
    for _ in range(2):
        method.train_mode()
        losses.append(float(method.loss(batch)["permanent"].detach()))
        assert method.network.encoder.training  # still, for the images of the next batch
    assert losses[0] != losses[1]
    assert torch.equal(taught[0], taught[1])
    assert torch.equal(taught[0], labels.where((labels <= 2) & (batch.inputs.labels == 0), 0))
    assert torch.equal(method.predict(images).scores, scores)


def test_scale_and_shift_of_batch_normalisation_stay_in_later_steps(make_method, batch):
    method = make_method(step=1)
    branches = (method.network.permanent, method.network.temporary[1])
    norms = [part for branch in branches for part in branch.modules() if isinstance(part, nn.BatchNorm2d)]
    before = [(norm.weight.clone(), norm.bias.clone()) for norm in norms]
    learn(method, batch)
    assert norms
    for norm, (weight, bias) in zip(norms, before, strict=True):
        assert torch.equal(norm.weight, weight)
        assert torch.equal(norm.bias, bias)


def test_in_the_base_step_batch_normalisation_learns(make_method):
    method = make_method(step=0)
    method.train_mode()
    assert all(module.training for module in method.network.modules())


def test_frozen_parts_have_no_place_in_the_optimizer(make_method):
    method = make_method(step=2)
    network = method.network
    given = {id(parameter) for group in method.parameter_groups() for parameter in group.parameters}
    norms = {id(p) for part in network.modules() if isinstance(part, nn.BatchNorm2d) for p in part.parameters()}
    for part in (network.permanent, network.temporary[2], network.posterior):
        assert all((id(parameter) in given) != (id(parameter) in norms) for parameter in part.parameters())
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


@pytest.mark.parametrize("head", ["large", "small"])
@pytest.mark.parametrize("decoupling", [True, False])
def test_a_new_head_begins_as_the_permanent_branch_its_classes_as_unknown_objects(make_method, batch, head, decoupling):
    method = make_method(step=2, head=head, decoupling=decoupling)
    network = method.network
    assert unchanged(state(network.permanent.trunk), network.temporary[2].trunk)
    rows = [0, 1, 0] if decoupling else [0]  # c_f, c'_b and the class, which was an unknown object until now
    assert torch.equal(network.temporary[2].classifier.weight, network.permanent.classifier.weight[rows])
    with torch.no_grad():
        features = network.eval().encoder(batch.inputs.images)
        new, permanent = (logits_of(head, features) for head in (network.temporary[2], network.permanent))
    assert torch.allclose(new, permanent[:, rows], atol=1e-5)


def test_the_backbone_learns_at_a_tenth_of_the_rate_in_the_base_step(make_method):
    method = make_method(step=0)
    group = next(g for g in method.parameter_groups() if g.factor == 0.1)
    assert {id(p) for p in group.parameters} == {id(p) for p in method.network.encoder.backbone.parameters()}


def test_the_teacher_stands_still_while_the_permanent_branch_learns(make_method, batch):
    method = make_method(step=1)
    before = copy.deepcopy(method)
    learn(method, batch)
    assert not torch.equal(method.network.permanent.classifier.weight, before.network.permanent.classifier.weight)
    assert unchanged(state(before.teacher), method.teacher)


def test_the_teacher_is_the_model_that_stood_at_the_end_of_the_step_before(make_method, scenario, hand_made):
    method = make_method(step=1)
    crops = hand_made([0], classes=4)
    found = method.pseudo_labels(crops)
    assert found.any()
    method.begin_step(scenario.steps[2])
    with torch.no_grad():
        features = method.network.eval().encoder(crops.images)
        old = [logits_of(head, features)[:, 2:] for head in method.network.temporary[:-1]]
        labels = method._teacher_labels(features, old, crops.labels)
    assert torch.equal(labels, found.where(crops.labels == 0, 0))


# ---- how a batch is made up -----------------------------------------------------------------------------------------


def at_step(step: int, **settings):
    """Only plan() is asked: no network needed."""
    planner = IPSeg(IPSegConfig(**settings), nn.Module())
    planner.step = describe("voc/15-1").steps[step]
    planner.teacher = object() if step else None
    return planner


def test_the_authors_ratio_gives_the_posterior_one_current_image_of_sixteen_in_15_1():
    plan = at_step(1).plan(16, memory=100)
    assert plan == BatchPlan(num_new=8, num_replayed=8, num_replay_images=15, num_posterior=1)


@pytest.mark.parametrize(
    ("scenario", "step", "new"),
    [
        ("voc/15-1", 5, 16 // 20),  # 1 of 20 classes seen is new; at least one image is
        ("voc/2-2", 2, 16 * 2 // 6),  # 5; with the background it would be 4, of the old classes alone 8, of all 20 1
        ("voc/10-5", 1, 16 * 5 // 15),  # 5; of the old classes alone 8, of all 20 4
    ],
)
def test_new_images_for_the_posterior_are_a_share_of_the_batch_as_new_classes_are_of_those_seen(scenario, step, new):
    planner = at_step(1)
    planner.step = describe(scenario).steps[step]
    plan = planner.plan(16, memory=100)
    assert plan.num_posterior == max(1, new)
    assert plan.num_posterior + plan.num_replay_images == 16


@pytest.mark.parametrize(
    ("settings", "plan"),
    [
        ({"replay_share": 0.0}, BatchPlan(16, 0, 15, 1)),
        ({"replay_share": 0.25}, BatchPlan(12, 4, 15, 1)),
        ({"variant": "official"}, BatchPlan(8, 8, 15, 1, crop_replay_images=True)),
        ({"image_posterior": False}, BatchPlan(8, 8, 0)),
    ],
)
def test_shares_of_a_batch_are_settings(settings, plan):
    assert at_step(1, **settings).plan(16, memory=100) == plan


def test_without_memory_and_in_the_base_step_all_images_are_current():
    assert at_step(1).plan(16, memory=0) == BatchPlan(16, num_posterior=16)
    assert at_step(0).plan(16, memory=100) == BatchPlan(16, num_posterior=16)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_smallest_batch_still_holds_a_current_image(size):
    plan = at_step(1, replay_share=0.9).plan(size, memory=3)
    assert plan.num_new >= 1
    assert plan.num_replay_images >= 1  # without any the posterior would forget


# ---- the loss and the answer ----------------------------------------------------------------------------------------


@both_variants
def test_the_loss_is_equation_7(make_method, batch, variant):
    full = make_method(variant=variant, lambda_temporary=0.5, lambda_permanent=0.25).loss(batch)
    plain = make_method(variant=variant, lambda_temporary=1.0, lambda_permanent=1.0).loss(batch)
    assert set(full) == {"temporary", "permanent", "posterior"}
    assert torch.allclose(full["temporary"], 0.5 * plain["temporary"])
    assert torch.allclose(full["permanent"], 0.25 * plain["permanent"])
    assert torch.equal(full["posterior"], plain["posterior"])


def test_the_official_losses_hold_every_class_and_known_ones_as_negatives(make_method, batch):
    """Their numbers are compared with the authors' in tests/reference."""
    methods = [make_method(variant=variant) for variant in ("paper", "official")]
    methods[1].network.load_state_dict(methods[0].network.state_dict())  # their initial weights differ
    paper, official = (method.loss(batch) for method in methods)
    assert official["temporary"] > paper["temporary"]
    assert official["permanent"] > paper["permanent"]


def test_without_the_posterior_there_is_neither_branch_nor_loss(make_method, batch):
    method = make_method(image_posterior=False)
    assert method.network.posterior is None
    assert set(method.loss(batch)) == {"temporary", "permanent"}
    prediction = method.predict(batch.inputs.images)
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
            features.canvas.upsample(head(features.decoded, features.stages))
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


def test_a_pseudo_label_counts_from_a_probability_of_seven_tenths(make_method, batch):
    method = make_method()
    images = batch.inputs.images
    with torch.no_grad():
        features = method.network.eval().encoder(images)
        heads = (logits_of(head, features)[:, 2:] for head in method.network.temporary)
        logits = torch.cat([logits_of(method.network.permanent, features), *heads], 1)
    best, winner = logits.sigmoid().max(1)
    expected = (winner - 1).clamp(min=0).where(best >= 0.7, 0)
    assert (best < 0.7).any()
    assert torch.equal(method.pseudo_labels(batch.inputs), expected)


@pytest.mark.parametrize("saliency", ["all", "none"])
@pytest.mark.parametrize("name", ["ipseg", "ipseg_lda"])
def test_without_saliency_maps_the_papers_permanent_branch_would_learn_a_constant_and_is_refused(name, saliency):
    config = method_config({"name": name})
    with pytest.raises(UserError, match=rf"data\.saliency is {saliency}.*saliency maps"):
        config.require_data(AdeConfig(path="x", saliency=saliency))
    config.require_data(AdeConfig(path="x", saliency="given"))
    for other in ({"variant": "official"}, {"decoupling": False}):
        method_config({"name": "ipseg", **other}).require_data(AdeConfig(path="x", saliency=saliency))


@pytest.mark.parametrize(
    ("name", "value"),
    [("alpha_bc", 1.1), ("alpha_nf", -0.1), ("replay_share", 1.0), ("lambda_temporary", -1.0)],
)
def test_settings_out_of_range_are_refused_by_name(name, value):
    with pytest.raises(UserError, match=rf"method\.{name}"):
        IPSegConfig(**{name: value})
