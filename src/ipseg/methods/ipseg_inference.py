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
from ipseg.model.network import Features, logits_of
from ipseg.model.posterior import Posterior


@dataclass(frozen=True)
class Branches:
    """A model without its encoder, which all models of a run share after the base step."""

    permanent: nn.Module
    heads: Sequence[nn.Module]
    posterior: Posterior | None


def answer(branches: Branches, features: Features, config: IPSegConfig, *, rivals: bool = False) -> Prediction:
    """Eq. 3, 4, 8 and 9. `rivals`: unknown and background are not added up in the final scores, whatever is set."""
    permanent = logits_of(branches.permanent, features).sigmoid()
    background = permanent.amax(1) if rivals else _background(permanent, config)
    seen = None if branches.posterior is None else branches.posterior(features.pooled).float().sigmoid()
    if branches.posterior is None or seen is None or config.gate == "none":
        pixel = _every_head(permanent, branches, features, config)
        scores = torch.cat([background[:, None], pixel[:, 1:]], dim=1) if rivals else pixel
        scores = scores if seen is None else fuse(scores, seen, config.alpha_bc)
        return Prediction(scores, pixel, seen, permanent[:, UNKNOWN])

    def run(head: int, rows: Tensor) -> Tensor:
        prior = posterior_of[head][rows, :, None, None]
        return class_scores(branches.heads[head], features[rows], config) * prior

    classes = branches.posterior.sizes
    posterior_of = torch.split(seen, classes, dim=1)
    gate = Gate(config.alpha_bc * background, seen, classes, run)
    scores = gate.open(inside(features.boxes, features.size), config.gate_threshold if config.gate == "bounded" else 0)
    return Prediction(scores, None, seen, permanent[:, UNKNOWN], heads_run=gate.share)


def pixel_scores(branches: Branches, features: Features, config: IPSegConfig) -> Tensor:
    """Eq. 8 alone: background from the permanent branch and classes from every temporary one, no posterior asked."""
    return _every_head(logits_of(branches.permanent, features).sigmoid(), branches, features, config)


def _every_head(permanent: Tensor, branches: Branches, features: Features, config: IPSegConfig) -> Tensor:
    heads = [class_scores(head, features, config) for head in branches.heads]
    return torch.cat([_background(permanent, config)[:, None], *heads], dim=1)


def class_scores(head: nn.Module, features: Features, config: IPSegConfig) -> Tensor:
    """One head's classes, noise filtered (Eq. 9)."""
    logits = logits_of(head, features)
    if not config.decoupling:
        return logits.sigmoid()
    classes, other = logits[:, 2:], logits[:, OTHER_FOREGROUND : OTHER_FOREGROUND + 1]
    return filter_noise(classes.sigmoid(), classes, other, config.alpha_nf if config.noise_filtering else 1.0)


def _background(permanent: Tensor, config: IPSegConfig) -> Tensor:
    background = permanent[:, PURE_BACKGROUND]
    return background + permanent[:, UNKNOWN] if config.unknown_is_background else background
