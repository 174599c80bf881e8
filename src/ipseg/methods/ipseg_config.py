"""The settings of IPSeg: the paper's defaults, and the authors' code where it differs as options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ipseg.errors import UserError, require_at_least, require_between
from ipseg.model.network import ModelConfig, Network

if TYPE_CHECKING:
    from ipseg.methods.ipseg import IPSeg


@dataclass(frozen=True, kw_only=True)
class IPSegConfig:
    """IPSeg. The defaults are the paper's; where the authors' code differs, that is an option."""

    name: str = "ipseg"
    """The method."""

    image_posterior: bool = True
    """IP: train an image posterior and weigh the pixels' scores with it (Eq. 2, 3)."""

    decoupling: bool = True
    """SD: permanent and temporary branches with their own labels (Eq. 5, 6). Off: SSUL's one label map and one loss."""

    noise_filtering: bool = True
    """NF: scale down what a head gives to other foreground (Eq. 9). Needs decoupling."""

    alpha_bc: float = 0.9
    """Stands in for the posterior of the background (Eq. 3)."""

    alpha_nf: float = 0.4
    """Factor for class scores where their own head rates other foreground as high (Eq. 9). 1 is no filter."""

    lambda_current: float = 0.5
    """Weight of the temporary branch's loss, lambda_1 (Eq. 7)."""

    lambda_permanent: float = 0.5
    """Weight of the permanent branch's loss, lambda_2 (Eq. 7)."""

    known_classes: Literal["ignore", "negative"] = "ignore"
    """What the permanent branch is taught where a known class is: nothing (c_i of Eq. 5), or, as the authors' code
    does, that it is neither background nor unknown."""

    class_loss: Literal["once", "twice"] = "once"
    """In how many of the two losses the step's classes stand. once: the temporary branch's (Eq. 6). twice: beside the
    permanent branch too, as in the authors' code; they weigh lambda_1 + lambda_2 then, as without decoupling."""

    new_head: Literal["permanent", "base"] = "permanent"
    """What a later step's head begins as a copy of, its classes as the row of unknown objects. permanent: the permanent
    branch (SSUL's and the authors' way; the paper is silent). base: the base step's head, which has learned to tell
    classes apart; the permanent branch is not taught where they are, unless `known_classes` is negative."""

    image_labels: Literal["part", "pseudo", "full"] = "pseudo"
    """Labels of the posterior for old classes: none, the previous heads' (the paper's), or ground truth (an oracle)."""

    pseudo_min_share: float = 0.0038
    """An old class is in a picture if the previous heads give it more than this share (the authors' 1000 pixels of
    513 x 513)."""

    pseudo_labels_on: Literal["unlabelled", "everywhere"] = "unlabelled"
    """Where these are looked for: in current pictures, where their annotation says nothing; or in remembered pictures
    too and on the new classes themselves, where an old head sees look-alikes."""

    pseudo_labels_by: Literal["heads", "model"] = "heads"
    """Who gives these. heads: the previous heads alone (the paper's), so that the posterior does not confirm itself.
    model: the previous model's answer, in which its posterior has corrected them."""

    confidence: float | None = None
    """In pixels, the previous model's label counts only from this probability. null: 0 (the paper's), without
    decoupling 0.7 (SSUL's). The authors' code uses 0.7 throughout, for image labels too."""

    rehearsal: float = 0.5
    """Share of a batch that rehearses segmentation on remembered pictures. 0 is Eq. 6 to the letter."""

    mem_labels: Literal["current", "none"] = "current"
    """What is known of remembered pictures beside their image label. current: if the step that runs shows one too, its
    annotation there. none: nothing, so that its new classes are taken for absent."""

    posterior: Literal["learned", "moments"] = "learned"
    """How the image posterior comes about. learned: a small network that every step trains, with remembered pictures
    against forgetting (the paper's). moments: linear discriminants in closed form, from sums over all pictures that the
    steps have shown; no picture need be remembered for it, and settings of its training do nothing."""

    posterior_current: float | None = None
    """Share of current pictures among those that train the posterior; at least one is, and at most those that
    `rehearsal` leaves in a batch. null: the authors', |C_t| / |C_1:t|."""

    posterior_views: Literal["random", "fixed"] = "random"
    """How remembered pictures are laid out for the posterior. random: anew each time. fixed: in the ways in which one
    pass over the step shows them; what the frozen encoder says of these is computed once, which saves half of its
    work."""

    unknown: Literal["auto", "drop", "background"] = "auto"
    """At inference the unknown channel is dropped (the paper's) or added to the background (SSUL's, and the authors'
    code). auto: dropped with decoupling, added without."""

    gate: Literal["none", "exact", "bounded"] = "none"
    """Which heads run, for an answer and for f_{t-1} in training. none: all. exact: until no other could win a pixel,
    so that the labels are those of all heads. bounded: of these, those with a class that the posterior rates at
    `gate_threshold` or more. With a gate the pixels without the posterior are not measured."""

    gate_threshold: float = 0.05
    """Of the bounded gate."""

    own_decoders: bool = False
    """Each later head begins with a copy of the decoder, which learns with it; the backbone stays frozen. Off: all
    heads share the decoder of the base step (the paper's)."""

    posterior_backbone: Literal["shared", "still", "both"] = "shared"
    """What the posterior sees pictures with. shared: what the heads see them with (the paper's). still: a copy of it as
    it was before the base step, which never learns; pretrained, it tells classes apart that the base step does not
    have. It takes a second pass. both: these two side by side."""

    norm_weights: Literal["learned", "frozen"] = "learned"
    """Scale and shift of batch normalisation in the branches that later steps train; the authors' code freezes them.
    Its statistics stay either way."""

    permanent_lr: float = 0.1
    """The permanent branch learns at this multiple of the rate after the base step."""

    posterior_lr: float = 1.0
    """The image posterior learns at this multiple of the rate."""

    backbone_lr: float = 0.1
    """The backbone learns at this multiple of the rate in the base step."""

    def __post_init__(self) -> None:
        require_between("method.alpha_bc", self.alpha_bc, 0, 1)
        require_between("method.alpha_nf", self.alpha_nf, 0, 1)
        require_between("method.pseudo_min_share", self.pseudo_min_share, 0, 1)
        require_between("method.confidence", self.confidence or 0, 0, 1)
        require_between("method.rehearsal", self.rehearsal, 0, 0.9)
        require_between("method.posterior_current", self.posterior_current or 0, 0, 1)
        require_between("method.gate_threshold", self.gate_threshold, 0, 1)
        for name in ("lambda_current", "lambda_permanent", "permanent_lr", "posterior_lr", "backbone_lr"):
            require_at_least(f"method.{name}", getattr(self, name), 0)
        if self.gate != "none" and not self.image_posterior:
            raise UserError(
                f"method.gate is {self.gate}, but without method.image_posterior nothing gates. Set it to none."
            )
        if self.noise_filtering and not self.decoupling:
            raise UserError(
                "method.noise_filtering needs method.decoupling: without it heads have no channel for other "
                "foreground. Set noise_filtering: false as well."
            )

    @property
    def threshold(self) -> float:
        """The confidence in force."""
        return self.confidence if self.confidence is not None else 0.0 if self.decoupling else 0.7

    @property
    def unknown_is_background(self) -> bool:
        """Whether the unknown channel joins the background at inference."""
        return self.unknown == "background" or (self.unknown == "auto" and not self.decoupling)

    @property
    def trains_posterior(self) -> bool:
        """Whether a posterior learns from batches."""
        return self.image_posterior and self.posterior == "learned"

    @property
    def replayed_labels(self) -> Literal["current"] | None:
        """Remembered pictures are stored without annotation; the step that runs may have its own."""
        return "current" if self.mem_labels == "current" else None

    @property
    def replays(self) -> bool:
        """Whether remembered pictures are shown again, to heads or posterior."""
        return self.trains_posterior or self.rehearsal > 0

    def needs(self) -> dict[str, tuple[bool, str]]:
        """Of settings that do not always count, whether they do, and when they would."""
        posterior = (self.image_posterior, "method.image_posterior")
        learned = (self.trains_posterior, "a learned method.posterior")
        pseudo = (posterior[0] and self.image_labels == "pseudo", "method.image_labels: pseudo")
        return {
            **dict.fromkeys(("alpha_bc", "image_labels", "posterior", "posterior_backbone"), posterior),
            **dict.fromkeys(("posterior_current", "posterior_views", "posterior_lr"), learned),
            **dict.fromkeys(("pseudo_labels_on", "pseudo_labels_by"), pseudo),
            "alpha_nf": (self.noise_filtering, "method.noise_filtering"),
            **dict.fromkeys(("known_classes", "class_loss", "new_head"), (self.decoupling, "method.decoupling")),
            "gate_threshold": (self.gate == "bounded", "method.gate: bounded"),
        }

    def base_settings(self) -> dict[str, Any]:
        """What the base step depends on: there is no old class, no memory and no inference in it."""
        parts = ("name", "image_posterior", "posterior", "posterior_backbone", "decoupling", "known_classes")
        weights = ("lambda_current", "lambda_permanent", "class_loss", "backbone_lr", "posterior_lr")
        return {key: getattr(self, key) for key in (*parts, *weights)}

    def oracle(self) -> list[str]:
        """Full image labels are not to be had in a real step."""
        return ["method.image_labels=full"] if self.image_posterior and self.image_labels == "full" else []

    def build(self, model: ModelConfig, *, pretrained: bool = True) -> IPSeg:
        """Make the method with its network."""
        from ipseg.methods.ipseg import IPSeg

        network = Network(
            model,
            posterior=self.posterior if self.image_posterior else None,
            own_decoders=self.own_decoders,
            posterior_backbone=self.posterior_backbone,
            pretrained=pretrained,
        )
        return IPSeg(self, network)


@dataclass(frozen=True, kw_only=True)
class IPSegMomentsConfig(IPSegConfig):
    """IPSeg and what brought it nearer to joint training: no part of the paper. Everything can be set as in ipseg."""

    name: str = "ipseg_moments"
    """The method."""

    posterior: Literal["learned", "moments"] = "moments"
    """As in ipseg; the default is what gained most."""

    posterior_backbone: Literal["shared", "still", "both"] = "both"
    """As in ipseg."""

    own_decoders: bool = True
    """As in ipseg."""

    image_labels: Literal["part", "pseudo", "full"] = "part"
    """As in ipseg; with the default old classes are absent from later pictures: wrong guesses would spoil more."""

    alpha_bc: float = 0.5
    """As in ipseg; the default is the best of six on held-out photographs."""
