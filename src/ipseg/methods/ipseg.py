"""IPSeg (Yu et al., ICML 2025, section 3): an image posterior and decoupled semantics; each can be switched off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ipseg.config import scoped
from ipseg.data.batch import Batch, BatchPlan, StepBatch, join
from ipseg.data.dataset import DataConfig
from ipseg.errors import UserError, require_at_least, require_between
from ipseg.methods.base import Method, MethodConfig, ParameterGroup, Prediction
from ipseg.methods.decoupling import (
    CONFIDENCE,
    begin_decoupled_step,
    decoupled_losses,
    require_saliency,
    segmentation_groups,
    set_train_mode,
)
from ipseg.methods.fusion import Fusion, predict
from ipseg.methods.labels import classes_present, confident_old_classes, coupled_labels
from ipseg.methods.losses import image_bce, pixel_bce
from ipseg.methods.replay import replayed_images
from ipseg.models.cuda_graphs import run
from ipseg.models.features import Features
from ipseg.models.freezing import set_mode, train_dropout, trainable
from ipseg.models.heads import Head, he_init
from ipseg.models.network import Encoder, ModelConfig, Network, he_heads, large_heads, logits_of, small_heads
from ipseg.models.posterior import Posterior
from ipseg.scenario import Step


@dataclass(frozen=True)
class Rules:
    """Where the paper's text and its authors' code differ. Both do the same in everything else."""

    known_classes_ignored: bool
    """Pixels of known classes are ignored in the permanent branch's loss (c_i of Eq. 5). If not, they are negatives for
    it, and all class channels are in both losses."""
    noise_filtering: bool
    """Eq. 9."""
    unknown_joins_background: bool
    """At inference the unknown channel is added to the background's; if not, it is dropped."""
    posterior_sees_crops: bool
    """Replayed images are cropped for the posterior like new ones; if not, they are resized whole, which is what their
    image labels are of."""
    he_init: bool
    """Decoder, heads and posterior begin with He's normal draw; if not, with PyTorch's own."""
    encoder_dropout: bool
    """Dropout and stochastic depth stay active in the frozen encoder after the base step. The teacher has
    neither, which takes a second pass."""


VARIANTS = {
    "paper": Rules(
        known_classes_ignored=True,
        noise_filtering=True,
        unknown_joins_background=False,
        posterior_sees_crops=False,
        he_init=False,
        encoder_dropout=False,
    ),
    "official": Rules(
        known_classes_ignored=False,
        noise_filtering=False,
        unknown_joins_background=True,
        posterior_sees_crops=True,
        he_init=True,
        encoder_dropout=True,
    ),
}


@dataclass(frozen=True, kw_only=True)
class IPSegConfig(MethodConfig):
    """IPSeg."""

    name: str = "ipseg"
    """The method."""

    variant: Literal["paper", "official"] = "paper"
    """paper: the equations of the text. official: what the authors' code computes, slips aside (docs/fidelity.md)."""

    image_posterior: bool = scoped(True, "fixed")
    """IP: train an image posterior and weigh the pixels' scores with it (Eq. 2, 3)."""

    decoupling: bool = scoped(True, "fixed")
    """SD: permanent and temporary branches with labels of their own (Eq. 5, 6). Off: SSUL's one label map and loss."""

    head: Literal["large", "small"] = scoped("large", "fixed")
    """large: three convolutions, each also fed with a finer stage of the backbone (section 3.4). small: SSUL's one
    convolution on the decoder's output."""

    alpha_bc: float = scoped(0.9, "inference")
    """Posterior of the background, which the image branch does not have (Eq. 3)."""

    alpha_nf: float = scoped(0.4, "inference")
    """Noise filtering: factor for class scores where their own head rates other foreground as high (Eq. 9). 1: off."""

    gate: Literal["none", "exact"] = scoped("none", "inference")
    """Which heads run at inference. none: all. exact: until no other could win a pixel; the labels are the same, and
    pixels without the posterior are not measured."""

    lambda_temporary: float = 0.5
    """Weight of the temporary branch's loss, lambda_1 (Eq. 7)."""

    lambda_permanent: float = 0.5
    """Weight of the permanent branch's loss, lambda_2 (Eq. 7)."""

    image_labels: Literal["part", "pseudo", "full"] = scoped("pseudo", "later")
    """Image labels of old classes: none, the teacher's (the paper's), or ground truth (an oracle)."""

    min_class_area: float = scoped(0.0038, "later")
    """An old class is in an image if the teacher's pseudo-labels cover more than this share of it (the authors' 1,000
    pixels of 513 x 513)."""

    replay_share: float = scoped(0.5, "later")
    """Share of a batch that replays images from memory for segmentation. 0 is Eq. 6 to the letter."""

    permanent_lr: float = scoped(0.1, "later")
    """Learning rate of the permanent branch after the base step, as a multiple of `training.lr`."""

    posterior_lr: float = 1.0
    """Learning rate of the image posterior, as a multiple of `training.lr`."""

    backbone_lr: float = 0.1
    """Learning rate of the backbone in the base step, as a multiple of `training.lr`."""

    def __post_init__(self) -> None:
        for name in ("alpha_bc", "alpha_nf", "min_class_area"):
            require_between(f"method.{name}", getattr(self, name), 0, 1)
        require_between("method.replay_share", self.replay_share, 0, 0.9)
        for name in ("lambda_temporary", "lambda_permanent", "permanent_lr", "posterior_lr", "backbone_lr"):
            require_at_least(f"method.{name}", getattr(self, name), 0)
        if self.gate != "none" and not self.image_posterior:
            raise UserError(
                f"method.gate is {self.gate}, but without method.image_posterior nothing gates. Set it to none."
            )

    @property
    def rules(self) -> Rules:
        """The rules of the variant."""
        return VARIANTS[self.variant]

    @property
    def fusion(self) -> Fusion:
        """The settings of inference. Without decoupling it is SSUL's: unknown joins the background, nothing filters."""
        filters = self.decoupling and self.rules.noise_filtering
        return Fusion(
            alpha_bc=self.alpha_bc,
            alpha_nf=self.alpha_nf if filters else 1.0,
            decoupled=self.decoupling,
            unknown_joins_background=self.rules.unknown_joins_background or not self.decoupling,
            gated=self.gate == "exact",
        )

    @property
    def replayed_labels(self) -> Literal["current"]:
        """Images are stored without annotation; what the running step annotates in them counts."""
        return "current"

    @property
    def replays(self) -> bool:
        """Whether stored images are replayed, to heads or posterior."""
        return self.image_posterior or self.replay_share > 0

    def depends_on(self) -> dict[str, tuple[bool, str]]:
        """For settings that do not always act: whether they do, and what they need."""
        posterior = (self.image_posterior, "method.image_posterior")
        pseudo = (self.image_posterior and self.image_labels == "pseudo", "method.image_labels: pseudo")
        filters = self.decoupling and self.rules.noise_filtering
        return {
            **dict.fromkeys(("alpha_bc", "image_labels", "posterior_lr"), posterior),
            "min_class_area": pseudo,
            "alpha_nf": (filters, "method.decoupling and method.variant: paper"),
        }

    def oracle(self) -> list[str]:
        """Full image labels are not to be had in a real step."""
        return ["method.image_labels=full"] if self.image_posterior and self.image_labels == "full" else []

    def require_data(self, data: DataConfig) -> None:
        """Refuse data without saliency maps where the permanent branch would learn a constant."""
        if self.decoupling and self.rules.known_classes_ignored:
            require_saliency(data, "Set method.variant to official, or give the data saliency maps (`ipseg saliency`).")

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> IPSeg:
        """Make the method with its network."""
        encoder, official = Encoder(model, pretrained=pretrained), self.rules.he_init
        heads = large_heads(encoder, model.width) if self.head == "large" else small_heads(model.width)
        if official:
            he_init(encoder.decoder)
            heads = he_heads(heads)
        permanent, posterior = heads(2), None
        if self.image_posterior:
            sizes = encoder.pooled_channels, model.posterior_width
            posterior = Posterior(*sizes, model.posterior_dropout, he_init=official)
        return IPSeg(self, Network(encoder, heads, permanent, posterior=posterior))


class IPSeg(Method):
    """A head a step, an image posterior that realigns them, and decoupled labels for permanent and temporary branch."""

    network: Network

    def __init__(self, config: IPSegConfig, network: Network) -> None:
        self.config, self.network = config, network
        self.teacher: Head | None = None
        """The permanent branch of f_{t-1}; its encoder and temporary heads are the network's, for they are frozen."""

    # ---- a step -------------------------------------------------------------------------------------------------

    def begin_step(self, step: Step) -> None:
        """Copy the teacher, freeze what it shares with the model, and add the step's head."""
        super().begin_step(step)
        self.teacher = begin_decoupled_step(self.network, step, extra=2 if self.config.decoupling else 0)

    def train_mode(self) -> None:
        """After the base step batch statistics stay as they are. The posterior has dropout, and official's encoder."""
        set_train_mode(self.network, training=self.teacher is None, encoder_dropout=self.config.rules.encoder_dropout)

    def parameter_groups(self) -> list[ParameterGroup]:
        """Base: everything, the backbone slower. Later: newest head, posterior, and slowly the permanent branch."""
        config, base = self.config, self.teacher is None
        groups = segmentation_groups(self.network, config.backbone_lr, 1.0 if base else config.permanent_lr)
        if self.network.posterior is not None:
            groups.append(ParameterGroup(trainable(self.network.posterior), config.posterior_lr))
        return groups

    def plan(self, batch_size: int, memory: int) -> BatchPlan:
        """Half of a batch is replayed; the posterior sees new images in the proportion of their classes."""
        posterior = self.config.image_posterior
        if not memory or self.teacher is None:
            return BatchPlan(batch_size, num_posterior=batch_size if posterior else 0)
        replayed = replayed_images(batch_size, self.config.replay_share)
        num_new = batch_size - replayed
        if not posterior:
            return BatchPlan(num_new, replayed)
        new = min(max(1, batch_size * len(self.step.new) // len(self.step.seen)), num_new)
        more = max(batch_size, 2) - new  # a batch of one has a replayed image beside it
        return BatchPlan(num_new, replayed, more, new, crop_replay_images=self.config.rules.posterior_sees_crops)

    # ---- learning -----------------------------------------------------------------------------------------------

    def loss(self, batch: StepBatch) -> Mapping[str, Tensor]:
        """Eq. 7: L_IP + lambda_1 L_current + lambda_2 L_p, on one pass over all images of the batch."""
        network, inputs = self.network, batch.inputs
        images = inputs if batch.replay_images is None else join([inputs, batch.replay_images])
        with torch.set_grad_enabled(self.teacher is None):  # later the encoder is frozen
            every = network.encoder(images.images, images.boxes, decoded=len(inputs))
        features = every[: len(inputs)]
        old = self._old_logits(features)
        pseudo = self._pseudo_labels_of(inputs, features, old)
        new, permanent = (logits_of(head, features) for head in (network.temporary[-1], network.permanent))
        losses = self._segmentation(new, permanent, old, inputs, pseudo)
        if network.posterior is not None:
            new_ones, replayed = slice(batch.num_posterior), slice(len(inputs), None)
            pooled, labels = every.pooled, self.image_labels(images, pseudo)
            pooled, labels = (torch.cat([x[new_ones], x[replayed]]) for x in (pooled, labels))
            losses["posterior"] = image_bce(network.posterior(pooled).float(), labels)
        return losses

    def _segmentation(
        self, new: Tensor, permanent: Tensor, old: list[Tensor], inputs: Batch, pseudo: Tensor
    ) -> dict[str, Tensor]:
        """Eq. 6, or what the authors' code or SSUL has in its place.

        new, permanent: logits of the step's head and of the permanent branch. old: logits of old classes, frozen.
        """
        y, salient = inputs.labels, inputs.salient
        lambda_1, lambda_2 = self.config.lambda_temporary, self.config.lambda_permanent
        if self.config.decoupling and self.config.rules.known_classes_ignored:
            return decoupled_losses(new, permanent, inputs, pseudo, self.step, lambda_1, lambda_2)
        classes = [*old, self._classes(new)]
        every = pixel_bce(torch.cat([permanent, *classes], dim=1), coupled_labels(y, pseudo, salient))
        if not self.config.decoupling:
            return {"segmentation": (lambda_1 + lambda_2) * every}
        own = torch.cat([new[:, :2], *classes], dim=1)  # the authors' second loss has no pseudo-labels
        own_loss = pixel_bce(own, coupled_labels(y, torch.zeros_like(y), salient))
        return {"temporary": lambda_1 * own_loss, "permanent": lambda_2 * every}

    def _old_logits(self, features: Features) -> list[Tensor]:
        """Class logits of each old head; frozen, so they are the teacher's too."""
        return [self._classes(logits_of(head, features)) for head in self.network.temporary[:-1]]

    def _classes(self, logits: Tensor) -> Tensor:
        """The class channels of a temporary head, which follow c_f and c'_b."""
        return logits[:, 2:] if self.config.decoupling else logits

    def image_labels(self, images: Batch, pseudo: Tensor | None = None) -> Tensor:
        """(B, C) bool, Y~ of Eq. 2: annotated in the crop, stored with a replayed image, or a pseudo-label.

        pseudo: (b, H, W), of the first images.
        """
        classes = images.stored.shape[1]
        if self.config.image_labels == "full":
            assert images.full is not None
            return classes_present(images.full, classes)
        labels = classes_present(images.labels, classes) | images.stored
        if self.config.image_labels == "pseudo" and pseudo is not None:
            labels[: len(pseudo)] |= classes_present(pseudo, classes, self.config.min_class_area)
        return labels

    def image_classes(self, labels: Tensor) -> Tensor:
        """Classes that have more than the smallest share of the image."""
        return classes_present(labels, len(self.step.seen), self.config.min_class_area)

    # ---- pseudo-labels ------------------------------------------------------------------------------------------

    @torch.no_grad()
    def _pseudo_labels_of(self, crops: Batch, features: Features, old: list[Tensor]) -> Tensor:
        """The teacher's, from the same features; where dropout changes them, from a pass of its own without."""
        encoder = self.network.encoder
        if self.teacher is not None and encoder.training:
            set_mode(encoder, training=False)
            features = encoder(crops.images, crops.boxes)
            old = self._old_logits(features)
            train_dropout(encoder)
        return self._teacher_labels(features, old, crops.labels)

    @torch.no_grad()
    def _teacher_labels(self, features: Features, old: list[Tensor], y: Tensor) -> Tensor:
        """(B, H, W): the old class that f_{t-1} is sure of where y, the annotation, is background; 0 elsewhere."""
        if self.teacher is None:
            return torch.zeros_like(y)
        logits = torch.cat([logits_of(self.teacher, features), *old], dim=1)
        return confident_old_classes(logits, CONFIDENCE).where(y == 0, 0)

    @torch.no_grad()
    def pseudo_labels(self, batch: Batch) -> Tensor:
        """(B, H, W): the class that the heads are sure of; 0 elsewhere."""
        set_mode(self.network, training=False)
        features = self.network.encoder(batch.images, batch.boxes)
        heads = [self._classes(logits_of(head, features)) for head in self.network.temporary]
        return confident_old_classes(
            torch.cat([logits_of(self.network.permanent, features), *heads], dim=1), CONFIDENCE
        )

    # ---- inference ----------------------------------------------------------------------------------------------

    def predict(self, images: Tensor, boxes: Tensor | None = None) -> Prediction:
        """Eq. 3, 4, 8 and 9."""
        set_mode(self.network, training=False)
        with torch.no_grad():
            features = run(self.recorder, self.network.encoder, images, boxes)
            return predict(self.network, features, self.config.fusion, self.recorder)
