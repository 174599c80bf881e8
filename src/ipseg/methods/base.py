"""What a method is: the one small contract between how a network learns and what runs the learning.

A step of a run calls a method in this order:

    begin_step(step)        grow, freeze, keep what the previous model is needed for
    prepare(batches)        optional: look at the step's pictures before anything moves, build what the step alone needs
    loss(batch)             over and over, with parameter_groups, plan and train_mode around it
    end_step(batches)       optional: change the trained network once more, look at the pictures again, tidy up
    predict(images)         until the next step begins, and ever after

State. A run may be killed at any moment and must end with the same bits. What a method has learned lies in `network`,
as parameters or buffers: they are saved after `end_step`, and during a step in checkpoints. Everything else is made
anew when a run goes on: `begin_step` sees the network as the step before left it, and `prepare` the same batches, also
when a checkpoint in the midst of the step is about to be loaded. So a copy of the previous model, thresholds or
prototypes of the step need not be saved, as long as only these two make them.

Layers. A model is read from disk by `begin_step` of every step that it has learned and nothing else; then its weights
are loaded over whatever values these left. So `begin_step` builds what the step leaves: buffers and layers begin to
exist there, or cease to. What exists only while the step learns (a second branch beside a layer) is built by `prepare`,
on the network's device, and taken away by `end_step`: the optimiser is made, and a checkpoint read, after `prepare`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from ipseg.data.batch import BatchPlan, StepBatch
from ipseg.data.memory import MemLabels
from ipseg.model.network import ModelConfig
from ipseg.scenario.split import Step

NO_STEP = Step(-1, (), (), ())
"""Where a method stands before the first."""


@dataclass(frozen=True)
class Prediction:
    """What a model says about a batch of pictures. Index 0 is background, then the classes in the order of learning."""

    scores: Tensor
    """(B, 1 + C, H, W): the final scores; the label is where they are highest."""
    pixel: Tensor | None
    """The same without the image posterior; none where not every head ran."""
    posterior: Tensor | None = None
    """(B, C) probabilities that the class is in the picture."""
    unknown: Tensor | None = None
    """(B, H, W) probability of an object of no known class (c'_u)."""
    heads_run: float | None = None
    """The share of heads that ran, where a gate decides."""

    @property
    def labels(self) -> Tensor:
        """(B, H, W) learned indices."""
        return self.scores.max(1).indices  # on the CPU several times faster than argmax


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

    def pseudo_labels(self, images: Tensor) -> Tensor:
        """(B, H, W): learned indices of the classes that the method takes to be there; memory stores which."""
        ...

    def image_classes(self, labels: Tensor) -> Tensor:
        """(B, C) bool: which seen classes a picture with these labels, (B, H, W), holds. Memory stores them."""
        ...


@runtime_checkable
class Prepares(Protocol):
    """A method that looks at the step's pictures before it learns from them (PLOP's medians), or rebuilds layers."""

    def prepare(self, batches: Iterable[StepBatch]) -> None:
        """`batches` show every picture of the step, laid as in training. They are made when they are asked for."""
        ...


@runtime_checkable
class EndsStep(Protocol):
    """A method that finishes a step after the last iteration: fused weights, merged branches, prototypes."""

    def end_step(self, batches: Iterable[StepBatch]) -> None:
        """Change the network for good; its weights are saved afterwards.

        `batches` show every picture of the step once, whole, as `inputs`. One process may have one more than another.
        """
        ...


def prepare(method: Method, batches: Iterable[StepBatch]) -> None:
    """Let the method look at the step's pictures, if it wants to."""
    if isinstance(method, Prepares):
        method.prepare(batches)


def end_step(method: Method, batches: Iterable[StepBatch]) -> None:
    """Let the method finish the step, if it has something to finish."""
    if isinstance(method, EndsStep):
        method.end_step(batches)


class MethodConfig(Protocol):
    """What a method's settings must offer.

    One that replays pictures with pixel labels also has `replayed_labels`, which says what these hold; memory keeps
    and shows no annotation otherwise. For one whose `replays` is false nothing is stored. `needs` says which settings
    count only together with others (engine/idle.py). One that cannot learn from every data set has
    `require_data(data)`, which raises before anything starts.
    """

    name: str

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> Method:
        """Make the method with its network."""
        ...

    def oracle(self) -> Iterable[str]:
        """Settings that see labels a step must not see; stamped into results."""
        ...


def replays(config: MethodConfig) -> bool:
    """Whether the method reads the memory; without a word from it, yes."""
    return bool(getattr(config, "replays", True))


def replayed_labels(config: MethodConfig) -> MemLabels | None:
    """What the labels of stored pictures hold for this method; none without a word from it."""
    wanted: MemLabels | None = getattr(config, "replayed_labels", None)
    return wanted
