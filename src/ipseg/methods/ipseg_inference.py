"""What a model of IPSeg answers: the equations of inference, for today's model and for the previous one alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ipseg.methods.base import Prediction
from ipseg.methods.ipseg_config import IPSegConfig
from ipseg.model.boxes import inside
from ipseg.model.fusion import filter_noise, fuse
from ipseg.model.gating import Gate
from ipseg.model.heads import OTHER_FOREGROUND, PURE_BACKGROUND, UNKNOWN
from ipseg.model.moments import Moments
from ipseg.model.network import Features, logits_of
from ipseg.model.posterior import Posterior
from ipseg.model.recording import recordable


@dataclass(frozen=True)
class Branches:
    """A model without its encoder, which all models of a run share after the base step."""

    permanent: nn.Module
    heads: Sequence[nn.Module]
    posterior: Posterior | Moments | None


def answer(branches: Branches, features: Features, config: IPSegConfig, *, rivals: bool = False) -> Prediction:
    """Eq. 3, 4, 8 and 9. `rivals`: unknown and background are not added up in the final scores, whatever is set."""
    posterior = branches.posterior
    seen = None if posterior is None else posterior(features.pooled).float().sigmoid()
    if posterior is not None and seen is not None and config.gate != "none":
        return _gated(branches, features, config, seen, posterior.sizes, rivals=rivals)
    permanent = logits_of(branches.permanent, features).sigmoid()
    pixel = _every_head(permanent, branches, features, config)
    scores = torch.cat([permanent.amax(1, keepdim=True), pixel[:, 1:]], dim=1) if rivals else pixel
    scores = scores if seen is None else fuse(scores, seen, config.alpha_bc)
    return Prediction(scores, pixel, seen, permanent[:, UNKNOWN])


def _gated(
    branches: Branches, features: Features, config: IPSegConfig, seen: Tensor, classes: Sequence[int], *, rivals: bool
) -> Prediction:
    posterior_of = torch.split(seen, list(classes), dim=1)
    alpha_nf = _alpha_nf(config)

    def run(head: int, rows: Tensor) -> Tensor:
        return _final_scores(branches.heads[head], features, alpha_nf, posterior_of[head], rows)

    gate = Gate(seen, classes, run)
    permanent = logits_of(branches.permanent, features).sigmoid()
    background = permanent.amax(1) if rivals else _background(permanent, config)
    least = config.gate_threshold if config.gate == "bounded" else 0.0
    scores = gate.open(config.alpha_bc * background, inside(features.boxes, features.size), least)
    return Prediction(scores, None, seen, permanent[:, UNKNOWN], heads_run=gate.share)


def pixel_scores(branches: Branches, features: Features, config: IPSegConfig) -> Tensor:
    """Eq. 8 alone: background from the permanent branch and classes from every temporary one, no posterior asked."""
    return _every_head(logits_of(branches.permanent, features).sigmoid(), branches, features, config)


def _every_head(permanent: Tensor, branches: Branches, features: Features, config: IPSegConfig) -> Tensor:
    heads = [_class_scores(head, features, _alpha_nf(config)) for head in branches.heads]
    return torch.cat([_background(permanent, config)[:, None], *heads], dim=1)


def _alpha_nf(config: IPSegConfig) -> float | None:
    """None: a head has no c_f to be filtered by."""
    return (config.alpha_nf if config.noise_filtering else 1.0) if config.decoupling else None


@recordable
def _class_scores(head: nn.Module, features: Features, alpha_nf: float | None) -> Tensor:
    """One head's classes, noise filtered (Eq. 9)."""
    logits = logits_of(head, features)
    if alpha_nf is None:
        return logits.sigmoid()
    classes, other = logits[:, 2:], logits[:, OTHER_FOREGROUND : OTHER_FOREGROUND + 1]
    return filter_noise(classes.sigmoid(), classes, other, alpha_nf)


@recordable
def _final_scores(
    head: nn.Module, features: Features, alpha_nf: float | None, posterior: Tensor, rows: Tensor
) -> Tensor:
    """The same in some pictures, weighed by what the posterior says of these classes, (B, C_head)."""
    return _class_scores(head, features[rows], alpha_nf) * posterior[rows, :, None, None]


def _background(permanent: Tensor, config: IPSegConfig) -> Tensor:
    background = permanent[:, PURE_BACKGROUND]
    return background + permanent[:, UNKNOWN] if config.unknown_is_background else background
