"""How branches become one prediction: the equations of inference, one small function each."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


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
