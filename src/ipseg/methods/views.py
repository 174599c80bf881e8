"""Features of replayed images for the posterior of IPSeg, with `posterior_views: fixed`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Views:
    """The posterior's inputs and labels of replayed images, each augmented in some ways."""

    pooled: Tensor
    labels: Tensor
    """(N, C) bool."""
    count: int
    """So many join a batch."""

    def join(self, pooled: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """A batch of the posterior with some of them, drawn anew."""
        rows = torch.randint(len(self.pooled), (self.count,), device=pooled.device)
        return torch.cat([pooled, self.pooled[rows]]), torch.cat([labels, self.labels[rows]])
