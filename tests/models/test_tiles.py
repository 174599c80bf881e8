"""Tiles of a large image: with the means of the whole image and enough context, what the network says at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ipseg.methods.base import Method, Prediction
from ipseg.models import tiles as module
from ipseg.models.boxes import full_boxes, pool, pool_weights, weighted
from ipseg.models.tiles import Tiles, context_of, grid_of, spans
from ipseg.training.recipe import make_recipe

SIZE = 203, 342  # no multiple of anything


def learned(settings: dict[str, Any], method: str | dict[str, Any], backbone: str = "resnet10t") -> Method:
    """A network of three steps, whose means of the whole image count."""
    settings["method"] = {"name": method} if isinstance(method, str) else method
    settings["model"]["backbone"]["name"] = backbone
    recipe = make_recipe(settings)
    torch.manual_seed(0)
    made = recipe.method.build(recipe.model)
    for step in recipe.scenario.build("scenes", ("cow", "bus", "horse", "car")).steps:
        made.begin_step(step)
    return made


@pytest.fixture
def far(monkeypatch) -> None:
    """Both passes may see the whole image around a tile."""
    monkeypatch.setattr(module, "CONTEXT", 352)
    monkeypatch.setattr(module, "POOLING", 352)
    monkeypatch.setattr(module, "POOLED", 96)


@pytest.fixture
def image() -> Tensor:
    coarse = torch.rand(1, 3, 13, 21, generator=torch.Generator().manual_seed(0))
    return torch.nn.functional.interpolate(coarse, SIZE, mode="bilinear")


def in_tiles(method: Method, image: Tensor, side: int, context: int) -> tuple[Tensor, list[Prediction]]:
    size = (image.shape[-2], image.shape[-1])
    scores = torch.full((1, 5, *size), torch.nan)
    found = []
    tiles = Tiles(method.network.encoder, lambda rows, columns: image[..., rows, columns], size, side, context)
    for prediction, inner, place in tiles.predictions(method.predict):
        scores[..., *place] = prediction.scores[..., *inner]
        found.append(prediction)
    return scores, found


METHODS = [
    "ipseg",
    {"name": "ipseg", "gate": "exact"},
    {"name": "ipseg", "head": "small", "decoupling": False},
    "ipseg_lda",
    {"name": "ipseg_lda", "frozen_backbone": False},
    "ssul",
    "finetune",
    "plop",
]


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_with_the_whole_image_as_context_tiles_say_what_it_says_at_once(tiny_settings, image, method):
    made = learned(tiny_settings, method)
    whole = made.predict(image)
    scores, found = in_tiles(made, image, side=96, context=352)
    assert len(found) == 12
    assert torch.allclose(scores, whole.scores, atol=1e-5)
    if whole.posterior is not None:
        assert all(torch.allclose(each.posterior, whole.posterior, atol=1e-6) for each in found)
    assert made.network.encoder.tile is None
    assert torch.equal(made.predict(image).scores, whole.scores)  # nothing of the tiles stays


KINDS = ["resnet10t", "tf_efficientnet_lite0", "convnext_atto", "swin_tiny_patch4_window7_224"]


@pytest.mark.parametrize("backbone", KINDS)
def test_with_the_context_that_tiles_have_scores_of_every_kind_of_backbone_stay(tiny_settings, backbone):
    made = learned(tiny_settings, "ipseg", backbone)
    coarse = torch.rand(1, 3, 12, 100, generator=torch.Generator().manual_seed(0))
    image = torch.nn.functional.interpolate(coarse, (200, 1700), mode="bilinear")
    whole = made.predict(image)
    scores, found = in_tiles(made, image, side=448, context=context_of(made.network.encoder))
    assert len(found) >= 3
    away = (scores - whole.scores).abs()
    assert away.mean() < 1.5e-4  # noise filtering is a step: where unknown and class are equal, a score jumps
    assert (away > 0.01).float().mean() < 0.001
    assert (found[0].posterior - whole.posterior).abs().max() < 5e-4


@pytest.mark.usefixtures("far")
def test_without_the_means_of_the_whole_image_a_tile_says_something_else(tiny_settings, image):
    made = learned(tiny_settings, "ipseg")
    alone = made.predict(image[..., :96, :96])
    _, found = in_tiles(made, image, side=96, context=352)
    assert not torch.allclose(alone.posterior, found[0].posterior, atol=1e-5)


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("backbone", ["swin_tiny_patch4_window7_224", "convnext_atto"])
def test_windows_of_attention_and_other_strides_lie_as_in_the_whole_image(tiny_settings, image, backbone):
    """Swin's windows would otherwise hold other pixels than in the whole image."""
    made = learned(tiny_settings, "ipseg", backbone)
    assert grid_of(made.network.encoder) == (224 if "swin" in backbone else 32)
    assert context_of(made.network.encoder) == 2 * (32 if "swin" in backbone else 16) + 352  # rates: 1, 2
    scores, _ = in_tiles(made, image, side=96, context=352)
    assert torch.allclose(scores, made.predict(image).scores, atol=1e-5)


def test_a_step_of_a_tile_that_fails_leaves_the_encoder_as_it_was(tiny_settings, image):
    made = learned(tiny_settings, "ipseg")

    def fail(_image: Tensor) -> Prediction:
        raise MemoryError

    tiles = Tiles(made.network.encoder, lambda rows, columns: image[..., rows, columns], SIZE, 96, 64)
    with pytest.raises(MemoryError):
        next(tiles.predictions(fail))
    assert made.network.encoder.tile is None


@pytest.mark.parametrize("length", [1, 31, 32, 33, 500, 1344, 1345, 12000])
@pytest.mark.parametrize(("side", "grid"), [(1344, 32), (96, 32), (448, 224)])
def test_tiles_cover_an_axis_once_and_begin_on_the_grid(length, side, grid):
    cut = spans(length, side, 100, grid)
    assert [pixel for span in cut for pixel in range(span.start, span.end)] == list(range(length))
    assert all(span.start % grid == span.first % grid == 0 for span in cut)
    assert all(span.first <= span.start < span.end <= span.last for span in cut)
    assert max(span.end - span.start for span in cut) < side + grid
    assert all(span.last - span.end >= min(100, length - span.end) for span in cut)


@pytest.mark.parametrize("bins", [1, 2])
def test_pools_of_the_parts_of_a_map_add_up_to_the_pool_of_the_whole(bins):
    features, canvas = torch.rand(2, 3, 9, 13), (144, 208)
    boxes = full_boxes(torch.empty(2, 3, 141, 200))
    rows, columns = pool_weights(boxes, canvas, features.shape[-2:], bins)
    halves: list[Callable[[Tensor], Tensor]] = [lambda x: x[..., :5], lambda x: x[..., 5:]]
    parts = [weighted(half(features), rows, half(columns)) for half in halves]
    assert torch.allclose(sum(parts), pool(features, boxes, canvas, bins), atol=1e-6)
