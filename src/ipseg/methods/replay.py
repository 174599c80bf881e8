"""Replay of stored images with pixel labels: settings, the composition of a batch, and its labels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ipseg.config import scoped
from ipseg.data.batch import BatchPlan, StepBatch
from ipseg.data.memory import MemLabels
from ipseg.errors import require_between
from ipseg.methods.base import MethodConfig


@dataclass(frozen=True, kw_only=True)
class ReplayConfig(MethodConfig):
    """Settings of every method that can replay images with their pixel labels."""

    replay_share: float = scoped(0.0, "later")
    """Share of a batch that comes from memory after the base step; 0: no replay."""

    mem_labels: MemLabels = scoped("annotated", "later")
    """Labels of a replayed image. annotated: those of the step that stored it, and of every step since that
    shows it too. sampled: of the first of these alone. current: of the step that runs alone. all_seen: every class seen
    so far (an oracle). The rest is background."""

    def __post_init__(self) -> None:
        require_between("method.replay_share", self.replay_share, 0, 0.9)

    @property
    def replayed_labels(self) -> MemLabels | None:
        """Labels that memory keeps; none without replay."""
        return self.mem_labels if self.replays else None

    @property
    def replays(self) -> bool:
        """Whether stored images are replayed."""
        return self.replay_share > 0

    def depends_on(self) -> dict[str, tuple[bool, str]]:
        """For settings that do not always act: whether they do, and what they need."""
        return {"mem_labels": (self.replays, "method.replay_share above 0")}

    def oracle(self) -> list[str]:
        """Labels of all seen classes are not available for a stored image."""
        return ["method.mem_labels=all_seen"] if self.replayed_labels == "all_seen" else []


def replayed_images(batch_size: int, share: float) -> int:
    """Number of replayed images in a batch: at least one if the share is above 0; at least one image is new."""
    return min(max(1, int(batch_size * share)), batch_size - 1) if share else 0


def plan_with_replay(batch_size: int, memory: int, share: float) -> BatchPlan:
    """New images, and where there is a memory its share."""
    replayed = replayed_images(batch_size, share) if memory else 0
    return BatchPlan(batch_size - replayed, replayed)


def labels_to_learn(batch: StepBatch, wanted: MemLabels | None) -> Tensor:
    """(B, H, W): the step's labels, and those of replayed images as `mem_labels` says.

    A class has one learned index for ever, so labels that were stored steps ago need no shift.
    """
    labels = batch.inputs.labels
    if wanted != "all_seen" or batch.num_new == len(batch.inputs):
        return labels
    assert batch.inputs.full is not None
    return torch.cat([labels[: batch.num_new], batch.inputs.full[batch.num_new :]])
