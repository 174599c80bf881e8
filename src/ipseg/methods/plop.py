"""PLOP (Douillard et al., CVPR 2021): the old model labels where it is sure, and features stay at every scale."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ipseg.config import scoped
from ipseg.data.batch import StepBatch
from ipseg.errors import UserError, require_at_least, require_between
from ipseg.methods.distillation import background_takes_new, pod_distance
from ipseg.methods.losses import pixel_ce
from ipseg.methods.pseudo_labels import BINS, OFFICIAL_BINS, ClassHistograms, entropy, pseudo_labels, weighted_ce
from ipseg.methods.softmax import PLAIN_BASE, SoftmaxConfig, SoftmaxMethod
from ipseg.methods.ucb import PixelWeights
from ipseg.models.boxes import touched
from ipseg.models.network import ModelConfig
from ipseg.models.softmax import SoftmaxNetwork, SoftmaxOutput
from ipseg.scenario import IGNORE, Step


@dataclass(frozen=True, kw_only=True)
class PlopConfig(SoftmaxConfig):
    """PLOP. The defaults are those of the paper and its code for VOC."""

    base_step: ClassVar = PLAIN_BASE

    name: str = "plop"
    """The method."""

    pod_features: float = scoped(0.01, "later")
    """Weight of local POD on the four stages and the decoder's output (the paper's for VOC; ADE20K: 0.001)."""

    pod_logits: float = scoped(0.0005, "later")
    """The same on the logits before upsampling (the paper's for VOC; ADE20K: 0.00001)."""

    pod_scales: tuple[int, ...] = scoped((1, 2, 4), "later")
    """Local POD cuts a map into 1, 4 and 16 tiles (the paper's)."""

    variant: Literal["paper", "official"] = scoped("paper", "later")
    """Below which entropy a pseudo-label counts. paper: the median of its class. official: what the authors' code
    computes instead; most labels are below it (docs/fidelity.md)."""

    pixel_weights: Literal["none", "ucb"] = scoped("none", "later")
    """ucb: in the cross-entropy pixels weigh by the old model's certainty and by the rarity of their class."""

    least_threshold: float = scoped(0.001, "later")
    """A pseudo-label of less entropy (0 to 1) always counts, however low its class's threshold is (the code's)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("pod_features", "pod_logits"):
            require_at_least(f"method.{name}", getattr(self, name), 0)
        require_between("method.least_threshold", self.least_threshold, 0, 1)
        if not self.pod_scales:
            raise UserError("method.pod_scales is empty; [1] is the whole map alone.")
        for scale in self.pod_scales:
            require_at_least("method.pod_scales", scale, 1)

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> Plop:
        """Make the method with its network."""
        return Plop(self, self.network(model, pretrained=pretrained))


@dataclass(frozen=True, kw_only=True)
class PlopMConfig(PlopConfig):
    """PLOP-M: PLOP with replay. The paper of PLOP has none; half of a batch from memory is SSUL-M's."""

    base_step: ClassVar = PLAIN_BASE

    name: str = "plop_m"
    """The method."""

    replay_share: float = scoped(0.5, "later")
    """Share of a batch that comes from memory after the base step (SSUL-M's)."""


class Plop(SoftmaxMethod[PlopConfig]):
    """Learns new classes from labels, and old ones from the teacher where it is more certain than usual."""

    def __init__(self, config: PlopConfig, network: SoftmaxNetwork) -> None:
        super().__init__(config, network)
        self.thresholds = torch.ones(0)
        """(old classes,): the entropy below which the old model's label counts. `prepare` finds them anew each time."""
        self.pixel_weights: PixelWeights | None = None
        """UCB's, if wanted; a part of the network while a step trains."""

    def begin_step(self, step: Step) -> None:
        """Until `prepare` every label of the old model counts."""
        super().begin_step(step)
        if self.teacher is not None:
            device = next(self.network.parameters()).device
            self.thresholds = torch.ones(1 + len(step.old), device=device)

    def init_new_classifier(self) -> None:
        """New classes start as background, as in MiB."""
        self.network.init_from_background()

    @torch.no_grad()
    def prepare(self, batches: Iterable[StepBatch]) -> None:
        """tau_c: the median entropy where the teacher predicts c, on pixels that the step's images do not annotate."""
        if self.teacher is None:
            return
        old, official = len(self.thresholds), self.config.variant == "official"
        # The authors' code divides entropies by the number of old classes and by the logarithm of all, too.
        divisor = old * math.log(1 + len(self.step.seen)) if official else 1.0
        entropies = ClassHistograms(old, OFFICIAL_BINS if official else BINS, self.thresholds.device)
        for batch in batches:
            logits = self.teacher_outputs(batch.inputs).upsampled()[: batch.num_new]
            unlabeled = batch.inputs.labels[: batch.num_new] == 0
            entropies.add(logits.argmax(1)[unlabeled], entropy(logits)[unlabeled] / divisor)
        found = entropies.official_thresholds() if official else entropies.medians()
        self.thresholds = divisor * found.clamp(min=self.config.least_threshold)
        if self.config.pixel_weights == "ucb":
            self.pixel_weights = PixelWeights(self.step, self.thresholds.device, least_certain=0.8, scaled=True)
            self.network.add_module("pixel_weights", self.pixel_weights)

    def end_step(self, batches: Iterable[StepBatch]) -> None:
        """What only training needs is removed."""
        super().end_step(batches)
        if self.pixel_weights is not None:
            del self.network.pixel_weights
            self.pixel_weights = None

    def loss(self, batch: StepBatch) -> Mapping[str, Tensor]:
        """Cross-entropy on labels and pseudo-labels, and local POD."""
        crops, labels = batch.inputs, self.labels(batch)
        output = self.network(crops.images, crops.boxes)
        if self.teacher is None:
            return {"segmentation": pixel_ce(output.upsampled(), labels)}
        before = self.teacher_outputs(crops)
        targets, nu = pseudo_labels(labels, before.upsampled(), self.thresholds)
        counted, weights = labels != IGNORE, nu[:, None, None]
        if self.pixel_weights is not None:
            weights = weights * self.pixel_weights(targets, before.upsampled(), counted)
        segmentation = weighted_ce(output.upsampled(), targets, weights, counted)
        return {"segmentation": segmentation, **self.distillation_losses(output, before, crops.boxes, labels)}

    def distillation_losses(
        self, output: SoftmaxOutput, before: SoftmaxOutput, boxes: Tensor, labels: Tensor
    ) -> dict[str, Tensor]:
        """What keeps old classes beside pseudo-labels; before: the teacher's outputs."""
        return {"pod": self._pod(output, before, boxes)}

    def _pod(self, new: SoftmaxOutput, old: SoftmaxOutput, boxes: Tensor) -> Tensor:
        """The mean over stages, decoder and logits, each with its weight; heavier the more there is to keep."""
        config = self.config

        def distance(ours: Tensor, theirs: Tensor) -> Tensor:
            return pod_distance(ours, theirs, touched(boxes, new.canvas.padded, ours.shape[-2:]), config.pod_scales)

        maps = zip((*new.stages, new.decoded), (*old.stages, old.decoded), strict=True)
        layers = [config.pod_features * distance(*pair) for pair in maps]
        folded = background_takes_new(new.logits, old.logits.shape[1])
        layers.append(config.pod_logits * distance(folded, old.logits))
        schedule = math.sqrt((1 + len(self.step.seen)) / len(self.step.new))  # with background, as the authors count
        return schedule * torch.stack(layers).mean()
