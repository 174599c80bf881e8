"""IPSeg's training step and inference beside the numbers of its authors' code (vectors/README.md)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from given_network import (
    GivenHead,
    GivenNetwork,
    assert_close,
    load,
    names,
    numbered_batch,
    numbered_images,
    step_of,
)

from ipseg.data.batch import StepBatch
from ipseg.methods.ipseg import IPSeg, IPSegConfig
from ipseg.methods.losses import image_bce, pixel_bce

OFFICIAL = IPSegConfig(variant="official")
TRAINING = pytest.mark.parametrize("v", [load(name) for name in names("ipseg_train_")], ids=names("ipseg_train_"))
LATER = [name for name in names("ipseg_train_") if "step0" not in name]


def at_the_step(v: dict[str, torch.Tensor], config: IPSegConfig) -> IPSeg:
    """IPSeg whose heads say what the case says."""
    sizes, index = v["sizes"].tolist(), int(v["step"])
    own = [torch.zeros_like(v["own"])] * index + [v["own"]]
    classes = torch.split(v["classes"], sizes, dim=1)
    heads = [torch.cat(both, 1) for both in zip(own, classes, strict=True)] if config.decoupling else list(classes)
    network = GivenNetwork(v["permanent"], heads, v["posterior"], v["y"].shape[-2:])
    method = IPSeg(config, network)  # type: ignore[arg-type]
    method.step = step_of(sizes, index)
    for head in method.network.temporary[:-1]:
        head.requires_grad_(requires_grad=False)
    if index:
        method.teacher = GivenHead(v["prev_permanent"])  # type: ignore[assignment]
    return method


def batch(v: dict[str, torch.Tensor], image_level: int = 0) -> StepBatch:
    crops = numbered_batch(v["y"], v["salient"], sum(v["sizes"].tolist()))
    return StepBatch(crops, len(crops), num_posterior=image_level)


def their_old_classes(v: dict[str, torch.Tensor]) -> torch.Tensor:
    """Learned indices of the pseudo-labels, 0 elsewhere."""
    found = v.get("pseudo_labels", v["labels"])
    return torch.where((v["labels"] <= 1) & (found > 1) & (found != 255), found - 1, 0)


@TRAINING
def test_the_two_losses_of_the_official_variant_and_their_gradients_are_the_authors(v):
    method = at_the_step(v, replace(OFFICIAL, image_posterior=False))
    losses = method.loss(batch(v))
    assert_close(losses["permanent"], v["loss_global"])
    assert_close(losses["temporary"], v["loss_curr"])
    sum(losses.values()).backward()
    network: Any = method.network
    assert_close(network.permanent.logits.grad, v["grad_permanent"])
    assert_close(network.temporary[-1].logits.grad[:, :2], v["grad_own"])
    assert_close(network.temporary[-1].logits.grad[:, 2:], v["grad_new"])


@pytest.mark.parametrize("name", LATER)
@pytest.mark.parametrize("variant", ["paper", "official"])
@pytest.mark.parametrize("parts", [{}, {"decoupling": False}, {"image_posterior": False}])
def test_both_variants_take_the_authors_pseudo_labels_whatever_is_switched_off(name, variant, parts):
    v = load(name)
    method = at_the_step(v, IPSegConfig(variant=variant, **parts))
    shown = method.network.encoder(numbered_images(len(v["y"]), v["y"].shape[-2:]))
    old = [
        F.interpolate(logits, v["y"].shape[-2:], mode="bilinear", align_corners=False)
        for logits in torch.split(v["classes"], v["sizes"].tolist(), dim=1)[:-1]
    ]
    found = method._teacher_labels(shown, old, v["y"])
    assert torch.equal(found, their_old_classes(v))
    assert found.any()


@pytest.mark.parametrize("name", LATER)
def test_an_old_class_is_in_an_image_from_1000_pixels_of_pseudo_labels(name):
    """Theirs counts the new classes too, which are annotated; and it uses the counts for other images (a slip)."""
    v = load(name)
    pixels, old = v["y"][0].numel(), sum(v["sizes"].tolist()[: int(v["step"])])
    method = at_the_step(v, replace(OFFICIAL, min_class_area=1000 / pixels))
    crops = batch(v).inputs
    nothing = replace(crops, labels=torch.zeros_like(crops.labels))
    labels = method.image_labels(nothing, their_old_classes(v))
    assert torch.equal(labels[:, :old], v["counts_over_1000"][:, :old].bool())


@TRAINING
def test_the_posteriors_loss_and_gradient_for_their_targets_are_the_authors(v):
    logits = v["posterior"].clone().requires_grad_()
    loss = image_bce(logits, v["targets"])
    loss.backward()
    assert_close(loss, v["loss_scale"])
    assert_close(logits.grad, v["grad_posterior"])


@TRAINING
def test_without_decoupling_the_classes_learn_as_from_both_losses_and_the_permanent_branch_twice_as_much(v):
    method = at_the_step(v, replace(OFFICIAL, image_posterior=False, decoupling=False))
    sum(method.loss(batch(v)).values()).backward()
    network: Any = method.network
    assert_close(network.temporary[-1].logits.grad, v["grad_new"])
    assert_close(network.permanent.logits.grad, 2 * v["grad_permanent"])


@pytest.mark.parametrize("name", names("ipseg_inference_"))
@pytest.mark.parametrize("decoupling", [True, False])
def test_scores_and_labels_of_the_official_variant_are_the_authors(name, decoupling):
    v = load(name)
    size, classes = v["labels"].shape[-2:], v["posterior"].shape[1]
    heads = torch.split(v["logits"][:, 2:], [classes - 1, 1], 1)
    if decoupling:  # c_f wins everywhere, and nothing filters
        heads = [torch.cat([torch.full_like(v["logits"][:, :2], 50.0), part], 1) for part in heads]
    network = GivenNetwork(v["logits"][:, :2], heads, v["posterior"], size)
    method = IPSeg(replace(OFFICIAL, decoupling=decoupling), network)  # type: ignore[arg-type]
    prediction = method.predict(numbered_images(len(v["logits"]), size))
    assert_close(prediction.scores, v["scores"])
    assert torch.equal(prediction.labels, v["labels"])


@pytest.mark.parametrize("name", names("ipseg_inference_"))
def test_the_paper_drops_the_unknown_channel_that_the_authors_code_adds_to_the_background(name):
    v = load(name)
    size, classes = v["labels"].shape[-2:], v["posterior"].shape[1]
    quiet = torch.full_like(v["logits"][:, :2], -50.0)
    heads = [torch.cat([quiet, part], 1) for part in torch.split(v["logits"][:, 2:], [classes - 1, 1], 1)]
    network = GivenNetwork(v["logits"][:, :2], heads, v["posterior"], size)
    prediction = IPSeg(IPSegConfig(), network).predict(numbered_images(len(v["logits"]), size))  # type: ignore[arg-type]
    assert prediction.unknown is not None
    assert_close(prediction.scores[:, 0] + 0.9 * prediction.unknown, v["scores"][:, 0])
    assert_close(prediction.scores[:, 1:], v["scores"][:, 1:])


@pytest.mark.parametrize("name", names("ipseg_pixel_bce"))
def test_binary_cross_entropy_of_pixels_and_its_gradient_are_the_authors(name):
    v = load(name)
    logits = v["logits"].clone().requires_grad_()
    loss = pixel_bce(logits, v["labels"])
    loss.backward()
    assert_close(loss, v["loss"])
    assert_close(logits.grad, v["grad"])
