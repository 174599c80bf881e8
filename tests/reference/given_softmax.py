"""A softmax network that gives stored maps and logits, to compare a method's own losses with a reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from given_network import numbered_batch, step_of
from torch import Tensor, nn

from ipseg.data.batch import StepBatch
from ipseg.methods.registry import method_config
from ipseg.models.backbone import BackboneConfig
from ipseg.models.boxes import full_boxes
from ipseg.models.features import Canvas
from ipseg.models.network import ModelConfig
from ipseg.models.softmax import SoftmaxOutput

TINY = ModelConfig(backbone=BackboneConfig(name="test_resnet"), width=8, rates=(1,))
MAPS = 5
"""The backbone's four stages and the classifiers' input."""


class GivenSoftmax(nn.Module):
    def __init__(self, maps: Sequence[Tensor], logits: Tensor, size: tuple[int, int]) -> None:
        super().__init__()
        self.maps = nn.ParameterList(each.clone() for each in maps)
        self.logits = nn.Parameter(logits.clone())
        self.size = size

    def forward(self, images: Tensor, _boxes: Tensor | None = None) -> SoftmaxOutput:
        *stages, decoded = self.maps
        return SoftmaxOutput(tuple(stages), decoded, self.logits, Canvas(full_boxes(images), self.size, self.size))


def given(v: Mapping[str, Tensor], which: str, logits: Tensor, size: tuple[int, int]) -> GivenSoftmax:
    """The `new` or the `old` network. A case with one map, the `body`, has the backbone's last stage."""
    unused = torch.zeros(len(logits), 1, 1, 1)
    maps = [v.get(f"{which}_map{i}", unused) for i in range(1, 1 + MAPS)]
    return GivenSoftmax([*maps[:3], v.get(f"{which}_body", maps[3]), maps[4]], logits, size)


def at_the_step(name: str, v: Mapping[str, Tensor], labels: Tensor, **settings: Any) -> tuple[Any, StepBatch]:
    """A method whose networks give the case's logits, and a batch with these labels."""
    method: Any = method_config({"name": name, **settings}).build(TINY, pretrained=False)
    index, size = int(v.get("step", torch.tensor(1))), (labels.shape[-2], labels.shape[-1])
    base, *later = v["classes_of_steps"].tolist()
    method.step = step_of([base - 1, *later], index)  # theirs counts the background
    if "logits_small" in v:
        method.network = given(v, "new", v["logits_small"], size)
    if index:
        method.teacher = given(v, "old", v["old_logits_small"], size)
    crops = numbered_batch(labels, torch.zeros_like(labels), len(method.step.seen))
    return method, StepBatch(crops, len(crops))


class GivenSigmoid(nn.Module):
    """Classifiers without background on given features, which numbered images choose."""

    def __init__(
        self, feature: Tensor, weight: Tensor, bias: Tensor, size: tuple[int, int], classes: Sequence[int] = ()
    ) -> None:
        super().__init__()
        self.feature, self.size, self.width = nn.Parameter(feature.clone()), size, weight.shape[1]
        classes = classes or [len(weight)]
        self.classifiers = nn.ModuleList(nn.Conv2d(self.width, count, 1) for count in classes)
        parts = zip(self.classifiers, weight.split(list(classes)), bias.split(list(classes)), strict=True)
        for classifier, rows, biases in parts:
            classifier.weight.data.copy_(rows[..., None, None])
            classifier.bias.data.copy_(biases)

    def forward(self, images: Tensor, _boxes: Tensor | None = None) -> SoftmaxOutput:
        canvas = Canvas(full_boxes(images), self.size, self.size)
        feature = self.feature[images[:, 0, 0, 0].long()]
        logits = torch.cat([classifier(feature) for classifier in self.classifiers], 1)
        return SoftmaxOutput((), feature, logits, canvas)
