"""BAM beside the numbers of its authors' code (vectors/README.md)."""

from __future__ import annotations

import pytest
import torch
from given_network import assert_close, load_cases, numbered_batch, step_of
from given_softmax import TINY
from torch import Tensor, nn

from ipseg.data.batch import StepBatch
from ipseg.methods.bam import BamOutput, joined_logits
from ipseg.methods.registry import method_config
from ipseg.models.boxes import full_boxes
from ipseg.models.features import Canvas

BACKGROUND, LOSSES = load_cases("bam_background"), load_cases("bam_losses")


def listed(v: dict[str, Tensor], stem: str) -> list[Tensor]:
    return [v[f"{stem}{i}"].clone() for i in range(sum(key.startswith(stem) for key in v))]


class GivenBam(nn.Module):
    def __init__(self, trunks: list[Tensor], heads: list[Tensor], size: tuple[int, int]) -> None:
        super().__init__()
        self.trunks, self.heads, self.size = nn.ParameterList(trunks), nn.ParameterList(heads), size

    def forward(self, images: Tensor, _boxes: Tensor | None = None) -> BamOutput:
        return BamOutput(tuple(self.trunks), tuple(self.heads), Canvas(full_boxes(images), self.size, self.size))


@pytest.mark.parametrize("v", BACKGROUND)
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_residuals_lower_the_background_s_logit_and_only_the_newest_learns(v, mode):
    heads = [head.requires_grad_() for head in listed(v, "head")]
    logits = joined_logits(heads, training=mode == "train")
    assert_close(logits, v[f"out_logits_{mode}"])
    logits[:, 0].sum().backward()
    gradients = [torch.zeros_like(head[:, 0]) if head.grad is None else head.grad[:, 0] for head in heads]
    assert_close(torch.stack(gradients), v[f"out_bg_gradient_{mode}"])


@pytest.mark.parametrize("v", LOSSES)
def test_losses_and_gradients_of_one_iteration_are_the_authors(v):
    config = method_config({"name": "bam"})
    weights = [config.residual, config.trunks, config.distillation, config.residual_bce]
    assert weights == v["weights"].tolist()
    method = config.build(TINY, pretrained=False)
    old, size = listed(v, "old_head"), tuple(v["label"].shape[-2:])
    method.step = step_of([head.shape[1] - 1 for head in listed(v, "new_head")], len(old))
    method.network = GivenBam(listed(v, "new_trunk"), listed(v, "new_head"), size)
    method.teacher = GivenBam(listed(v, "old_trunk"), old, size)
    crops = numbered_batch(v["label"], torch.zeros_like(v["label"]), len(method.step.seen))
    parts = method.loss(StepBatch(crops, len(crops)))
    raised, lowered, trunks, heads = (
        v[f"out_{name}"] for name in ("background_triplet", "background_ce", "trunk", "head_kd")
    )
    theirs = {
        "segmentation": v["out_bce"],
        "residual": 5 * raised + lowered,
        "trunks": 4 * trunks,
        "distillation": heads,
    }
    assert parts.keys() == theirs.keys()
    for name, value in theirs.items():
        assert_close(parts[name], value)
    sum(parts.values()).backward()
    for stem, given in (("head", method.network.heads), ("trunk", method.network.trunks)):
        for i, each in enumerate(given):
            theirs_grad = v[f"out_grad_{stem}{i}"]
            assert_close(torch.zeros_like(each) if each.grad is None else each.grad, theirs_grad)
