"""MiB+AWT (Goswami et al., WACV 2023): new classes take over the background's weights in channels that matter."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ipseg.config import scoped
from ipseg.data.batch import StepBatch
from ipseg.errors import require_between
from ipseg.methods.labels import labels_at_cells
from ipseg.methods.mib import Mib, MibConfig
from ipseg.methods.prototypes import class_masks
from ipseg.methods.softmax import PLAIN_BASE
from ipseg.models.network import ModelConfig
from ipseg.models.reduce import all_reduce_sum


@dataclass(frozen=True, kw_only=True)
class MibAwtConfig(MibConfig):
    """MiB with attribution-aware weight transfer. The defaults are those of its code for VOC."""

    base_step: ClassVar = PLAIN_BASE

    name: str = "mib_awt"
    """The method."""

    transferred: float = scoped(0.25, "later")
    """Share of the channels whose background weights a new class takes over (the code's)."""

    mask_per_class: bool = scoped(False, "later")
    """Choose the channels for every new class alone (the scripts of ADE20K 100-10, 100-50 and 50-50), not for all new
    classes of a step together."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_between("method.transferred", self.transferred, 0, 1)

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> MibAwt:
        """Make the method with its network."""
        return MibAwt(self, self.network(model, pretrained=pretrained))


class MibAwt(Mib):
    """MiB whose new classifiers begin at random, plus the background's weights where new classes look like it."""

    config: MibAwtConfig

    def init_new_classifier(self) -> None:
        """At random; `prepare` adds the background's weights. The background's own bias stays."""

    @torch.no_grad()
    def prepare(self, batches: Iterable[StepBatch]) -> None:
        """Find the channels on the step's images."""
        if self.teacher is None:
            return
        (base, *_, new), _ = self.network.rows()
        sums, counts = self._attributions(batches, base[0])
        new += base[0] * most_attributed(sums, counts, round(self.config.transferred * base.shape[1]))

    def _attributions(self, batches: Iterable[StepBatch], weight: Tensor) -> tuple[Tensor, Tensor]:
        """`attribution_sums` over all images of the step, in which all new classes are one or each is by itself."""
        assert self.teacher is not None
        classes = range(1 + len(self.step.old), 1 + len(self.step.seen))
        sums, counts = weight.new_zeros(()), weight.new_zeros(())
        for batch in batches:
            crops = batch.inputs
            output = self.teacher(crops.images, crops.boxes)
            decoded = output.decoded[: batch.num_new].float()
            gray = self.teacher.encoder.backbone.mean.expand_as(crops.images[:1])
            labels = labels_at_cells(crops.labels[: batch.num_new], output.canvas, decoded.shape[-2:])
            masks = class_masks(labels, classes)
            if not self.config.mask_per_class:
                masks = masks.sum(1, keepdim=True)
            found = attribution_sums(decoded, self.teacher(gray).decoded.float(), weight, masks)
            sums, counts = sums + found[0], counts + found[1]
        return all_reduce_sum(sums), all_reduce_sum(counts)


def attribution_sums(features: Tensor, baseline: Tensor, weight: Tensor, masks: Tensor) -> tuple[Tensor, Tensor]:
    """(K, C, h, w) sums over images of attributions to the background's logits, and (K,) the images with a class.

    Integrated gradients from a gray image on: the logit is linear in the features, so the integral over the path is
    the weight times the difference. features: (B, C, h, w) before the classifier; weight: (C,), the background's;
    masks: (B, K, h, w), where the new classes are.
    """
    attribution = weight[:, None, None] * (features - baseline)
    return torch.einsum("bchw,bkhw->kchw", attribution, masks), masks.flatten(2).any(2).sum(0)


def most_attributed(sums: Tensor, counts: Tensor, kept: int) -> Tensor:
    """(K, C): 1 for the channels whose mean over the images is highest at any cell; none for a class without images."""
    scores = (sums / counts.clamp(min=1)[:, None, None, None]).flatten(2).amax(2)
    chosen = torch.zeros_like(scores).scatter_(1, scores.topk(kept, 1).indices, 1)
    return chosen * (counts > 0)[:, None]
