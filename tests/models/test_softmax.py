"""DeepLabV3 with one classifier a step."""

from __future__ import annotations

from math import log

import pytest
import torch

from ipseg.models.backbone import BackboneConfig
from ipseg.models.network import Encoder, ModelConfig
from ipseg.models.softmax import SoftmaxNetwork

MODEL = ModelConfig(backbone=BackboneConfig(name="resnet10t"), width=8, rates=(1, 2))


@pytest.fixture
def network() -> SoftmaxNetwork:
    torch.manual_seed(0)
    made = SoftmaxNetwork(MODEL)
    made.add_step(3)
    return made.eval()


def test_logits_have_the_size_of_the_image_whatever_it_is(network):
    for size in ((64, 64), (33, 70)):
        seen = network(torch.rand(2, 3, *size))
        assert seen.upsampled().shape == (2, 3, *size)
        assert len(seen.stages) == 4
        assert seen.decoded.shape == (2, 8, *seen.logits.shape[-2:])
        assert seen.logits.shape[-2:] == seen.stages[-1].shape[-2:]
        assert seen.logits.dtype == torch.float32


@pytest.mark.parametrize("trunk", [True, False])
def test_the_classifiers_input_is_handed_over_for_losses(trunk):
    network = SoftmaxNetwork(MODEL, trunk=trunk)
    network.add_step(3)
    seen = network.eval()(torch.rand(2, 3, 64, 64))
    assert torch.equal(network.classifiers[0](seen.decoded), seen.logits)


def test_losses_see_the_decoders_output_without_its_dropout(network):
    """A teacher has none: to a student with dropout even its own features would be far away."""
    images = torch.rand(2, 3, 64, 64)
    network.dropout.train()
    first, second = network(images), network(images)
    assert torch.equal(first.decoded, second.decoded)
    assert not torch.equal(first.logits, second.logits)


def test_backbone_and_decoder_run_as_the_part_that_may_be_fused(network, monkeypatch):
    fused, whole = [], Encoder._maps
    monkeypatch.setattr(Encoder, "_maps", lambda self, *args: fused.append(self) or whole(self, *args))
    network.encoder.backbone.register_forward_hook(lambda *_: fused.append("backbone"))
    network(torch.rand(2, 3, 64, 64))
    assert fused == [network.encoder, "backbone"]


def test_between_encoder_and_logits_there_is_one_point_wise_classifier_a_step(network):
    network.add_step(2)
    own = {name for name, _ in network.named_parameters() if not name.startswith("encoder.")}
    assert own == {f"classifiers.{i}.{kind}" for i in (0, 1) for kind in ("weight", "bias")}
    assert network.classifiers[1].weight.shape == (2, 8, 1, 1)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_new_classes_start_with_an_equal_share_of_the_background(network, count):
    """MiB: each new class is as likely as the background is now, and the old classes are as likely as before."""
    images = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        before = network(images).logits.softmax(1)
        bias = network.classifiers[0].bias[0].item()
        network.add_step(count)
        network.init_from_background()
        after = network(images).logits.softmax(1)
    assert network.classifiers[0].bias[0].item() == pytest.approx(bias - log(count + 1))
    for channel in (0, *range(3, 3 + count)):
        assert torch.allclose(after[:, channel], before[:, 0] / (count + 1), atol=1e-6)
    assert torch.allclose(after[:, 1:3], before[:, 1:3], atol=1e-6)


def test_padding_changes_no_logit_of_an_image_that_does_not_reach_it(network):
    image = torch.rand(1, 3, 64, 64)
    canvas = torch.cat([image, torch.rand(1, 3, 64, 64)], 3)  # what stands on the padding must not matter
    boxes = torch.tensor([[0.0, 0.0, 64.0, 64.0]])
    blank = torch.cat([image, torch.zeros(1, 3, 64, 64)], 3)
    assert torch.equal(network(canvas, boxes).logits, network(blank, boxes).logits)
