"""The equations of IPSeg's inference, of a model and of its teacher alike."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ipseg.methods.base import Prediction
from ipseg.models.boxes import inside
from ipseg.models.cuda_graphs import Recorder, run
from ipseg.models.features import Features
from ipseg.models.gating import Gate
from ipseg.models.heads import OTHER_FOREGROUND, PURE_BACKGROUND, UNKNOWN
from ipseg.models.lda import StreamingLDA
from ipseg.models.network import Network, logits_of
from ipseg.models.posterior import Posterior


def fuse(pixel: Tensor, posterior: Tensor, alpha_bc: float) -> Tensor:
    """Eq. 3: weigh each pixel's scores by the image posterior of their classes.

    pixel: (B, 1 + C, H, W) probabilities, background first. posterior: (B, C), for the image has no background class.
    """
    prior = F.pad(posterior, (1, 0), value=alpha_bc)
    return pixel * prior[..., None, None]


def filter_noise(probability: Tensor, logits: Tensor, other_foreground: Tensor, alpha_nf: float) -> Tensor:
    """Eq. 9: scale a class by alpha_NF where its own head rates c_f, other foreground, at least as high.

    probability, logits: (B, C_t, H, W) of one head's classes. other_foreground: (B, 1, H, W), the head's c_f logit.
    """
    return torch.where(other_foreground >= logits, alpha_nf * probability, probability)


@dataclass(frozen=True)
class Fusion:
    """Settings of Eq. 3, 8 and 9."""

    alpha_bc: float
    """Posterior of the background (Eq. 3)."""
    alpha_nf: float
    """Factor of noise filtering (Eq. 9); 1: no filter."""
    decoupled: bool
    """Temporary heads have channels c_f and c'_b before their classes."""
    unknown_joins_background: bool
    """The unknown channel is added to the background's (SSUL, and the authors' code); else it is dropped (the text)."""
    gated: bool
    """Run only the heads that can win a pixel: the same labels."""


@torch.no_grad()
def predict(network: Network, features: Features, fusion: Fusion, recorder: Recorder | None = None) -> Prediction:
    """Eq. 3, 4, 8 and 9."""
    posterior = network.posterior
    probabilities = None if posterior is None else run(recorder, posterior, features.pooled).float().sigmoid()
    if posterior is not None and probabilities is not None and fusion.gated:
        return _predict_gated(network, posterior, features, probabilities, fusion, recorder)
    permanent = run(recorder, logits_of, network.permanent, features).sigmoid()
    heads = [run(recorder, _class_scores, head, features, fusion) for head in network.temporary]
    pixel = torch.cat([background_score(permanent, fusion)[:, None], *heads], dim=1)
    scores = pixel if probabilities is None else fuse(pixel, probabilities, fusion.alpha_bc)
    return Prediction(scores, pixel, probabilities, permanent[:, UNKNOWN])


def _predict_gated(
    network: Network,
    posterior: Posterior | StreamingLDA,
    features: Features,
    probabilities: Tensor,
    fusion: Fusion,
    recorder: Recorder | None,
) -> Prediction:
    posterior_of = torch.split(probabilities, posterior.sizes, dim=1)

    def run_head(head: int, rows: Tensor) -> Tensor:
        return run(recorder, _fused_scores, network.temporary[head], features, fusion, posterior_of[head], rows)

    gate = Gate(probabilities, posterior.sizes, run_head, padded=recorder is not None)
    permanent = run(recorder, logits_of, network.permanent, features).sigmoid()
    background = fusion.alpha_bc * background_score(permanent, fusion)
    scores = gate.open(background, inside(features.canvas.boxes, features.canvas.original))
    return Prediction(scores, None, probabilities, permanent[:, UNKNOWN], heads_run=gate.share)


def background_score(permanent: Tensor, fusion: Fusion) -> Tensor:
    """(B, H, W) of the permanent branch's probabilities, (B, 2, H, W)."""
    background = permanent[:, PURE_BACKGROUND]
    return background + permanent[:, UNKNOWN] if fusion.unknown_joins_background else background


def class_scores(logits: Tensor, fusion: Fusion) -> Tensor:
    """(B, C_t, H, W): one head's classes, noise filtered (Eq. 9)."""
    if not fusion.decoupled:
        return logits.sigmoid()
    classes, other = logits[:, 2:], logits[:, OTHER_FOREGROUND : OTHER_FOREGROUND + 1]
    return filter_noise(classes.sigmoid(), classes, other, fusion.alpha_nf)


def _class_scores(head: nn.Module, features: Features, fusion: Fusion) -> Tensor:
    return class_scores(logits_of(head, features), fusion)


def _fused_scores(head: nn.Module, features: Features, fusion: Fusion, posterior: Tensor, rows: Tensor) -> Tensor:
    """The scores of one head in some images, times the posterior of its classes, (B, C_t)."""
    return _class_scores(head, features[rows], fusion) * posterior[rows, :, None, None]
