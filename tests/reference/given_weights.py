"""Stored weights of the authors' modules, put into ours."""

from __future__ import annotations

import torch
from torch import nn

from ipseg.models.decoder import Aspp
from ipseg.models.heads import Head, SmallTrunk, Trunk
from ipseg.models.posterior import Posterior

Weights = dict[str, torch.Tensor]
SIZE = (32, 32)
"""Of the images that the stored stages would be of; it does not matter here: nothing is padded."""


def full_boxes(stage: torch.Tensor) -> torch.Tensor:
    return torch.tensor([0.0, 0.0, *SIZE]).expand(len(stage), 4)


@torch.no_grad()
def fill_conv_and_norm(block: nn.Module, v: Weights, conv: str, norm: str) -> None:
    """A bias before batch normalization, which ours lacks, goes into the running mean."""
    convolution, normalization = list(block.children())[:2]
    convolution.weight.copy_(v[f"w:{conv}.weight"])
    for part in ("weight", "bias", "running_mean", "running_var"):
        getattr(normalization, part).copy_(v[f"w:{norm}.{part}"])
    if f"w:{conv}.bias" in v:
        normalization.running_mean.sub_(v[f"w:{conv}.bias"])


@torch.no_grad()
def fill_classifier(head: Head, v: Weights, name: str) -> None:
    for part in ("weight", "bias"):
        getattr(head.classifier, part).copy_(v[f"w:{name}.{part}"])


def aspp_of(v: Weights, inputs: int = 8, width: int = 6) -> Aspp:
    aspp = Aspp(inputs, width, (1, 2, 3), 0.1)
    for i in range(4):
        fill_conv_and_norm(aspp.views[i], v, f"aspp.convs.{i}.0", f"aspp.convs.{i}.1")
    fill_conv_and_norm(aspp.whole, v, "aspp.convs.4.1", "aspp.convs.4.2")
    fill_conv_and_norm(aspp.project[0], v, "aspp.project.0", "aspp.project.1")
    return aspp.eval()


def large_heads(v: Weights) -> list[Head]:
    """IPSeg's: the permanent branch and a head a step."""
    heads: list[Head] = []
    while f"w:mining_head1.{len(heads)}.0.weight" in v:
        i = len(heads)
        head = Head(Trunk((3, 5, 6), 6, 6), 6, len(v[f"w:mining_head3.{i}.3.bias"])).eval()
        for k, block in enumerate(head.trunk.blocks, start=1):
            fill_conv_and_norm(block, v, f"mining_head{k}.{i}.0", f"mining_head{k}.{i}.1")
        fill_classifier(head, v, f"mining_head3.{i}.3")
        heads.append(head)
    return heads


def small_heads(v: Weights) -> list[Head]:
    """SSUL's: unknown, background and a head a step."""
    heads: list[Head] = []
    while f"w:head.{len(heads)}.0.weight" in v:
        i = len(heads)
        head = Head(SmallTrunk(6, 6), 6, len(v[f"w:head.{i}.3.bias"])).eval()
        fill_conv_and_norm(head.trunk.block, v, f"head.{i}.0", f"head.{i}.1")
        fill_classifier(head, v, f"head.{i}.3")
        heads.append(head)
    return heads


@torch.no_grad()
def posterior_of(v: Weights, width: int = 32) -> Posterior:
    posterior = Posterior(v["w:fc.0.weight"].shape[1] // 4, width, 0.5)
    steps = sum(key.endswith(".0.bias") and key.startswith("w:scale_head.") for key in v)
    for i in range(steps):
        posterior.add_step(len(v[f"w:scale_head.{i}.0.bias"]))
    layers = {f"fc.{i}": posterior.shared[i] for i in (0, 3)}
    layers |= {f"scale_head.{i}.0": classifier for i, classifier in enumerate(posterior.classifiers)}
    for name, layer in layers.items():
        for part in ("weight", "bias"):
            getattr(layer, part).copy_(v[f"w:{name}.{part}"])
    return posterior.eval()
