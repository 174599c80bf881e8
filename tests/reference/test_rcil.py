"""RCIL beside the numbers of its authors' code (vectors/README.md)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from given_network import assert_close, load_cases, step_of
from given_softmax import TINY
from torch import Tensor, nn

from ipseg.errors import UserError
from ipseg.methods.rcil import TwoBranches, merged
from ipseg.methods.registry import method_config
from ipseg.models.backbone import BackboneConfig
from ipseg.models.boxes import full_boxes
from ipseg.models.decoder import Norm
from ipseg.models.features import Canvas
from ipseg.models.network import ModelConfig
from ipseg.models.softmax import SoftmaxOutput

Case = dict[str, Tensor]


def norm_of(v: Case, branch: int) -> Norm:
    """Theirs scales by |gamma| + eps, and the first branch has a bias before it."""
    norm = Norm(len(v[f"gamma{branch}"]), eps=float(v[f"eps{branch}"]))
    given = v[f"gamma{branch}"].abs() + v[f"eps{branch}"], v[f"beta{branch}"]
    mean = v[f"mean{branch}"] - (v["bias1"] if branch == 1 else 0)
    for target, value in zip(
        (norm.weight, norm.bias, norm.running_mean, norm.running_var), (*given, mean, v[f"var{branch}"]), strict=True
    ):
        target.data.copy_(value)
    return norm.eval()


@pytest.mark.parametrize("v", load_cases("rcil_merge"))
def test_two_branches_become_one_convolution_as_the_authors(v):
    norms = [norm_of(v, branch) for branch in (1, 2)]
    weight, bias = merged((v["weight1"], v["weight2"]), norms)
    assert_close(weight, v["out_weight"])
    assert_close(bias, v["out_bias"])
    convolution = nn.Conv2d(*v["weight1"].shape[1::-1], 3, padding=1, bias=False)
    layer = TwoBranches(convolution, norms[0]).eval()
    for target, value in ((layer.weight, v["weight1"]), (layer.second, v["weight2"])):
        target.data.copy_(value)
    layer.norms = nn.ModuleList(norms)
    assert_close(layer(v["x"]), v["out_two_branch_x"])
    layer.merge()
    layer.second.data.copy_(layer.weight)
    layer.norms[1].load_state_dict(layer.norms[0].state_dict())
    layer.norms[1].eps = layer.norms[0].eps
    assert_close(layer(v["x"]), v["out_merged_x"])


@pytest.mark.parametrize("v", load_cases("rcil_distillation"))
@pytest.mark.parametrize("part", ["spatial", "channel"])
def test_distances_of_pooled_maps_are_the_authors(v, part, monkeypatch):
    settings = {"pooled": 5e-6, "pooled_last": 5e-7} if v["ade"] else {}
    method: Any = method_config({"name": "rcil", **settings}).build(TINY, pretrained=False)
    other = {"spatial": "channel", "channel": "spatial"}[part]
    monkeypatch.setattr(f"ipseg.methods.rcil.{other}_distance", lambda apart: apart.sum() * 0)
    method.step = step_of([int(v["n_old"]) - 1, int(v["n_new"])], 1)
    size = (64, 64)
    canvas = Canvas(full_boxes(torch.zeros(2, 3, *size)), size, size)
    old = [v[f"old{i}"] for i in range(6)]
    new = [v[f"new{i}"].clone().requires_grad_() for i in range(6)]
    outputs = [SoftmaxOutput(tuple(maps[:4]), maps[4], maps[5], canvas) for maps in (new, old)]
    found = method.pooled(*outputs, canvas.boxes)
    assert_close(found, v[f"out_{part}"])
    found.backward()
    for key in [key for key in v if key.startswith(f"out_grad_{part}")]:
        assert_close(new[int(key[-1])].grad, v[key])


def test_a_backbone_without_such_convolutions_is_refused():
    swin = ModelConfig(backbone=BackboneConfig(name="swin_tiny_patch4_window7_224"), width=8, rates=(1,))
    with pytest.raises(UserError, match=r"3x3 convolutions.*swin_tiny.*resnet101"):
        method_config({"name": "rcil"}).build(swin, pretrained=False)


def test_channels_are_drawn_from_either_branch_or_both_and_in_evaluation_both_count():
    method: Any = method_config({"name": "rcil"}).build(TINY, pretrained=False)
    method.begin_step(step_of([2, 1], 0))
    method.train_mode()
    torch.manual_seed(0)
    method.draw_shares()
    shares = torch.cat([layer.shares for layer in method.branches()], dim=1)
    assert (shares.sum(0) == 2).all()
    assert set(shares.unique().tolist()) == {0, 1, 2}
    layer = next(method.branches())
    with torch.no_grad():
        layer.second.add_(torch.randn_like(layer.second))
    x = torch.rand(2, layer.in_channels, 8, 8)
    both = [
        norm(F.conv2d(x, weight, None, layer.stride, layer.padding, layer.dilation, layer.groups))
        for norm, weight in zip(layer.eval().norms, (layer.weight, layer.second), strict=True)
    ]
    assert torch.allclose(layer(x), sum(both) / 2, atol=1e-6)
