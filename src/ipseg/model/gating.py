"""Posterior-gated heads: a head that cannot win a pixel need not run.

A class's final score is at most its posterior: the pixel's probability is at most one, and noise filtering only lowers
it. So a head whose classes the posterior all but rules out loses everywhere, and that is known before it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor

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

    def bounded(self, threshold: float) -> Tensor:
        """Run what the posterior rates at `threshold` or more. What is skipped has scores below it."""
        wanted = (self.bounds >= threshold).nonzero().tolist()
        for head, rows in _by_head((head, row) for row, head in wanted):
            self._score(head, rows)
        return self.scores

    def exact(self, shown: Tensor) -> Tensor:
        """Run heads, the likeliest first, until no other could win a pixel that is `shown`, (B, H, W)."""
        best = self.scores[:, 0].masked_fill(~shown, 1)
        order = self.bounds.argsort(dim=1, descending=True, stable=True)
        for heads, bounds in zip(order.unbind(1), self.bounds.gather(1, order).unbind(1), strict=True):
            may_win = bounds >= best.flatten(1).amin(1)
            wanted = torch.where(may_win, heads, -1).tolist()  # the one moment of a turn in which we wait
            for head, rows in _by_head((head, row) for row, head in enumerate(wanted) if head >= 0):
                at = self._score(head, rows)
                best[at] = torch.maximum(best[at], self.scores[at, self._first(head) : self.ends[head]].amax(1))
            if max(wanted) < 0:
                break
        return self.scores

    def _first(self, head: int) -> int:
        return self.ends[head] - self.classes[head]

    def _score(self, head: int, rows: list[int]) -> Tensor:
        at = torch.tensor(rows, device=self.scores.device)
        self.scores[at, self._first(head) : self.ends[head]] = self.run(head, at)
        self.ran += len(rows)
        return at


def _by_head(pairs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, list[int]]]:
    """(head, row) -> each head with all its rows."""
    rows: dict[int, list[int]] = {}
    for head, row in pairs:
        rows.setdefault(head, []).append(row)
    return iter(sorted(rows.items()))
