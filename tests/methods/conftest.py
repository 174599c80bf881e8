"""A method on a small network, and batches made by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ipseg.data.batch import Batch, StepBatch
from ipseg.methods.registry import method_config
from ipseg.models.backbone import BackboneConfig
from ipseg.models.network import ModelConfig
from ipseg.models.posterior import Posterior
from ipseg.scenario import Scenario, ScenarioConfig

MODEL = ModelConfig(
    backbone=BackboneConfig(name="resnet10t"), width=8, posterior_width=16, rates=(1, 2), posterior_dropout=0.0
)
CLASSES = ("cat", "cow", "dog", "emu")


@pytest.fixture
def scenario() -> Scenario:
    """cat and cow, then dog, then emu."""
    return ScenarioConfig(name="2-1").build("toy", CLASSES)


@pytest.fixture
def make_method(scenario: Scenario) -> Callable[..., Any]:
    """IPSeg or SSUL at a step, as if it had learned something: its scores differ from pixel to pixel, from 0 to 1."""

    def make(step: int = 1, seed: int = 0, name: str = "ipseg", **settings: Any) -> Any:
        torch.manual_seed(seed)
        method = method_config({"name": name, **settings}).build(MODEL)
        for each in scenario.steps[: step + 1]:
            if each.index == step:
                _spread(method)
            method.begin_step(each)
        return method

    return make


@torch.no_grad()
def _spread(method: Any) -> None:
    """Scale every classifier so that it says yes here and no there, as trained ones do: logits around 0 +- 1.5."""
    network = method.network.eval()
    features = network.encoder(random_images(torch.Generator().manual_seed(99), 8, 64))
    heads = [*network.persistent_heads(), *network.temporary]
    classifiers = [(head.classifier, head(features.decoded, features.stages)) for head in heads]
    if isinstance(network.posterior, Posterior):
        shared = network.posterior.shared(features.pooled)
        classifiers += [(classifier, classifier(shared)) for classifier in network.posterior.classifiers]
    for classifier, logits in classifiers:
        each = logits.transpose(0, 1).flatten(1)
        factor = 1.5 / each.std(1)
        classifier.bias.copy_((classifier.bias - each.mean(1)) * factor)
        classifier.weight.mul_(factor.view(-1, *[1] * (classifier.weight.ndim - 1)))


def random_images(generator: torch.Generator, count: int, size: int) -> torch.Tensor:
    """Colored clouds."""
    coarse = torch.rand(count, 3, 4, 4, generator=generator)
    return torch.nn.functional.interpolate(coarse, (size, size), mode="bilinear")


def make_batch(labels: list[int], seed: int = 0, count: int = 2, size: int = 64, classes: int = 3) -> Batch:
    """Random images; their pixels have these labels at random, a tenth of them ignored, half of them salient."""
    generator = torch.Generator().manual_seed(seed)
    shape = (count, size, size)
    chosen = torch.tensor(labels)[torch.randint(0, len(labels), shape, generator=generator)]
    return Batch(
        images=random_images(generator, count, size),
        boxes=torch.tensor([0.0, 0.0, size, size]).expand(count, 4),
        labels=chosen.masked_fill(torch.rand(shape, generator=generator) < 0.1, 255),
        salient=torch.rand(shape, generator=generator) < 0.5,
        stored=torch.zeros(count, classes, dtype=torch.bool),
    )


@pytest.fixture
def batch() -> StepBatch:
    """Step 1's: dog (learned index 3) among background."""
    return StepBatch(make_batch([0, 3]), num_new=2, num_posterior=2)


@pytest.fixture
def hand_made() -> Callable[..., Batch]:
    """Batches of other labels, sizes and seeds."""
    return make_batch
