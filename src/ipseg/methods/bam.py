"""BAM (Zhang and Gao, ECCV 2024; its code is BARM): no memory, and a residual of the background a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ipseg.config import scoped
from ipseg.data.batch import BatchPlan, StepBatch
from ipseg.errors import require_at_least, require_between
from ipseg.methods.base import Method, ParameterGroup, Prediction
from ipseg.methods.distillation import distill_sigmoid
from ipseg.methods.labels import labels_at_cells
from ipseg.methods.losses import mean_over, pixel_bce
from ipseg.methods.replay import ReplayConfig, labels_to_learn, plan_with_replay
from ipseg.models.boxes import touched
from ipseg.models.cuda_graphs import run
from ipseg.models.features import Canvas
from ipseg.models.freezing import frozen_copy, set_mode, trainable
from ipseg.models.heads import Head
from ipseg.models.network import Encoder, HeadFactory, ModelConfig, large_heads, small_heads
from ipseg.scenario import IGNORE, Step


@dataclass(frozen=True, kw_only=True)
class BamConfig(ReplayConfig):
    """BAM. The defaults are those of its code for VOC."""

    name: str = "bam"
    """The method."""

    head: Literal["ssul", "ipseg"] = scoped("ssul", "fixed")
    """ssul: the published small heads, one convolution on the decoder's output. ipseg: IPSeg's, which are fed with the
    finer stages too, for comparisons on one and the same network."""

    confidence: float = scoped(0.7, "later")
    """The teacher's label counts from this probability (the code's)."""

    backbone_lr: float = 0.1
    """The backbone learns at this multiple of the rate in the base step (the code: 0.001 beside 0.01)."""

    decoder_lr: float = scoped(1.0, "later")
    """After the base step the decoder learns at this multiple of the rate (the code: 0.001, the rate of VOC; ADE20K's
    is 0.01)."""

    old_lr: float = scoped(0.1, "later")
    """The same for the backbone and the heads of old classes (the code: 0.0001)."""

    residual: float = scoped(5.0, "later")
    """Weight of the loss that raises the residual on unannotated cells (the code's)."""

    residual_bce: float = scoped(1.0, "later")
    """Weight of the one that lowers it on the new classes (the code's)."""

    trunks: float = scoped(4.0, "later")
    """Weight of the squared distance of the old heads' features to the teacher's (the code's)."""

    distillation: float = scoped(1.0, "later")
    """Weight of the distillation of the old heads' logits (the code's)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_between("method.confidence", self.confidence, 0, 1)
        rates, weights = ("backbone_lr", "decoder_lr", "old_lr"), ("residual", "residual_bce", "trunks", "distillation")
        for name in (*rates, *weights):
            require_at_least(f"method.{name}", getattr(self, name), 0)

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> Bam:
        """Make the method with its network."""
        encoder = Encoder(model, pretrained=pretrained)
        heads = small_heads(model.width) if self.head == "ssul" else large_heads(encoder, model.width)
        return Bam(self, BamNetwork(encoder, heads))


# ---- the network ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BamOutput:
    """The outputs of one pass, head by head, before upsampling."""

    trunks: tuple[Tensor, ...]
    """The classifiers' inputs."""
    heads: tuple[Tensor, ...]
    """(B, 1 + classes, h, w) in float32: first the background's logit (base step) or a residual of it."""
    canvas: Canvas

    def upsampled(self, *, training: bool) -> Tensor:
        """(B, 1 + C, H, W) logits at the size of the images, background first."""
        return self.canvas.upsample(joined_logits(self.heads, training=training))


class BamNetwork(nn.Module):
    """An encoder, and a head a step, whose first channel is of the background."""

    def __init__(self, encoder: Encoder, make_head: HeadFactory) -> None:
        super().__init__()
        self.encoder, self.make_head = encoder, make_head
        self.heads = nn.ModuleList()

    def add_step(self, classes: int) -> None:
        """Add a head; its trunk begins as that of the base step."""
        head = self.make_head(1 + classes).to(next(self.encoder.parameters()).device)
        if self.heads:
            head.trunk.load_state_dict(cast("Head", self.heads[0]).trunk.state_dict())
        self.heads.append(head)

    def forward(self, images: Tensor, boxes: Tensor | None = None) -> BamOutput:
        """images: (B, 3, H, W) in 0-1, any size. boxes: where the images lie; by default they fill the canvas."""
        features = self.encoder(images, boxes)
        heads = cast("list[Head]", list(self.heads))
        trunks = tuple(head.trunk(features.decoded, features.stages) for head in heads)
        logits = tuple(head.classifier(trunk).float() for head, trunk in zip(heads, trunks, strict=True))
        return BamOutput(trunks, logits, features.canvas)


def joined_logits(heads: Sequence[Tensor], *, training: bool) -> Tensor:
    """(B, 1 + C, h, w): the background's logit, lowered by every residual below 0, and those of all classes.

    While a step trains, its residual also raises the background's logit, and of all heads it alone learns from this.
    """
    if len(heads) == 1:
        return heads[0]
    *old, new = (heads[0], *(torch.cat([head[:, :1].clamp(max=0), head[:, 1:]], 1) for head in heads[1:-1]), heads[-1])
    if training:
        old = [head.detach() for head in old]
    else:
        new = torch.cat([new[:, :1].clamp(max=0), new[:, 1:]], 1)
    every = [*old, new]
    background = torch.stack([head[:, :1] for head in every]).sum(0)
    return torch.cat([background, *(head[:, 1:] for head in every)], 1)


# ---- the method -----------------------------------------------------------------------------------------------------


class Bam(Method):
    """A sigmoid for background and each class. All of the network goes on learning, in evaluation mode."""

    network: BamNetwork

    def __init__(self, config: BamConfig, network: BamNetwork) -> None:
        self.config, self.network = config, network
        self.teacher: BamNetwork | None = None
        """The model after the last step, frozen; not part of the network, for each run copies it anew."""

    def begin_step(self, step: Step) -> None:
        """Copy the teacher, and add a head."""
        super().begin_step(step)
        self.teacher = frozen_copy(self.network) if step.index > 0 else None
        self.network.add_step(len(step.new))

    def train_mode(self) -> None:
        """After the base step batch statistics stay as they are, and nothing is dropped."""
        set_mode(self.network, training=self.teacher is None)

    def parameter_groups(self) -> list[ParameterGroup]:
        """Base: the backbone slower. Later: the new head, the decoder, and slowly all else."""
        config, encoder, (*old, new) = self.config, self.network.encoder, self.network.heads
        decoder, backbone = trainable(encoder.decoder), trainable(encoder.backbone)
        if self.teacher is None:
            return [ParameterGroup(backbone, config.backbone_lr), ParameterGroup([*decoder, *trainable(new)], 1.0)]
        slow = [*backbone, *(parameter for head in old for parameter in trainable(head))]
        return [
            ParameterGroup(trainable(new), 1.0),
            ParameterGroup(decoder, config.decoder_lr),
            ParameterGroup(slow, config.old_lr),
        ]

    def plan(self, batch_size: int, memory: int) -> BatchPlan:
        """New images; the published method replays none."""
        return plan_with_replay(batch_size, memory if self.step.index > 0 else 0, self.config.replay_share)

    def loss(self, batch: StepBatch) -> Mapping[str, Tensor]:
        """Binary cross-entropy on labels and pseudo-labels; the residual's own losses; distillation of old heads."""
        crops, config = batch.inputs, self.config
        labels = labels_to_learn(batch, config.replayed_labels)
        output = self.network(crops.images, crops.boxes)
        logits = output.upsampled(training=True)
        if self.teacher is None:
            return {"segmentation": pixel_bce(logits, labels)}
        with torch.no_grad():
            before: BamOutput = self.teacher(crops.images, crops.boxes)
        targets = pseudo_labels(labels, before.upsampled(training=False), config.confidence)
        residual = output.heads[-1][:, 0]
        cells = labels_at_cells(labels, output.canvas, residual.shape[-2:])
        shown = touched(crops.boxes, output.canvas.padded, residual.shape[-2:])
        is_new = (cells > len(self.step.old)) & (cells != IGNORE)
        raised, lowered = residual_losses(residual, cells == 0, is_new)
        trunks = [trunk_distance(*each, cells == 0, shown) for each in zip(output.trunks, before.trunks, strict=False)]
        heads = [distill_sigmoid(*each, shown) for each in zip(output.heads, before.heads, strict=False)]
        return {
            "segmentation": pixel_bce(logits, targets),
            "residual": config.residual * raised + config.residual_bce * lowered,
            "trunks": config.trunks * torch.stack(trunks).sum(),
            "distillation": config.distillation * torch.stack(heads).sum(),
        }

    @torch.no_grad()
    def predict(self, images: Tensor, boxes: Tensor | None = None) -> Prediction:
        """Probabilities."""
        set_mode(self.network, training=False)
        scores = run(self.recorder, self.network, images, boxes).upsampled(training=False).sigmoid()
        return Prediction(scores, scores)


def pseudo_labels(labels: Tensor, old: Tensor, confidence: float) -> Tensor:
    """(B, H, W): what is annotated, and elsewhere the old class that wins with at least this probability."""
    best, winner = old.max(1)
    return torch.where(labels == 0, winner.where(best.sigmoid() >= confidence, 0), labels)


def residual_losses(residual: Tensor, unannotated: Tensor, is_new: Tensor) -> tuple[Tensor, Tensor]:
    """Above 0 on unannotated cells, so that background and old classes keep the background's logit; low on new ones."""
    return mean_over(F.relu(1 - 2 * residual.sigmoid()), unannotated), mean_over(F.softplus(residual), is_new)


def trunk_distance(new: Tensor, old: Tensor, unannotated: Tensor, shown: Tensor) -> Tensor:
    """The squared distance of an old head's features to the teacher's on unannotated cells; the mean over all cells."""
    apart = (new.float() - old.float()).square().mean(1)
    return mean_over(apart.where(unannotated, 0), shown)
