"""The contract between a method and the training loop: `Method`, and its settings, `MethodConfig`.

A step of a run calls a method in this order:

    begin_step(step)     add heads, freeze, copy the teacher
    prepare(batches)     see the step's images before the first update, build what the step alone needs
    loss(batch)          over and over, with parameter_groups, plan and train_mode around it
    end_step(batches)    change the trained network once more, see the images again, clean up
    predict(images)      until the next step begins, and ever after

State. A run may be killed at any moment and must end with the same bits. What a method has learned lies in `network`,
as parameters or buffers: they are saved after `end_step`, and during a step in checkpoints. Everything else is made
anew when a run resumes: `begin_step` sees the network as the step before left it, and `prepare` the same batches, also
when a checkpoint from the middle of the step is about to be loaded. So the teacher, thresholds or prototypes of the
step need not be saved, as long as only these two make them.

Layers. A model is read from disk by `begin_step` of every step that it has learned and nothing else; then its weights
are loaded over whatever values these left. So `begin_step` builds what the step leaves: buffers and layers begin to
exist there, or cease to. What exists only while the step trains (a second branch beside a layer) is built by `prepare`,
on the network's device, and removed by `end_step`: the optimizer is made, and a checkpoint read, after `prepare`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from ipseg.config import scopes
from ipseg.data.batch import Batch, BatchPlan, StepBatch
from ipseg.data.dataset import DataConfig
from ipseg.data.memory import MemLabels
from ipseg.methods.labels import classes_present
from ipseg.models.cuda_graphs import Recorder
from ipseg.models.freezing import set_mode, trainable
from ipseg.models.network import ModelConfig
from ipseg.scenario import Step


@dataclass(frozen=True)
class Prediction:
    """Model outputs for a batch. Index 0 is background, then the classes in the order of learning."""

    scores: Tensor
    """(B, 1 + C, H, W): the final scores; the label is where they are highest."""
    pixel: Tensor | None
    """The same without the image posterior; none where not every head ran."""
    posterior: Tensor | None = None
    """(B, C) probabilities that the class is in the image."""
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
    """Parameters sharing a learning-rate multiplier."""

    parameters: list[nn.Parameter]
    factor: float


class Method(ABC):
    """A class-incremental method. `loss` and `predict` are its own; the rest has defaults."""

    network: nn.Module
    step: Step
    """The running step, or the last one; set by `begin_step`."""
    recorder: Recorder | None = None
    """Set while `evaluation.graphs` is on: `predict` calls parts of the network with models/cuda_graphs.py `run`."""

    def begin_step(self, step: Step) -> None:
        """Add heads for the step's classes, freeze, copy the teacher."""
        self.step = step

    def prepare(self, batches: Iterable[StepBatch]) -> None:  # noqa: B027 (does nothing by default)
        """See the step's images before the first iteration (PLOP's medians), or rebuild layers.

        `batches` show every image of the step, augmented as in training. They are made when they are asked for. To go
        through them again is another pass, with other crops. In several processes each sees its share.
        """

    @abstractmethod
    def loss(self, batch: StepBatch) -> Mapping[str, Tensor]:
        """The weighted parts of the loss; their sum is minimized."""

    def end_step(self, batches: Iterable[StepBatch]) -> None:  # noqa: B027
        """Change the network for good after the last iteration (fused weights, merged branches, prototypes).

        `batches` show every image of the step once, whole, as `inputs`. One process may have one more than another.
        """

    @abstractmethod
    def predict(self, images: Tensor, boxes: Tensor | None = None) -> Prediction:
        """Outputs of the model as it is now, in evaluation mode, without gradient."""

    def parameter_groups(self) -> list[ParameterGroup]:
        """Parameters that the step trains: by default all that are not frozen, at the base rate."""
        return [ParameterGroup(trainable(self.network), 1.0)]

    def plan(self, batch_size: int, memory: int) -> BatchPlan:
        """Composition of a batch, given the number of stored images: by default new images alone."""
        return BatchPlan(batch_size)

    def train_mode(self) -> None:
        """Set training mode; frozen parts may have to stay in evaluation mode."""
        set_mode(self.network, training=True)

    def predict_batch(self, batch: Batch) -> Prediction:
        """Outputs for a batch of a data set, of which more may be known than of other images (regions)."""
        return self.predict(batch.images, batch.boxes)

    def pseudo_labels(self, batch: Batch) -> Tensor:
        """(B, H, W): learned indices of the classes in stored images; memory keeps which. By default the prediction."""
        return self.predict_batch(batch).labels

    def image_classes(self, labels: Tensor) -> Tensor:
        """(B, C) bool: the seen classes of images with these labels, (B, H, W): by default those of any pixel."""
        return classes_present(labels, len(self.step.seen))


@dataclass(frozen=True, kw_only=True)
class MethodConfig(ABC):
    """The settings of a method. `build` is left to write; the rest has defaults."""

    name: str
    """The method."""

    base_step: ClassVar[str | None] = None
    """Methods that learn the same base step call it by the same name. None: it is this class's own. Not inherited: a
    subclass may have another loss."""
    uses_regions: ClassVar[bool] = False
    """Whether batches hold maps of regions."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "base_step" not in vars(cls):
            cls.base_step = None

    @abstractmethod
    def build(self, model: ModelConfig, *, pretrained: bool = True) -> Method:
        """Make the method with its network."""

    def base_settings(self) -> dict[str, Any]:
        """The settings that act in the base step: runs that agree in them can share it."""
        acting = [key for key, scope in scopes(self).items() if scope in ("fixed", "step") and key != "name"]
        own = f"{type(self).__module__}:{type(self).__qualname__}"
        return {"base_step": self.base_step or own, **{key: getattr(self, key) for key in acting}}

    @property
    def replays(self) -> bool:
        """Whether stored images are replayed. If not, nothing is stored."""
        return True

    @property
    def replayed_labels(self) -> MemLabels | None:
        """Which pixel labels memory stores and shows; by default it keeps no annotation."""
        return None

    def depends_on(self) -> dict[str, tuple[bool, str]]:
        """For settings that do not always act: whether they do, and what they need. `ipseg train` names unused ones."""
        return {}

    def oracle(self) -> list[str]:
        """Settings that see labels a step must not see; stamped into results."""
        return []

    def require_data(self, data: DataConfig) -> None:  # noqa: B027
        """Raise, before anything starts, where the method cannot learn from such data."""
