"""Posterior-gated heads: a head that cannot win a pixel need not run.

A class's final score is at most its posterior: the pixel's probability is at most one, and noise filtering only lowers
it. So a head whose classes all have a low posterior loses everywhere, and that is known before it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

TURNS = (0.5, 0.2, 0.05, 0.0)
"""First run heads with a class of this posterior, then of this, ...: what they score rules most others out.

One head after the other would run a few less, and wait for the device as often as there are heads.
"""

RunHead = Callable[[int, Tensor], Tensor]
"""(head, rows) -> (len(rows), C_head, H, W): the final scores of a head's classes in these images."""


class Gate:
    """Final scores of background and classes, with only those heads run that may matter; the others score zero."""

    def __init__(self, posterior: Tensor, classes: Sequence[int], run: RunHead, *, padded: bool = False) -> None:
        """posterior: (B, C), which is waited for here; classes: how many each head has, in their order.

        padded: images of a head are repeated up to a power of two. Recorded heads need it: each number of images is a
        recording of its own.
        """
        starts = [0, *accumulate(classes[:-1])]
        self.bounds = torch.from_numpy(np.maximum.reduceat(posterior.cpu().numpy(), starts, axis=1))
        self.channels = [slice(1 + start, 1 + start + count) for start, count in zip(starts, classes, strict=True)]
        self.run, self.padded = run, padded
        self.ran = 0
        """Heads run, over all images."""

    @property
    def share(self) -> float:
        """Of the heads that would run without a gate."""
        return self.ran / self.bounds.numel()

    def open(self, background: Tensor, shown: Tensor) -> Tensor:
        """Run the likely heads, then those less likely that could still win a pixel that is `shown`, (B, H, W).

        background: (B, H, W) final scores. The first turn does not wait for them: its heads mostly win somewhere.
        """
        scores = background.new_zeros(len(background), self.channels[-1].stop, *background.shape[1:])
        scores[:, 0] = background
        best, left, likely = background.masked_fill(~shown, 1), torch.ones_like(self.bounds, dtype=torch.bool), TURNS[0]
        while left.any():
            turn = left & (self.bounds >= likely)
            if turn.any():
                self._run(turn, scores)
                best = torch.maximum(best, scores.amax(1))
            left &= ~turn & (self.bounds >= best.flatten(1).amin(1, keepdim=True).cpu())  # here we wait
            likely = next((bound for bound in TURNS if (self.bounds[left] >= bound).any()), 0.0)
        return scores

    def _run(self, turn: Tensor, scores: Tensor) -> None:
        """turn: (B, heads) bool."""
        columns = [[row for row, wanted in enumerate(column) if wanted] for column in turn.T.tolist()]
        rows = {head: column for head, column in enumerate(columns) if column}
        if self.padded:
            lengths = {head: 2 ** (len(some) - 1).bit_length() for head, some in rows.items()}
            rows = {head: some + some[:1] * (lengths[head] - len(some)) for head, some in rows.items()}
        at = torch.tensor([row for some in rows.values() for row in some], device=scores.device)
        for head, some in zip(rows, torch.split(at, [len(some) for some in rows.values()]), strict=True):
            scores[:, self.channels[head]].index_copy_(0, some, self.run(head, some))
        self.ran += sum(map(len, columns))
