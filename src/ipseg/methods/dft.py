"""DFT* (arXiv 2508.04267): fine-tuning of new classifiers alone, which all exist from the start."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ipseg.methods.base import Method, Prediction
from ipseg.methods.finetune import Finetune, FinetuneConfig
from ipseg.models.freezing import freeze, set_mode
from ipseg.models.network import ModelConfig
from ipseg.scenario import Step


@dataclass(frozen=True, kw_only=True)
class DftConfig(FinetuneConfig):
    """DFT*: a frozen network, plain cross-entropy. It must know how many classes will come."""

    name: str = "dft"
    """The method."""

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> Dft:
        """Make the method with its network."""
        return Dft(self, self.network(model, pretrained=pretrained))


class Dft(Finetune):
    """One softmax over all classes ever. After the base step only classifiers of new and future classes learn."""

    def begin_step(self, step: Step) -> None:
        """The base step makes a classifier for all of its classes, and one for each that will come."""
        Method.begin_step(self, step)
        classifiers = self.network.classifiers
        if step.index == 0:
            for outputs in (1 + len(step.new), *(1 for _ in step.future)):
                self.network.add_step(outputs)
            return
        base = len(self.network.rows()[1][0]) - 1
        learned = 1 + len(step.old) - base
        for _ in range(learned + len(step.new) - len(classifiers)):  # a class that nobody announced
            self.network.add_step(1)
        freeze(self.network.encoder)
        if self.network.trunk is not None:
            freeze(self.network.trunk)
        for classifier in classifiers[:learned]:
            freeze(classifier)

    def train_mode(self) -> None:
        """What is frozen stays in evaluation mode."""
        set_mode(self.network, training=self.step.index == 0)

    @torch.no_grad()
    def predict(self, images: Tensor, boxes: Tensor | None = None) -> Prediction:
        """Probabilities of the classes seen so far; those of future ones are left out."""
        scores = super().predict(images, boxes).scores[:, : 1 + len(self.step.seen)]
        return Prediction(scores, scores)
