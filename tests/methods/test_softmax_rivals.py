"""What each rival among the softmax methods does beside its losses: passes, frozen parts, states of a step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from learning import learn

from ipseg.data.batch import StepBatch
from ipseg.errors import UserError
from ipseg.methods.registry import method_config
from ipseg.models.backbone import BackboneConfig
from ipseg.models.network import ModelConfig
from ipseg.scenario import Step

MODEL = ModelConfig(backbone=BackboneConfig(name="test_resnet"), width=8, rates=(1,), decoder_dropout=0.0)
EWF = {"fuse": "endpoints", "freeze_old_classifiers": True}
SYSTEMS: dict[str, dict[str, Any]] = {
    "mib": {},
    "mib+ewf": {"name": "mib", **EWF},
    "mib_awt": {},
    "mib_nest": {},
    "plop": {},
    "plop+ucb": {"name": "plop", "pixel_weights": "ucb"},
    "plop_nest": {},
    "reminder": {},
    "sdr": {},
    "dft": {},
}


class Passes:
    """A batch a pass, and how many passes there were."""

    def __init__(self, batch: StepBatch) -> None:
        self.batch, self.count = batch, 0

    def __iter__(self) -> Iterator[StepBatch]:
        self.count += 1
        return iter([self.batch])


@pytest.fixture
def make(scenario):
    """A system at a step, before its `prepare`."""

    def made(name: str, step: int = 1, **settings: Any) -> Any:
        torch.manual_seed(0)
        method = method_config({"name": name, **SYSTEMS.get(name, {}), **settings}).build(MODEL)
        for each in scenario.steps[: step + 1]:
            method.begin_step(each)
        return method

    return made


@pytest.mark.parametrize("name", SYSTEMS)
def test_an_iteration_is_one_pass_of_the_network_and_one_of_the_teacher(name, make, batch):
    method, passes = make(name), []
    method.prepare([batch])
    for network in (method.network, method.teacher):
        if network is not None:
            network.encoder.register_forward_hook(lambda encoder, *_: passes.append(encoder))
    method.train_mode()
    method.loss(batch)
    assert passes.count(method.network.encoder) == 1
    assert len(passes) == (1 if name == "dft" else 2)


@pytest.mark.parametrize("name", SYSTEMS)
def test_in_mixed_precision_losses_are_single_and_gradients_finite(name, make, batch):
    method = make(name)
    with torch.autocast("cpu", torch.bfloat16):
        method.prepare([batch])
        method.train_mode()
        parts = method.loss(batch)
    assert {part.dtype for part in parts.values()} == {torch.float32}
    torch.stack(list(parts.values())).sum().backward()
    learning = [parameter for group in method.parameter_groups() for parameter in group.parameters]
    assert all(torch.isfinite(parameter.grad).all() for parameter in learning)
    with torch.autocast("cpu", torch.bfloat16):
        method.end_step([batch])
    assert all(torch.isfinite(tensor).all() for tensor in method.network.state_dict().values())


@pytest.mark.parametrize("name", SYSTEMS)
def test_crops_need_not_be_multiples_of_the_stride(name, make, hand_made):
    method, odd = make(name), StepBatch(hand_made([0, 3], size=40), num_new=2)
    method.prepare([odd])
    learn(method, odd, iterations=1)
    method.end_step([odd])
    assert all(torch.isfinite(tensor).all() for tensor in method.network.state_dict().values())


# ---- EWF, AWT, NeST -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mib", "plop"])
def test_with_ewf_old_classifiers_keep_what_the_step_began_with_and_the_rest_is_a_mean(name, make, batch):
    method = make(name, **EWF)
    began = method.network.classifiers[0].bias.detach().clone()  # the background's is lowered already
    before = method.teacher.state_dict()
    method.prepare([batch])
    learn(method, batch)
    assert torch.equal(method.network.classifiers[0].bias, began)
    learned = {key: tensor.clone() for key, tensor in method.network.state_dict().items()}
    method.end_step([])
    share = (1 / 4) ** 0.5  # one new class of three and background
    for key, tensor in method.network.state_dict().items():
        if key in before and tensor.is_floating_point():
            assert torch.allclose(tensor, (1 - share) * before[key] + share * learned[key], atol=1e-6)
        else:
            assert torch.equal(tensor, learned[key])


@pytest.mark.parametrize("per_class", [False, True])
def test_awt_adds_the_background_s_weights_in_a_quarter_of_the_channels(per_class, make, batch):
    method = make("mib_awt", mask_per_class=per_class)
    (base, drawn), biases = method.network.rows()
    drawn, biases = drawn.detach().clone(), [bias.detach().clone() for bias in biases]
    method.prepare([batch])
    added = method.network.rows()[0][1] - drawn
    assert (added != 0).sum() == 2
    assert torch.allclose(added[added != 0], base[:1][added != 0])
    assert all(torch.equal(bias, before) for bias, before in zip(method.network.rows()[1], biases, strict=True))


@pytest.mark.parametrize(("name", "others"), [("mib_nest", 1), ("plop_nest", 2)])
def test_nest_tunes_classifiers_in_passes_of_their_own_and_moves_batch_statistics_alone(name, others, make, batch):
    method, passes = make(name, tuning_epochs=3, tuning_lr=0.1), Passes(batch)
    before = {key: tensor.clone() for key, tensor in method.network.state_dict().items()}
    method.prepare(passes)
    assert passes.count == others + 3
    moved = {key for key, tensor in method.network.state_dict().items() if not torch.equal(tensor, before[key])}
    assert {"classifiers.0.weight", "classifiers.1.weight", "classifiers.1.bias"} <= moved
    assert all("running" in key or "tracked" in key or key.startswith("classifiers") for key in moved)
    weights, biases = method.network.rows()
    assert torch.equal(weights[0][1:], before["classifiers.0.weight"].flatten(1)[1:])
    assert torch.equal(biases[0], before["classifiers.0.bias"])
    norms = weights[0].norm(dim=1)
    assert norms[0].item() == pytest.approx(before["classifiers.0.weight"].flatten(1)[0].norm().item(), rel=1e-5)
    assert weights[1].norm(dim=1).mean().item() == pytest.approx(norms.mean().item(), rel=1e-5)


def test_tuning_more_makes_nest_s_loss_smaller(make, batch):
    losses = []
    for epochs in (0, 20):
        method = make("mib_nest", tuning_epochs=epochs, tuning_lr=0.5)
        method.prepare([batch])
        method.network.eval()
        losses.append(method.loss(batch)["segmentation"].item())
    assert losses[1] < losses[0]


# ---- prototypes -----------------------------------------------------------------------------------------------------


def test_reminder_s_prototypes_are_of_the_trained_network_and_old_ones_stay(make, batch, hand_made, scenario):
    method = make("reminder", step=0)
    method.end_step([StepBatch(hand_made([0, 1, 2]), num_new=2)])
    first = method.network.prototypes.clone()
    assert (first != 0).any(1).all()  # the background's too
    method.begin_step(scenario.steps[1])
    method.end_step([batch, batch])
    assert torch.equal(method.network.prototypes[:3], first)
    method.network.eval()
    seen = method.network(batch.inputs.images, batch.inputs.boxes).decoded
    large = torch.nn.functional.interpolate(seen, (64, 64), mode="bilinear", align_corners=True)
    means = [each[:, labels == 3].mean(1) for each, labels in zip(large, batch.inputs.labels, strict=True)]
    assert torch.allclose(method.network.prototypes[3], torch.stack(means).mean(0), atol=1e-5)


def test_sdr_s_prototypes_are_running_means_of_annotated_classes(make, batch):
    method = make("sdr")
    method.train_mode()
    method.loss(batch)
    once = method.network.sums.clone(), method.network.counts.clone()
    method.loss(batch)
    assert torch.equal(method.network.counts, 2 * once[1])
    assert method.network.counts[:3].tolist() == [0, 0, 0]  # background and old classes are not annotated
    assert method.network.counts[3] > 0


# ---- DFT* -----------------------------------------------------------------------------------------------------------


def test_dft_has_every_class_in_its_softmax_and_only_seen_ones_in_predictions(make, batch, scenario):
    method = make("dft", step=0)
    images = batch.inputs.images
    assert method.network(images).logits.shape[1] == 5
    assert method.predict(images).scores.shape[1] == 3
    assert (method.predict(images).scores.sum(1) < 1).all()
    method.begin_step(scenario.steps[1])
    learning = {key for key, parameter in method.network.named_parameters() if parameter.requires_grad}
    assert {key.split(".")[1] for key in learning} == {"1", "2"}  # the new class and the future one
    method.begin_step(scenario.steps[2])
    learning = {key for key, parameter in method.network.named_parameters() if parameter.requires_grad}
    assert {key.split(".")[1] for key in learning} == {"2"}


def test_a_class_that_nobody_announced_gets_its_classifier_when_it_comes(make):
    method = make("dft", step=2)
    method.begin_step(Step(3, ("fox",), ("cat", "cow", "dog", "emu"), ()))
    assert method.predict(torch.rand(1, 3, 64, 64)).scores.shape[1] == 6


# ---- UCB ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["plop", "ssul"])
def test_ucb_s_frequencies_are_saved_with_the_network_while_the_step_learns(name, make, batch):
    method = make(name, pixel_weights="ucb")
    method.prepare([batch])
    learn(method, batch, iterations=2)
    state = method.network.state_dict()
    assert state["pixel_weights.images"] == 4
    assert state["pixel_weights.frequency"].sum().item() == pytest.approx(1)
    method.end_step([])
    assert not [key for key in method.network.state_dict() if key.startswith("pixel_weights")]


@pytest.mark.parametrize("name", ["plop", "ssul"])
def test_ucb_leaves_the_base_step_alone(name, make, batch):
    method = make(name, step=0, pixel_weights="ucb")
    method.prepare([batch])
    assert "pixel_weights.images" not in method.network.state_dict()


# ---- settings that make no sense ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("mib_awt", "transferred", 1.5),
        ("mib_nest", "tuning_epochs", -1),
        ("plop_nest", "tuning_lr", -0.1),
        ("reminder", "temperature", 0.0),
        ("reminder", "least_similarity", -1.0),
        ("sdr", "sparsity", -1.0),
        ("mib", "fuse", "midpoints"),
    ],
)
def test_settings_out_of_bounds_are_refused_by_name(name, setting, value):
    with pytest.raises(UserError, match=f"method.{setting}"):
        method_config({"name": name, setting: value})
