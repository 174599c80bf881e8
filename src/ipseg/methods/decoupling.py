"""Permanent and temporary branches (section 3.4), as IPSeg and IPSeg with an LDA posterior share them."""

from __future__ import annotations

from torch import Tensor, nn

from ipseg.data.batch import Batch
from ipseg.data.dataset import DataConfig
from ipseg.errors import UserError
from ipseg.methods.base import ParameterGroup
from ipseg.methods.labels import permanent_labels, temporary_labels
from ipseg.methods.losses import pixel_bce
from ipseg.models.freezing import freeze_norms, frozen_copy, set_mode, train_dropout, trainable
from ipseg.models.heads import PURE_BACKGROUND, UNKNOWN, Head
from ipseg.models.network import Network
from ipseg.scenario import Step

CONFIDENCE = 0.7
"""A pseudo-label counts from this probability (SSUL's, which section 4.1 adopts)."""


def require_saliency(data: DataConfig, advice: str) -> None:
    """Raise where the permanent branch would have a single label, and so learn a constant.

    Eq. 5 ignores known classes. With `saliency: all` the rest is unknown, with `none` it is background.
    """
    saliency = getattr(data, "saliency", None)
    if saliency in ("all", "none"):
        taught = "an unknown object" if saliency == "all" else "background"
        raise UserError(
            f"data.saliency is {saliency}: every pixel that the permanent branch learns from is {taught}, for Eq. 5 "
            f"ignores known classes. Nothing would oppose it, and it would score alike everywhere. {advice}"
        )


def begin_decoupled_step(network: Network, step: Step, extra: int, decoder: nn.Module | None = None) -> Head | None:
    """Add the head of a step, and after the base step freeze what it learned. Returns the teacher's permanent branch.

    extra: channels of the head before its classes. decoder: its own, if it has one. A new head begins as the permanent
    branch, its classes as unknown objects, which they were until now (c_f has the same channel as c'_u): from scratch
    it would first relearn what is not background.
    """
    teacher = frozen_copy(network.permanent) if step.index > 0 else None
    head = network.add_step(extra + len(step.new), len(step.new), decoder)
    if teacher is not None:
        head.init_from(network.permanent, [UNKNOWN, PURE_BACKGROUND][:extra] + [UNKNOWN] * len(step.new))
        network.freeze_previous()
        freeze_norms(network)  # their statistics stay as well: set_train_mode
    return teacher


def set_train_mode(network: Network, *, training: bool, encoder_dropout: bool = False) -> None:
    """Training mode for all parts, or for the posterior alone and, if wanted, the dropout of the encoder."""
    network.training = training
    for part in network.children():
        if encoder_dropout and not training and part is network.encoder:
            train_dropout(part)
        else:
            set_mode(part, training=training or part is network.posterior)


def segmentation_groups(network: Network, backbone: float, permanent: float) -> list[ParameterGroup]:
    """Trainable parameters of encoder and heads; backbone, permanent: their learning-rate multipliers."""
    groups = [
        ParameterGroup(trainable(network.encoder.backbone), backbone),
        ParameterGroup(trainable(network.encoder.decoder) + trainable(network.temporary), 1.0),
        ParameterGroup(trainable(network.permanent), permanent),
    ]
    return [group for group in groups if group.parameters]


def decoupled_losses(
    new: Tensor, permanent: Tensor, crops: Batch, pseudo: Tensor, step: Step, lambda_1: float, lambda_2: float
) -> dict[str, Tensor]:
    """Eq. 6, weighted as in Eq. 7: each branch learns its own semantics.

    new, permanent: logits of the step's head and of the permanent branch. pseudo: the teacher's old classes.
    """
    temporary = temporary_labels(crops.labels, crops.salient, first=1 + len(step.old))
    lasting = permanent_labels(crops.labels, pseudo > 0, crops.salient)
    return {"temporary": lambda_1 * pixel_bce(new, temporary), "permanent": lambda_2 * pixel_bce(permanent, lasting)}
