"""What a method is: the one small contract between how a network learns and what runs the learning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from ipseg.data.batch import BatchPlan, StepBatch
from ipseg.model.network import ModelConfig
from ipseg.scenario.split import Step


@dataclass(frozen=True)
class Prediction:
    """What a model says about a batch of pictures. Index 0 is background, then the classes in the order of learning."""

    scores: Tensor
    """(B, 1 + C, H, W): the final scores; the label is where they are highest."""
    pixel: Tensor
    """The same without the image posterior."""
    posterior: Tensor | None = None
    """(B, C) probabilities that the class is in the picture."""
    unknown: Tensor | None = None
    """(B, H, W) probability of an object of no known class (c'_u)."""

    @property
    def labels(self) -> Tensor:
        """(B, H, W) learned indices."""
        return self.scores.argmax(1)


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters that learn at the same rate, a multiple of the recipe's."""

    parameters: list[nn.Parameter]
    factor: float


class Method(Protocol):
    """How a network learns, step after step."""

    network: nn.Module

    def begin_step(self, step: Step) -> None:
        """Grow for the step's classes, freeze what must not change, keep what the previous model is needed for."""
        ...

    def parameter_groups(self) -> list[ParameterGroup]:
        """What the optimiser moves in this step."""
        ...

    def plan(self, batch_size: int, memory: int) -> BatchPlan:
        """How a batch is made up, given the number of remembered pictures."""
        ...

    def loss(self, batch: StepBatch) -> Mapping[str, Tensor]:
        """The weighted parts of the loss; their sum is minimised."""
        ...

    def predict(self, images: Tensor, boxes: Tensor | None = None) -> Prediction:
        """What the model says now, in evaluation mode, without gradient."""
        ...

    def train_mode(self) -> None:
        """Put the network into the state it trains in (what is frozen stays in evaluation mode)."""
        ...

    def image_classes(self, labels: Tensor) -> Tensor:
        """(B, C) bool: which seen classes a picture with these labels, (B, H, W), holds. Memory stores them."""
        ...


class MethodConfig(Protocol):
    """What a method's settings must offer."""

    name: str

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> Method:
        """Make the method with its network."""
        ...

    def oracle(self) -> Iterable[str]:
        """Settings that see labels a step must not see; stamped into results."""
        ...
