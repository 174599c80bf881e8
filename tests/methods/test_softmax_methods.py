"""Each softmax method's own: which losses it adds up, with which weights, and what PLOP finds before a step."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from ipseg.data.batch import BatchPlan, StepBatch, join
from ipseg.errors import UserError
from ipseg.methods.distillation import background_takes_new, pod_distance
from ipseg.methods.pseudo_labels import BINS, OFFICIAL_BINS, ClassHistograms, entropy
from ipseg.methods.registry import METHODS, method_config
from ipseg.methods.sigmoid import SigmoidConfig
from ipseg.methods.softmax import SoftmaxConfig
from ipseg.models.backbone import BackboneConfig
from ipseg.models.network import ModelConfig

MODEL = ModelConfig(backbone=BackboneConfig(name="test_resnet"), width=8, rates=(1,), decoder_dropout=0.0)
SOFTMAX = sorted(
    name
    for name, config in METHODS.items()
    if issubclass(config, SoftmaxConfig) and not issubclass(config, SigmoidConfig) and name != "joint"
)


@pytest.fixture
def make(scenario):
    """A softmax method in step 1 whose previous model has opinions, and which has since moved away from it."""

    def made(name: str, *, moved: bool = True, **settings):
        torch.manual_seed(0)
        method = method_config({"name": name, **settings}).build(MODEL)
        method.begin_step(scenario.steps[0])
        with torch.no_grad():
            method.network.classifiers[0].weight.mul_(20)
        method.begin_step(scenario.steps[1])
        if moved:
            with torch.no_grad():
                for parameter in method.network.parameters():
                    parameter.add_(0.05 * torch.randn_like(parameter))
        method.network.eval()
        return method

    return made


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("lwf", {"distillation": 100}),
        ("lwf_mc", {"distillation": 10}),
        ("ilt", {"distillation": 100, "features": 100}),
        ("mib", {"distillation": 10}),
        ("plop", {"pod_features": 0.01, "pod_logits": 0.0005}),
        ("plop_m", {"pod_features": 0.01, "pod_logits": 0.0005, "replay_share": 0.5}),
        ("mib_awt", {"distillation": 10}),
        ("mib_nest", {"distillation": 10}),
        ("plop_nest", {"pod_features": 0.01, "pod_logits": 0.0005}),
        ("reminder", {"pod_features": 0.01, "pod_logits": 0.0005, "distillation": 0.5}),
        ("sdr", {"distillation": 100, "matching": 0.01, "attraction": 1e-3, "repulsion": 1e-3, "sparsity": 1e-3}),
    ],
)
def test_weights_are_the_published_ones_and_each_scales_its_part(name, weights, make, batch):
    config = method_config({"name": name})
    assert {key: getattr(config, key) for key in weights} == weights
    whole = make(name).loss(batch)
    without = make(name, **dict.fromkeys(weights, 0.0)).loss(batch)
    assert whole["segmentation"].item() == without["segmentation"].item()
    assert all(whole[part] > 0 and without[part] == 0 for part in whole if part != "segmentation")


@pytest.mark.parametrize("name", ["ilt", "plop"])
def test_a_model_that_has_not_moved_has_the_features_it_had(name, make, batch):
    parts = make(name, moved=False).loss(batch)
    assert parts["features" if name == "ilt" else "pod"].item() == pytest.approx(0, abs=0 if name == "ilt" else 1e-2)


@pytest.mark.parametrize("name", sorted(set(SOFTMAX) - {"sdr"}))
def test_in_the_base_step_only_labels_teach(name, scenario, hand_made):
    method = method_config({"name": name}).build(MODEL)
    method.begin_step(scenario.steps[0])
    batch = StepBatch(hand_made([0, 1, 2], classes=2), num_new=2)
    method.prepare([batch])
    assert set(method.loss(batch)) == {"segmentation"}


@pytest.mark.parametrize("name", sorted(set(SOFTMAX) - {"dft", "lwf_mc", "rcil", "sdr"}))
def test_the_base_step_of_all_but_four_is_the_same_so_it_can_be_shared(name, scenario, hand_made):
    batch = StepBatch(hand_made([0, 1, 2], classes=2), num_new=2)
    losses = []
    for each in ("finetune", name):
        torch.manual_seed(0)
        config = method_config({"name": each})
        method = config.build(MODEL)
        method.begin_step(scenario.steps[0])
        losses.append((config.base_settings(), method.loss(batch)["segmentation"].item()))
    assert losses[0] == losses[1]
    assert all(
        method_config({"name": other}).base_settings() != losses[0][0] for other in ("dft", "lwf_mc", "rcil", "sdr")
    )


def whole(features: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(features[:, 0], dtype=torch.bool)


@pytest.mark.parametrize(("name", "part"), [("ilt", "features"), ("plop", "pod")])
def test_features_beside_the_image_are_not_held(name, part, make, batch):
    """Half of a canvas is padding: what the models make of it there is no matter."""
    method = make(name)
    boxes = torch.tensor([[0.0, 0.0, 64.0, 32.0]]).expand(2, 4)
    batch = replace(batch, inputs=replace(batch.inputs, boxes=boxes))
    expected = method.loss(batch)[part]
    moved, teacher_outputs = 0, method.teacher_outputs

    def elsewhere(crops):
        nonlocal moved
        seen = teacher_outputs(crops)
        for features in (*seen.stages, seen.decoded, seen.logits):
            beyond = features[..., -(-features.shape[-1] // 2) :]
            beyond += 5
            moved += beyond.numel()
        return seen

    method.teacher_outputs = elsewhere
    assert method.loss(batch)[part].item() == pytest.approx(expected.item(), rel=1e-5)
    assert moved


def test_the_weight_of_pod_grows_with_what_there_is_to_keep(make, batch):
    method = make("plop", pod_logits=0.0)
    seen, before = method.network(batch.inputs.images), method.teacher_outputs(batch.inputs)
    maps = zip((*seen.stages, seen.decoded), (*before.stages, before.decoded), strict=True)
    apart = sum(pod_distance(new, old, whole(new)) for new, old in maps)
    expected = 0.01 * apart / 6 * math.sqrt(4 / 1)  # background, cat, cow and dog, of which dog is new
    assert method.loss(batch)["pod"].item() == pytest.approx(expected.item(), rel=1e-5)
    logits = pod_distance(background_takes_new(seen.logits, 3), before.logits, whole(seen.logits))
    alone = make("plop", pod_features=0.0).loss(batch)["pod"]
    assert alone.item() == pytest.approx(0.0005 * logits.item() / 6 * 2, rel=1e-5)


# ---- PLOP's pass over the data --------------------------------------------------------------------------------------


def test_thresholds_are_medians_over_what_the_step_s_own_images_leave_unlabeled(make, hand_made):
    method = make("plop_m", least_threshold=0.0)
    own, replayed = hand_made([0, 3], seed=1), hand_made([0, 3], seed=2)
    method.prepare(iter([StepBatch(join([own, replayed]), num_new=2)]))
    logits = method.teacher_outputs(own).upsampled()
    guess, doubt = logits.argmax(1), entropy(logits)
    for index, threshold in enumerate(method.thresholds.tolist()):
        values = doubt[(own.labels == 0) & (guess == index)]
        assert threshold == pytest.approx(values.quantile(0.5).item() if len(values) else 0, abs=0.01)
    assert (method.thresholds > 1 / BINS).any()


def test_official_thresholds_are_of_entropies_that_were_divided_twice(make, batch):
    """By classes and by a logarithm."""
    method = make("plop", variant="official", least_threshold=0.0)
    method.prepare(iter([batch]))
    logits = method.teacher_outputs(batch.inputs).upsampled()[: batch.num_new]
    unlabeled = batch.inputs.labels[: batch.num_new] == 0
    counted = ClassHistograms(3, OFFICIAL_BINS, logits.device)
    divisor = 3 * math.log(4)  # background and two old classes; with the new one four
    counted.add(logits.argmax(1)[unlabeled], entropy(logits)[unlabeled] / divisor)
    expected = divisor * counted.official_thresholds().clamp(min=0)
    assert method.thresholds.tolist() == pytest.approx(expected.tolist())


def test_no_threshold_is_below_the_least(make, batch):
    method = make("plop", least_threshold=0.999)
    method.prepare(iter([batch]))
    assert (method.thresholds >= 0.999).all()


def test_hooks_that_a_method_does_not_have_do_nothing_and_ask_for_no_batch(make):
    method = make("finetune")
    before = {name: tensor.clone() for name, tensor in method.network.state_dict().items()}
    asked = (pytest.fail("a batch was made") for _ in range(1))
    method.prepare(asked)
    method.end_step(asked)
    assert all(torch.equal(tensor, before[name]) for name, tensor in method.network.state_dict().items())


# ---- replay ---------------------------------------------------------------------------------------------------------


def test_a_replayed_image_teaches_the_old_classes_it_was_stored_with(make, hand_made):
    """With one label map for both, an old class of a replayed image pulls its own channel, not its neighbor's."""
    method = make("finetune", replay_share=0.5)
    crops = hand_made([0, 3])
    crops.labels[1] = 2  # cow, learned in the base step: its second class, channel 2
    logits = method.network(crops.images).upsampled()
    expected = torch.nn.functional.cross_entropy(logits, crops.labels, ignore_index=255)
    assert method.loss(StepBatch(crops, num_new=1))["segmentation"].item() == pytest.approx(expected.item())


def test_all_seen_takes_full_labels_for_replayed_images_alone_and_says_so(make, hand_made):
    crops = hand_made([0, 3])
    crops = replace(crops, full=torch.full_like(crops.labels, 1))
    method = make("plop_m", mem_labels="all_seen")
    labels = method.labels(StepBatch(crops, num_new=1))
    assert torch.equal(labels[0], crops.labels[0])
    assert (labels[1] == 1).all()
    assert method.config.oracle() == ["method.mem_labels=all_seen"]
    assert method.config.replayed_labels == "all_seen"


def test_without_replay_no_label_is_asked_of_memory_and_nothing_is_an_oracle():
    config = method_config({"name": "plop", "mem_labels": "all_seen"})
    assert config.replayed_labels is None
    assert config.oracle() == []


def test_plop_m_is_plop_with_half_a_batch_from_memory(make):
    assert make("plop").plan(8, memory=4) == BatchPlan(8)
    assert make("plop_m").plan(8, memory=4) == BatchPlan(4, num_replayed=4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "mib", "distillation": -1}, r"method\.distillation"),
        ({"name": "ilt", "features": -1}, r"method\.features"),
        ({"name": "plop", "pod_scales": []}, r"method\.pod_scales is empty"),
        ({"name": "plop", "pod_scales": [0]}, r"method\.pod_scales"),
        ({"name": "plop", "least_threshold": 2}, r"method\.least_threshold"),
        ({"name": "plop_m", "mem_labels": "all"}, r"method\.mem_labels.*all_seen"),
        ({"name": "lwf", "replay_share": 1}, r"method\.replay_share"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(settings, message):
    with pytest.raises(UserError, match=message):
        method_config(settings)
