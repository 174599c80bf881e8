"""Any size, any shape; padding and neighbors in the batch change nothing."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from ipseg.errors import UserError
from ipseg.methods.ipseg import IPSegConfig
from ipseg.models.backbone import BackboneConfig
from ipseg.models.freezing import set_mode
from ipseg.models.network import ModelConfig
from ipseg.scenario import ScenarioConfig
from ipseg.training.distributed import DistributedContext
from ipseg.training.evaluate import EvaluationConfig, batches

CLASSES = ("cat", "cow", "dog")
BACKBONES = ["resnet10t", "swin_tiny_patch4_window7_224", "tf_efficientnet_lite0"]


def build(backbone: str):
    """IPSeg after two steps, with weights that make its scores differ."""
    torch.manual_seed(0)
    config = ModelConfig(backbone=BackboneConfig(name=backbone), width=16, posterior_width=32, rates=(1, 2))
    method = IPSegConfig().build(config)
    for step in ScenarioConfig(name="2-1").build("toy", CLASSES).steps:
        method.begin_step(step)
    for head in (method.network.permanent, *method.network.temporary):
        torch.nn.init.normal_(head.classifier.weight, std=2.0)
    return method


@pytest.fixture(scope="module", params=BACKBONES)
def method(request):
    return build(request.param)


@pytest.fixture(scope="module")
def resnet():
    return build("resnet10t")


@pytest.mark.parametrize("size", [(33, 70), (64, 64), (1, 40), (97, 31)])
def test_any_size_and_shape_is_segmented_at_its_own_size(method, size):
    prediction = method.predict(torch.rand(1, 3, *size))
    assert prediction.scores.shape == (1, 1 + len(CLASSES), *size)
    assert prediction.posterior.shape == (1, len(CLASSES))
    assert prediction.unknown.shape == (1, *size)
    assert prediction.scores.isfinite().all()


def test_what_lies_in_the_padding_never_changes_the_scores(method):
    boxes = torch.tensor([[0.0, 0.0, 50.0, 40.0], [14.0, 20.0, 64.0, 64.0]])
    images = torch.rand(2, 3, 64, 64)
    other = images.clone()
    other[0, :, 50:] = other[0, :, :, 40:] = 9.0
    other[1, :, :14] = other[1, :, :, :20] = -3.0
    one, two = method.predict(images, boxes), method.predict(other, boxes)
    assert torch.equal(one.scores, two.scores)
    assert torch.equal(one.posterior, two.posterior)


def test_an_images_labels_do_not_depend_on_its_batch(method):
    images = torch.rand(4, 3, 64, 96)
    together = method.predict(images)
    for row in range(4):
        alone = method.predict(images[row : row + 1])
        assert torch.allclose(alone.scores, together.scores[row : row + 1], atol=1e-5)
        assert torch.equal(alone.labels[0], together.labels[row])


def test_a_single_image_can_be_learned_from():
    method = build("resnet10t")
    encoder = method.network.encoder.train()
    encoder.requires_grad_(requires_grad=True)
    before = encoder.decoder.whole[1].running_mean.clone()
    encoder(torch.rand(1, 3, 64, 64)).decoded.sum().backward()
    assert torch.equal(encoder.decoder.whole[1].running_mean, before)  # one value has no spread to learn
    assert encoder.decoder.whole[0].weight.grad.isfinite().all()
    encoder(torch.rand(2, 3, 64, 64))
    assert not torch.equal(encoder.decoder.whole[1].running_mean, before)


class Images:
    """Random images of many sizes."""

    def __init__(self, sizes):
        rng = np.random.default_rng(0)
        self.names = [f"{height}x{width}" for height, width in sizes]
        self._images = [rng.integers(0, 256, (*size, 3), dtype=np.uint8) for size in sizes]
        self._masks = [rng.integers(0, 4, size, dtype=np.uint8) for size in sizes]

    def image(self, index):
        return self._images[index]

    def mask(self, index):
        return self._masks[index]


@pytest.mark.parametrize("batch_size", [1, 3])
def test_images_of_different_sizes_are_evaluated_as_if_alone(resnet, batch_size):
    sizes = [(64, 64), (60, 41), (64, 50), (33, 64), (20, 20), (64, 64)]
    split, scenario = Images(sizes), ScenarioConfig(name="2-1").build("toy", CLASSES)
    config = EvaluationConfig(batch_size=batch_size)
    seen = 0
    for batch in batches(split, scenario, scenario.steps[-1], config, DistributedContext(torch.device("cpu"))):
        together = resnet.predict(batch.images, batch.boxes)
        for row, box in enumerate(batch.boxes.long().tolist()):
            height, width = box[2:]
            index = next(
                i
                for i, size in enumerate(sizes)
                if size == (height, width) and np.array_equal(split.mask(i), batch.labels[row, :height, :width])
            )
            image = torch.from_numpy(split.image(index)).permute(2, 0, 1)[None] / 255
            alone = resnet.predict(image)
            assert torch.allclose(alone.posterior[0], together.posterior[row], atol=1e-5)
            assert torch.allclose(alone.scores[0], together.scores[row, :, :height, :width], atol=1e-5)
            assert torch.equal(alone.labels[0], together.labels[row, :height, :width])
            assert (batch.labels[row, height:] == 255).all()
            assert (batch.labels[row, :, width:] == 255).all()
            seen += 1
    assert seen == len(sizes)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("width", 0), ("posterior_width", 0), ("decoder_dropout", 1.5), ("posterior_dropout", -0.1), ("rates", (6, 0))],
)
def test_shapes_that_no_network_has_are_refused_by_name(setting, value):
    with pytest.raises(UserError, match=rf"model\.{setting}"):
        ModelConfig(**{setting: value})


def test_switching_modes_leaves_every_module_as_train_and_eval_do():
    config = ModelConfig(backbone=BackboneConfig(name="resnet10t"), width=8, posterior_width=8, rates=(1,))
    network = IPSegConfig().build(config).network
    for training in (True, False, False, True, True, False):
        network.add_step(3, 1, copy.deepcopy(network.encoder.decoder))  # what is new trains until it is told
        set_mode(network, training=training)
        assert all(module.training is training for module in network.modules())
    network.posterior.train()
    set_mode(network, training=False)
    assert not any(module.training for module in network.modules())
