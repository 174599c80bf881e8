"""IPSeg's and SSUL's networks beside the authors': decoder, heads, posterior, initial weights and new heads."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from given_network import assert_close, load, names
from given_weights import SIZE, aspp_of, full_boxes, large_heads, posterior_of, small_heads

from ipseg.methods.ipseg import IPSegConfig
from ipseg.methods.registry import method_config
from ipseg.models.backbone import BackboneConfig
from ipseg.models.boxes import pool
from ipseg.models.heads import Head, SmallTrunk
from ipseg.models.network import ModelConfig
from ipseg.models.posterior import pool_parts
from ipseg.scenario import Step


@pytest.mark.parametrize("name", names("ipseg_network_"))
@torch.no_grad()
def test_decoder_heads_and_posterior_give_the_authors_outputs(name):
    v = load(name)
    stages = [v[f"stage{i}"] for i in (1, 2, 3, 4)]
    boxes = full_boxes(stages[3])
    decoded = aspp_of(v)(stages[3], pool(stages[3], boxes, SIZE, 1))
    permanent, *temporary = [head(decoded, stages[:3]) for head in large_heads(v)]
    assert len(temporary) == len(v["num_classes"]) - 2
    classes = torch.cat([logits[:, 2:] for logits in temporary], 1)
    assert_close(torch.cat([permanent, classes], 1), v["global_output"])
    assert_close(temporary[-1][:, :2], v["current_own"])
    assert bool(v["current_classes_equal"])  # both of their outputs have the same class channels, as ours
    assert_close(posterior_of(v)(pool_parts(stages[3], boxes, SIZE)), v["posterior"])


@pytest.mark.parametrize("name", names("ipseg_posterior_"))
@torch.no_grad()
def test_on_an_odd_map_the_middle_cells_count_in_both_halves(name):
    v = load(name)
    pooled = pool_parts(v["last_stage"], full_boxes(v["last_stage"]), SIZE)
    assert_close(pooled, v["pooled"])
    assert_close(posterior_of(v)(pooled), v["posterior"])


@pytest.mark.parametrize("name", names("ssul_network_"))
@torch.no_grad()
def test_ssuls_decoder_and_heads_give_the_authors_outputs(name):
    v = load(name)
    last = v["last_stage"]
    decoded = aspp_of(v)(last, pool(last, full_boxes(last), SIZE, 1))
    assert_close(torch.cat([head(decoded, ()) for head in small_heads(v)], 1), v["output"])


@pytest.mark.parametrize("name", names("ipseg_initial_values"))
@torch.no_grad()
def test_initial_weights_have_the_spread_of_the_authors(name):
    """Of random draws, so within five percent; torch's own have 0.41 times this spread."""
    v = load(name)
    torch.manual_seed(0)
    model = ModelConfig(backbone=BackboneConfig(name="resnet10t"), width=64, posterior_width=256)
    network: Any = IPSegConfig(variant="official").build(model).network
    head = network.add_step(64, 64)
    posterior = network.posterior
    layers = {
        "fc": posterior.shared[3],
        "scale_head": posterior.classifiers[0],
        "conv": head.trunk.blocks[0][0],
        "classifier": head.classifier,
    }
    for layer, module in layers.items():
        spread = module.weight.std() * math.sqrt(module.weight[0].numel())
        assert float(spread) == pytest.approx(float(v[layer]), rel=0.05), layer
    assert posterior.shared[3].bias.abs().max() == v["linear_bias"] == 0


def given_classifier(v: dict[str, torch.Tensor], prefix: str) -> Head:
    weight, bias = v[f"{prefix}_weight"], v[f"{prefix}_bias"]
    head = Head(SmallTrunk(4, 5), 5, len(bias))
    with torch.no_grad():
        head.classifier.weight.copy_(weight[..., None, None])
        head.classifier.bias.copy_(bias)
    return head


@pytest.mark.parametrize("name", names("ipseg_new_head_"))
def test_a_new_head_begins_as_the_permanent_branch_but_in_the_rows_that_the_authors_loop_misses(name):
    """Their loop over class rows ends two rows early (a slip): these keep what was drawn. Here all are copied."""
    v = load(name)
    permanent, new = given_classifier(v, "permanent"), given_classifier(v, "drawn")
    classes = len(v["new_bias"]) - 2
    new.init_from(permanent, rows_of_a_new_head("ipseg", classes))
    weight, bias = new.classifier.weight[..., 0, 0], new.classifier.bias
    missed = min(2, classes)
    kept = slice(0, len(bias) - missed)
    assert torch.equal(weight[kept], v["new_weight"][kept])
    assert torch.equal(bias[kept], v["new_bias"][kept])
    assert torch.equal(v["new_weight"][-missed:], v["drawn_weight"][-missed:])
    assert torch.equal(weight[-missed:], v["permanent_weight"][:1].expand(missed, -1))
    assert_same_trunk(v, new, permanent)


@pytest.mark.parametrize("name", names("ssul_new_head_"))
def test_ssuls_new_head_begins_as_the_unknown_classes(name):
    v = load(name)
    unknown = given_classifier(v, "unknown")
    classes = len(v["new_bias"])
    new = Head(SmallTrunk(4, 5), 5, classes)
    new.init_from(unknown, rows_of_a_new_head("ssul", classes))
    assert torch.equal(new.classifier.weight[..., 0, 0], v["new_weight"])
    assert torch.equal(new.classifier.bias, v["new_bias"])
    assert_same_trunk(v, new, unknown)


def assert_same_trunk(v: dict[str, torch.Tensor], one: Head, other: Head) -> None:
    same = all(map(torch.equal, one.trunk.state_dict().values(), other.trunk.state_dict().values()))
    assert same == bool(v["trunk_copied"])


def rows_of_a_new_head(method: str, classes: int) -> list[int]:
    """Of which rows of the permanent branch the method makes a step's head."""
    model = ModelConfig(backbone=BackboneConfig(name="resnet10t"), width=4, posterior_width=8, rates=(1,))
    made = method_config({"name": method}).build(model, pretrained=False)
    old = ("a",)
    new = tuple(f"b{i}" for i in range(classes))
    made.begin_step(Step(0, old, (), new))
    made.begin_step(Step(1, new, old, ()))
    rows = made.network.temporary[-1].classifier.weight.flatten(1)
    source = made.network.permanent.classifier.weight.flatten(1)
    return [int((source == row).all(1).nonzero()) for row in rows]
