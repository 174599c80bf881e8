"""The confusion matrix after the last step, and the confusions that are most frequent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ipseg.evaluation.results import RunResult

MIN_SHARE = 0.01
"""Share of a class below which a confusion is not reported: every model confuses a little."""


@dataclass(frozen=True)
class Confusion:
    """Shares of the pixels of each true class (row) that are predicted as each class (column); NaN without pixels."""

    names: tuple[str, ...]
    shares: NDArray[np.float64]
    wrong: NDArray[np.int64]
    """Of each class: its pixels that are predicted as another one, and those of others that are predicted as it."""

    @classmethod
    def of_counts(cls, names: Sequence[str], counts: NDArray[np.int64]) -> Confusion:
        """From pixels by (true class, predicted class)."""
        total = counts.sum(axis=1, keepdims=True)
        shares = np.where(total > 0, counts / np.maximum(total, 1), np.nan)
        return cls(tuple(names), shares, counts.sum(axis=0) + counts.sum(axis=1) - 2 * counts.diagonal())

    def of(self, names: Sequence[str]) -> Confusion:
        """The part between these classes, in this order."""
        places = [self.names.index(name) for name in names]
        return Confusion(tuple(names), self.shares[np.ix_(places, places)], self.wrong[places])

    def worst(self, most: int) -> Confusion:
        """The part between the classes with most wrong pixels, where the whole is too large to be read."""
        kept = sorted(np.argsort(-self.wrong, kind="stable")[:most].tolist())
        return self.of([self.names[place] for place in kept])

    def largest(self, most: int = 4) -> list[tuple[str, str, float]]:
        """True class, predicted class and share of the largest errors. Every class counts alike, as in the mIoU."""
        shares = np.nan_to_num(self.shares * (1 - np.eye(len(self.names))))
        order = np.argsort(-shares, axis=None, kind="stable")[:most]
        places = [divmod(place, len(self.names)) for place in order.tolist()]
        return [(self.names[t], self.names[p], float(shares[t, p])) for t, p in places if shares[t, p] >= MIN_SHARE]


def last_confusion(results: Sequence[RunResult]) -> Confusion | None:
    """After the last step, pixels of all seeds together; none where a run has not stored them."""
    names = tuple(results[0].steps[-1].iou)
    counts = np.zeros((len(names), len(names)), dtype=np.int64)
    for result in results:
        matrix = result.steps[-1].confusion
        if matrix is None:
            return None
        counts += np.array([[matrix.get(true, {}).get(predicted, 0) for predicted in names] for true in names])
    return Confusion.of_counts(names, counts)
