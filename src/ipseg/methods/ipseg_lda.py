"""IPSeg with an LDA posterior: no part of the paper, and nearer to joint training.

Instead of a network that every step trains on replayed images, the posterior is a linear discriminant a class, in
closed form from streaming sums over all images that the steps have shown (models/lda.py). It forgets nothing and
needs no stored image. It also sees images with a copy of the pretrained backbone that the base step does not teach, and
later heads begin with a decoder of their own.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ipseg.config import scoped
from ipseg.data.batch import BatchPlan, StepBatch
from ipseg.data.dataset import DataConfig
from ipseg.errors import require_at_least, require_between
from ipseg.methods.base import Method, MethodConfig, ParameterGroup, Prediction
from ipseg.methods.decoupling import (
    begin_decoupled_step,
    decoupled_losses,
    require_saliency,
    segmentation_groups,
    set_train_mode,
)
from ipseg.methods.fusion import Fusion, background_score, class_scores, fuse, predict
from ipseg.methods.labels import classes_present
from ipseg.methods.replay import plan_with_replay
from ipseg.models.cuda_graphs import run
from ipseg.models.features import Features
from ipseg.models.freezing import frozen_copy, set_mode
from ipseg.models.heads import Head
from ipseg.models.lda import StreamingLDA
from ipseg.models.network import Encoder, ModelConfig, Network, large_heads, logits_of
from ipseg.scenario import Step


@dataclass(frozen=True, kw_only=True)
class IPSegLDAConfig(MethodConfig):
    """IPSeg with an LDA posterior."""

    name: str = "ipseg_lda"
    """The method."""

    frozen_backbone: bool = scoped(True, "fixed")
    """The posterior also reads a copy of the backbone from before the base step; pretrained, it separates classes that
    the base step does not have. It takes a second pass."""

    alpha_bc: float = scoped(0.5, "inference")
    """Posterior of the background; the best of six on held-out photographs (ipseg: 0.9)."""

    alpha_nf: float = scoped(0.4, "inference")
    """As in ipseg."""

    gate: Literal["none", "exact"] = scoped("none", "inference")
    """As in ipseg."""

    lambda_temporary: float = 0.5
    """As in ipseg."""

    lambda_permanent: float = 0.5
    """As in ipseg."""

    min_class_area: float = scoped(0.0038, "later")
    """A stored image counts as one of an old class if predictions cover more than this share of it."""

    replay_share: float = scoped(0.5, "later")
    """Share of a batch that replays images from memory for segmentation."""

    permanent_lr: float = scoped(0.1, "later")
    """As in ipseg."""

    backbone_lr: float = 0.1
    """As in ipseg."""

    def __post_init__(self) -> None:
        for name in ("alpha_bc", "alpha_nf", "min_class_area"):
            require_between(f"method.{name}", getattr(self, name), 0, 1)
        require_between("method.replay_share", self.replay_share, 0, 0.9)
        for name in ("lambda_temporary", "lambda_permanent", "permanent_lr", "backbone_lr"):
            require_at_least(f"method.{name}", getattr(self, name), 0)

    @property
    def fusion(self) -> Fusion:
        """The settings of inference: the paper's."""
        return Fusion(
            alpha_bc=self.alpha_bc,
            alpha_nf=self.alpha_nf,
            decoupled=True,
            unknown_joins_background=False,
            gated=self.gate == "exact",
        )

    @property
    def replayed_labels(self) -> Literal["current"]:
        """Images are stored without annotation; what the running step annotates in them counts."""
        return "current"

    @property
    def replays(self) -> bool:
        """Whether stored images are replayed; the posterior needs none."""
        return self.replay_share > 0

    def require_data(self, data: DataConfig) -> None:
        """Refuse data without saliency maps: the permanent branch would learn a constant."""
        require_saliency(data, "Give the data saliency maps (`ipseg saliency`).")

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> IPSegLDA:
        """Make the method with its network."""
        encoder = Encoder(model, frozen_backbone=self.frozen_backbone, pretrained=pretrained)
        heads = large_heads(encoder, model.width)
        return IPSegLDA(self, Network(encoder, heads, heads(2), posterior=StreamingLDA(encoder.pooled_channels)))


class IPSegLDA(Method):
    """IPSeg's heads, losses and inference; the posterior learns in closed form when a step ends."""

    network: Network

    def __init__(self, config: IPSegLDAConfig, network: Network) -> None:
        self.config, self.network = config, network
        self.teacher: tuple[Head, StreamingLDA] | None = None
        """Permanent branch and posterior of f_{t-1}; its encoder and temporary heads are the network's."""

    @property
    def posterior(self) -> StreamingLDA:
        """The network's."""
        assert isinstance(self.network.posterior, StreamingLDA)
        return self.network.posterior

    def begin_step(self, step: Step) -> None:
        """Copy the teacher, freeze what it shares with the model, and add the step's head."""
        super().begin_step(step)
        posterior = frozen_copy(self.posterior)
        own = copy.deepcopy(self.network.encoder.decoder).requires_grad_() if step.index > 0 else None
        permanent = begin_decoupled_step(self.network, step, extra=2, decoder=own)
        self.teacher = None if permanent is None else (permanent, posterior)

    def train_mode(self) -> None:
        """After the base step batch statistics stay as they are, everywhere."""
        set_train_mode(self.network, training=self.teacher is None)

    def parameter_groups(self) -> list[ParameterGroup]:
        """Base: everything, the backbone slower. Later: newest head, and slowly the permanent branch."""
        permanent = 1.0 if self.teacher is None else self.config.permanent_lr
        return segmentation_groups(self.network, self.config.backbone_lr, permanent)

    def plan(self, batch_size: int, memory: int) -> BatchPlan:
        """Half of a batch is replayed. No image is needed for the posterior."""
        return plan_with_replay(batch_size, 0 if self.teacher is None else memory, self.config.replay_share)

    def loss(self, batch: StepBatch) -> Mapping[str, Tensor]:
        """Eq. 6: the two branches."""
        crops, network, config = batch.inputs, self.network, self.config
        with torch.set_grad_enabled(self.teacher is None):
            features = network.encoder(crops.images, crops.boxes)
        pseudo = self._teacher_labels(features, crops.labels)
        new, permanent = (logits_of(head, features) for head in (network.temporary[-1], network.permanent))
        weights = config.lambda_temporary, config.lambda_permanent
        return decoupled_losses(new, permanent, crops, pseudo, self.step, *weights)

    @torch.no_grad()
    def _teacher_labels(self, features: Features, y: Tensor) -> Tensor:
        """(B, H, W): the old class that f_{t-1} predicts where y, the annotation, is background; 0 elsewhere."""
        if self.teacher is None:
            return torch.zeros_like(y)
        head, posterior = self.teacher
        permanent = logits_of(head, features)
        heads = [logits_of(head, features) for head in self.network.temporary[:-1]]
        fusion = self.config.fusion
        background = background_score(permanent.sigmoid(), fusion)
        pixel = torch.cat([background[:, None], *(class_scores(logits, fusion) for logits in heads)], dim=1)
        scores = fuse(pixel, posterior(features.pooled).float().sigmoid(), fusion.alpha_bc)
        return scores.max(1).indices.where(y == 0, 0)

    @torch.no_grad()
    def end_step(self, batches: Iterable[StepBatch]) -> None:
        """Learn the posterior. Classes of other steps count as absent: wrong guesses of them would spoil more."""
        set_mode(self.network, training=False)
        self.posterior.learn(self._image_features(batch) for batch in batches)

    def _image_features(self, batch: StepBatch) -> tuple[Tensor, Tensor]:
        crops = batch.inputs
        features = self.network.encoder(crops.images, crops.boxes, decoded=1)
        return features.pooled, classes_present(crops.labels, crops.stored.shape[1])

    def predict(self, images: Tensor, boxes: Tensor | None = None) -> Prediction:
        """Eq. 3, 4, 8 and 9."""
        set_mode(self.network, training=False)
        with torch.no_grad():
            features = run(self.recorder, self.network.encoder, images, boxes)
            return predict(self.network, features, self.config.fusion, self.recorder)

    def image_classes(self, labels: Tensor) -> Tensor:
        """Classes that have more than the smallest share of the image."""
        return classes_present(labels, len(self.step.seen), self.config.min_class_area)
