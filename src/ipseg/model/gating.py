"""Posterior-gated heads: a head that cannot win a pixel need not run.

A class's final score is at most its posterior: the pixel's probability is at most one, and noise filtering only lowers
it. So a head whose classes the posterior all but rules out loses everywhere, and that is known before it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

TURNS = (0.5, 0.2, 0.05, 0.0)
"""First run heads with a class of this posterior, then of this, ...: what they score rules most others out.

One head after the other would run a few less, and wait for the device as often as there are heads.
"""

RunHead = Callable[[int, Tensor], Tensor]
"""(head, rows) -> (len(rows), C_head, H, W): the final scores of a head's classes in these pictures."""


class Gate:
    """Final scores of background and classes, with only those heads run that may matter; the others score zero."""

    def __init__(self, background: Tensor, posterior: Tensor, classes: Sequence[int], run: RunHead) -> None:
        """background: (B, H, W) final scores; posterior: (B, C); classes: how many each head has, in their order."""
        self.bounds = torch.stack([part.amax(1) for part in torch.split(posterior, list(classes), dim=1)], dim=1)
        self.ends = [1 + sum(classes[: head + 1]) for head in range(len(classes))]
        self.classes, self.run = classes, run
        self.scores = background.new_zeros(len(background), self.ends[-1], *background.shape[1:])
        self.scores[:, 0] = background
        self.ran = 0
        """Heads run, over all pictures."""

    @property
    def share(self) -> float:
        """Of the heads that would run without a gate."""
        return self.ran / self.bounds.numel()

    def open(self, shown: Tensor, least: float = 0.0) -> Tensor:
        """Run the likely heads, then those less likely that could still win a pixel that is `shown`, (B, H, W).

        With `least` also those are skipped whose classes the posterior all rates below it. So may then their scores be.
        """
        best = self.scores[:, 0].masked_fill(~shown, 1)
        ran = torch.zeros_like(self.bounds, dtype=torch.bool)
        for likely in TURNS:
            may_win = self.bounds >= best.flatten(1).amin(1, keepdim=True)
            turn = may_win & ~ran & (self.bounds >= max(likely, least))
            ran |= turn
            for head, rows in _by_head(turn.nonzero().tolist()):  # the one moment of a turn in which we wait
                at = self._score(head, rows)
                best[at] = torch.maximum(best[at], self.scores[at, self._first(head) : self.ends[head]].amax(1))
        return self.scores

    def _first(self, head: int) -> int:
        return self.ends[head] - self.classes[head]

    def _score(self, head: int, rows: list[int]) -> Tensor:
        at = torch.tensor(rows, device=self.scores.device)
        self.scores[at, self._first(head) : self.ends[head]] = self.run(head, at)
        self.ran += len(rows)
        return at


def _by_head(turn: Sequence[tuple[int, int]]) -> Iterator[tuple[int, list[int]]]:
    """(row, head) -> each head with all its rows."""
    rows: dict[int, list[int]] = {}
    for row, head in turn:
        rows.setdefault(head, []).append(row)
    return iter(sorted(rows.items()))
