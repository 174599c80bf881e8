"""A new head starts where unknown objects already are."""

from __future__ import annotations

import pytest
import torch

from ipseg.methods.ipseg import IPSegConfig
from ipseg.models.backbone import BackboneConfig
from ipseg.models.heads import Head, SmallTrunk, Trunk
from ipseg.models.network import ModelConfig
from ipseg.models.resize import resize, resize_by_products
from ipseg.scenario import ScenarioConfig

STAGES = (torch.rand(2, 4, 16, 24), torch.rand(2, 5, 8, 12), torch.rand(2, 6, 4, 6))
DECODED = torch.rand(2, 7, 2, 3)


def head(outputs: int) -> Head:
    return Head(Trunk((4, 5, 6), inputs=7, width=8), width=8, outputs=outputs).eval()


def test_a_head_answers_at_the_resolution_of_the_first_stage():
    assert head(3)(DECODED, STAGES).shape == (2, 3, 16, 24)


def test_the_small_head_answers_at_the_resolution_of_the_decoder_and_looks_at_nothing_else():
    small = Head(SmallTrunk(inputs=7, width=8), width=8, outputs=3).eval()
    assert small(DECODED, STAGES).shape == (2, 3, 2, 3)
    assert torch.equal(small(DECODED, STAGES), small(DECODED, ()))
    shapes = [tuple(parameter.shape) for parameter in small.parameters()]
    assert shapes == [(8, 7, 3, 3), (8,), (8,), (3, 8, 1, 1), (3,)]  # convolution, normalization, classifier


def test_start_from_copies_the_trunk_and_the_named_rows():
    permanent, new = head(2), head(4)
    with torch.no_grad():
        for name, buffer in permanent.trunk.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                buffer.uniform_(0.5, 2)
    new.init_from(permanent, [0, 1, 0, 0])
    ours, theirs = new.trunk.state_dict(), permanent.trunk.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    before, after = permanent(DECODED, STAGES), new(DECODED, STAGES)
    assert torch.allclose(after, before[:, [0, 1, 0, 0]], atol=1e-6)


def test_the_copy_goes_its_own_way():
    permanent, new = head(2), head(3)
    new.init_from(permanent, [0, 1, 0])
    kept = [parameter.clone() for parameter in permanent.parameters()]
    with torch.no_grad():
        for parameter in new.parameters():
            parameter.add_(1)
    assert all(torch.equal(a, b) for a, b in zip(kept, permanent.parameters(), strict=True))


@pytest.mark.parametrize("decoupling", [True, False])
def test_a_new_heads_classes_are_scored_as_unknown_at_first(decoupling):
    torch.manual_seed(0)
    model = ModelConfig(backbone=BackboneConfig(name="resnet10t"), width=8, posterior_width=16, rates=(1,))
    method = IPSegConfig(decoupling=decoupling).build(model)
    for step in ScenarioConfig(name="1-2").build("toy", ["cat", "cow", "dog"]).steps:
        method.begin_step(step)
    network = method.network.eval()
    with torch.no_grad():
        features = network.encoder(torch.rand(1, 3, 64, 64))
        permanent = network.permanent(features.decoded, features.stages)
        new = network.temporary[-1](features.decoded, features.stages)
    unknown, background = permanent[:, :1], permanent[:, 1:]
    expected = [unknown, background, unknown, unknown] if decoupling else [unknown, unknown]
    assert torch.allclose(new, torch.cat(expected, 1), atol=1e-6)


def test_resize_returns_the_map_itself_where_the_size_is_right():
    x = torch.rand(1, 2, 5, 5)
    assert resize(x, (5, 5)) is x
    assert torch.allclose(resize(torch.ones(1, 1, 3, 4), (7, 9)), torch.ones(1, 1, 7, 9))


@pytest.mark.parametrize("size", [(8, 12), (7, 5), (4, 6), (2, 3), (16, 6)])
def test_resizing_by_products_is_bilinear_resizing(size):
    x = torch.rand(2, 3, 4, 6).contiguous(memory_format=torch.channels_last).requires_grad_()
    y = x.detach().clone().requires_grad_()
    products, plain = resize_by_products(x, size), resize(y, size)
    assert torch.allclose(products, plain, atol=1e-6)
    grad = torch.rand_like(plain)
    products.backward(grad)
    plain.backward(grad)
    assert torch.allclose(x.grad, y.grad, atol=1e-6)
    assert products.is_contiguous(memory_format=torch.channels_last)
