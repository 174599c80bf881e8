"""The confusion matrix after the last step, and the pairs of classes that are confused most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ipseg.evaluation.results import BACKGROUND, RunResult

LEAST = 0.01
"""Share of a class below which a confusion is not reported: every model confuses a little."""


class Pair(NamedTuple):
    """Two classes that are taken for each other."""

    first: str
    second: str
    first_as_second: float
    """The share of the first class's pixels that is predicted as the second."""
    second_as_first: float


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

    def look_alikes(self, most: int = 3) -> list[Pair]:
        """The pairs of classes, background excluded, that are confused most.

        Every class counts alike, as in the mIoU: pairs are ordered by the sum of their two shares.
        """
        shares = np.nan_to_num(self.shares)
        pairs = []
        for one, other in combinations([i for i, name in enumerate(self.names) if name != BACKGROUND], 2):
            a, b = (one, other) if shares[one, other] >= shares[other, one] else (other, one)
            if shares[a, b] >= LEAST:
                pairs.append(Pair(self.names[a], self.names[b], float(shares[a, b]), float(shares[b, a])))
        return sorted(pairs, key=lambda pair: -pair.first_as_second - pair.second_as_first)[:most]

    def missed(self, most: int = 2) -> list[tuple[str, float]]:
        """The classes that are predicted as background most often, and the share of each."""
        if BACKGROUND not in self.names:
            return []
        shares = np.nan_to_num(self.shares[:, self.names.index(BACKGROUND)]).tolist()
        found = [(n, s) for n, s in zip(self.names, shares, strict=True) if n != BACKGROUND and s >= LEAST]
        return sorted(found, key=lambda item: -item[1])[:most]


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
