"""Parts that torch.compile may fuse: only where that is wanted, whole, and once for all heads."""

from __future__ import annotations

import inspect
from functools import partial

import pytest
import torch

from ipseg.models import compiled
from ipseg.models.backbone import BackboneConfig
from ipseg.models.boxes import full_boxes
from ipseg.models.heads import Head, Trunk
from ipseg.models.network import Encoder, ModelConfig

traced = partial(torch.compile, backend="eager")  # what is traced is run as it is: a compiler of C++ may not be here


def test_a_part_is_compiled_only_within_the_block(monkeypatch):
    monkeypatch.setattr(compiled.torch, "compile", traced)
    part = compiled.compilable(lambda x: (x + 1, torch.compiler.is_compiling()))
    x = torch.ones(2)
    assert part(x)[1] is False
    with compiled.compiling(enabled=True):
        seen, compiling = part(x)
        with compiled.compiling(enabled=False):
            assert part(x)[1] is False
    assert compiling is True
    assert seen.tolist() == [2, 2]
    assert part(x)[1] is False


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet10t", "swin_tiny_patch4_window7_224"])
def test_the_encoder_is_one_graph(name):
    config = ModelConfig(backbone=BackboneConfig(name=name), width=8, rates=(1,))
    encoder, images = Encoder(config).eval(), torch.rand(3, 3, 64, 64)
    boxes = full_boxes(images)
    with torch.no_grad():
        whole = traced(inspect.unwrap(Encoder._maps), fullgraph=True)(encoder, images, boxes, 2, None)
        plain = encoder(images, boxes, decoded=2)
    pairs = zip(
        [*whole[0], *whole[1:]], [*plain.stages, plain.last, plain.mean, plain.decoded, plain.pooled], strict=True
    )
    assert all(torch.allclose(*pair, atol=1e-4) for pair in pairs)


def test_heads_of_any_number_of_classes_share_what_was_compiled():
    decoded, stages = torch.rand(2, 8, 4, 4), (torch.rand(2, 3, 16, 16), torch.rand(2, 4, 8, 8), torch.rand(2, 5, 4, 4))
    run = traced(inspect.unwrap(Trunk.forward), fullgraph=True)
    heads = [Head(Trunk((3, 4, 5), 8, 8), 8, outputs).eval() for outputs in (3, 5)]
    run(heads[0].trunk, decoded, stages)
    with torch.compiler.set_stance("fail_on_recompile"):
        features = run(heads[1].trunk, decoded, stages)
    assert torch.allclose(heads[1].classifier(features), heads[1](decoded, stages))
