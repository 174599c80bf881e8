"""Which classes are in an image: how often the model's answer is right, whichever way the answer is read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ipseg.evaluation.metrics import mean

READINGS = ("posterior", "pixel", "both")
"""The image posterior alone, the classes of the predicted mask alone, and the mask after fusion with the posterior."""

Sets = NDArray[np.bool_]


class ImageLevel:
    """Sets of classes, true and predicted, gathered image by image as rows of (images, classes) arrays."""

    def __init__(self) -> None:
        self._sets: dict[str, list[Sets]] = {}

    def update(
        self, truth: Sets, *, posterior: Sets | None = None, pixel: Sets | None = None, both: Sets | None = None
    ) -> None:
        """Add a batch of (B, C) sets. A reading that the method does not have is None, in every batch."""
        given = {"truth": truth, "posterior": posterior, "pixel": pixel, "both": both}
        batch = {name: np.asarray(sets, dtype=bool) for name, sets in given.items() if sets is not None}
        shapes = {sets.shape for sets in batch.values()}
        if len(shapes) != 1 or truth.ndim != 2:
            raise ValueError(f"truth and readings must share one shape (B, C), got {sorted(shapes)}.")
        self._extend({name: [sets] for name, sets in batch.items()})

    def merge(self, other: ImageLevel) -> None:
        if other._sets:
            self._extend(other._sets)

    def accuracy(self, columns: Sequence[int]) -> dict[str, float | None]:
        """Share of images whose set of classes, among these columns, is exactly right; for each reading."""
        return {
            reading: float((truth == predicted).all(axis=1).mean()) if truth.size else None
            for reading, (truth, predicted) in self._pairs(columns).items()
        }

    def f1(self, columns: Sequence[int]) -> dict[str, float | None]:
        """Macro-F1 over the classes of these columns; one that is neither there nor predicted is left out."""
        return {reading: _macro_f1(*pair) for reading, pair in self._pairs(columns).items()}

    def _extend(self, batches: dict[str, list[Sets]]) -> None:
        if self._sets and self._sets.keys() != batches.keys():
            raise ValueError(f"readings changed from {sorted(self._sets)} to {sorted(batches)} between batches.")
        for name, sets in batches.items():
            self._sets.setdefault(name, []).extend(sets)

    def _pairs(self, columns: Sequence[int]) -> dict[str, tuple[Sets, Sets]]:
        """Truth and prediction of each reading; both empty where the method does not have it."""
        empty = np.zeros((0, len(columns)), dtype=bool)
        chosen = {name: np.concatenate(sets)[:, list(columns)] for name, sets in self._sets.items()}
        return {
            reading: (chosen["truth"], chosen[reading]) if reading in chosen else (empty, empty) for reading in READINGS
        }


def _macro_f1(truth: Sets, predicted: Sets) -> float | None:
    hits = (truth & predicted).sum(axis=0)
    total = truth.sum(axis=0) + predicted.sum(axis=0)  # of F1 = 2 hits / (2 hits + misses + false alarms)
    return mean(2 * int(hit) / int(count) if count else None for hit, count in zip(hits, total, strict=True))
