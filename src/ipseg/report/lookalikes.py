"""Which classes are taken for which: the confusion matrix after the last step, and its worst pairs in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ipseg.evaluation.results import BACKGROUND, RunResult

LEAST = 0.01
"""Share of a class below which a confusion is not called out: every model confuses a little."""


@dataclass(frozen=True)
class Confusion:
    """Pixels by (true class, predicted class)."""

    names: tuple[str, ...]
    counts: NDArray[np.int64]
    totals: NDArray[np.int64] | None = None
    """Pixels of every true class, where some are called what is left out here; none: counts have all of them."""

    @property
    def shares(self) -> NDArray[np.float64]:
        """Of each class's pixels, the share that is called each class; NaN where there are none."""
        total = self._totals()[:, None]
        return np.where(total > 0, self.counts / np.maximum(total, 1), np.nan)

    def of(self, names: Sequence[str]) -> Confusion:
        """The part between these classes."""
        places = [self.names.index(name) for name in names]
        return Confusion(tuple(names), self.counts[np.ix_(places, places)], self._totals()[places])

    def _totals(self) -> NDArray[np.int64]:
        return self.counts.sum(axis=1) if self.totals is None else self.totals


@dataclass(frozen=True)
class Pair:
    """Two classes that are taken for each other."""

    first: str
    second: str
    first_as_second: float
    """The share of the first class's pixels that is called the second."""
    second_as_first: float


def last_confusion(results: Sequence[RunResult]) -> Confusion | None:
    """The pixels after the last step, of all seeds together; none where a run has not stored them."""
    stored = [result.steps[-1].confusion for result in results]
    names = tuple(results[0].steps[-1].iou)
    counts = np.zeros((len(names), len(names)), dtype=np.int64)
    for matrix in stored:
        if matrix is None:
            return None
        counts += np.array([[matrix.get(true, {}).get(said, 0) for said in names] for true in names])
    return Confusion(names, counts)


def look_alikes(confusion: Confusion, most: int = 3) -> list[Pair]:
    """The pairs of classes, background apart, whose pixels are most taken for each other; the worst first.

    Every class counts alike, as in the mIoU: a pair's measure is the sum of its two shares.
    """
    shares = np.nan_to_num(confusion.shares)
    things = [place for place, name in enumerate(confusion.names) if name != BACKGROUND]
    pairs = []
    for one, other in combinations(things, 2):
        a, b = (one, other) if shares[one, other] >= shares[other, one] else (other, one)
        if shares[a, b] >= LEAST:
            pairs.append(Pair(confusion.names[a], confusion.names[b], float(shares[a, b]), float(shares[b, a])))
    return sorted(pairs, key=lambda pair: -pair.first_as_second - pair.second_as_first)[:most]


def say_pair(pair: Pair) -> str:
    """The pair in words.

    >>> say_pair(Pair("horse", "cow", 0.314, 0.052))
    '31 % of horse is called cow, and 5 % of cow is called horse'
    >>> say_pair(Pair("horse", "cow", 0.314, 0.002))
    '31 % of horse is called cow; hardly any cow is called horse'
    """
    one = f"{_share(pair.first_as_second)} of {pair.first} is called {pair.second}"
    if pair.second_as_first < 0.005:
        return f"{one}; hardly any {pair.second} is called {pair.first}"
    return f"{one}, and {_share(pair.second_as_first)} of {pair.second} is called {pair.first}"


def say_missed(confusion: Confusion, most: int = 2) -> str:
    """The classes that are most often taken for background, in words; nothing where none is.

    >>> say_missed(Confusion(("background", "cow"), np.array([[9, 1], [6, 4]])))
    'Most often missed: cow (60 % of it is called background)'
    """
    if BACKGROUND not in confusion.names:
        return ""
    missed = dict(zip(confusion.names, confusion.shares[:, confusion.names.index(BACKGROUND)].tolist(), strict=True))
    worst = sorted((name for name, share in missed.items() if name != BACKGROUND and share >= LEAST), key=missed.get)  # type: ignore[arg-type]
    told = [f"{name} ({_share(missed[name])} of it is called background)" for name in worst[::-1][:most]]
    return f"Most often missed: {', '.join(told)}" if told else ""


def most_confused(confusion: Confusion, most: int) -> Confusion:
    """The matrix, or of one that is too large to read the part between the classes with most wrong pixels."""
    if len(confusion.names) <= most:
        return confusion
    wrong = confusion.counts.sum(axis=0) + confusion.counts.sum(axis=1) - 2 * confusion.counts.diagonal()
    kept = sorted(np.argsort(-wrong, kind="stable")[:most].tolist())
    return confusion.of([confusion.names[place] for place in kept])


def _share(value: float) -> str:
    return f"{100 * value:.0f} %" if value >= 0.01 else "under 1 %"
