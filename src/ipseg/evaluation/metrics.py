"""IoU from a confusion matrix, and its means over the groups of classes that papers report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ipseg.scenario import BACKGROUND

Absent = Literal["skip", "zero"]


def iou(counts: NDArray[np.int64], absent: Absent = "skip") -> list[float | None]:
    """Intersection over union of each class (rows of `counts` are the truth, columns the prediction).

    A class without a true pixel has no IoU: "skip" gives None, which means leave out (MiB, PLOP); "zero" gives 0,
    which pulls the means down (SSUL, IPSeg).

    >>> iou(np.array([[3, 1, 0], [0, 4, 0], [0, 0, 0]]))
    [0.75, 0.8, None]
    """
    right, truth, predicted = counts.diagonal(), counts.sum(axis=1), counts.sum(axis=0)
    nothing = None if absent == "skip" else 0.0
    return [
        int(hit) / int(true + guessed - hit) if true else nothing
        for hit, true, guessed in zip(right, truth, predicted, strict=True)
    ]


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of the values that are there; None where none is.

    >>> mean([0.25, None, 0.75])
    0.5
    """
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None


def harmonic_mean(first: float | None, second: float | None) -> float | None:
    """High only where both are high; None where one is missing.

    >>> harmonic_mean(0.75, 0.25)
    0.375
    """
    if first is None or second is None:
        return None
    return 2 * first * second / (first + second) if first + second else 0.0


def miou_groups(iou: Mapping[str, float | None], base: Sequence[str], new: Sequence[str]) -> dict[str, float | None]:
    """Mean IoU over the groups that the field reports: `base` of step 0, `new` of all later steps.

    Background counts in "all" and "base", as in SSUL, PLOP and IPSeg; the "_foreground" groups go without it.
    "new" and "harmonic" (of base and new) are None after step 0.
    """
    background, base_ious, new_ious = iou[BACKGROUND], [iou[name] for name in base], [iou[name] for name in new]
    with_background, new_mean = mean([background, *base_ious]), mean(new_ious)
    return {
        "all": mean([background, *base_ious, *new_ious]),
        "base": with_background,
        "new": new_mean,
        "harmonic": harmonic_mean(with_background, new_mean),
        "background": background,
        "base_foreground": mean(base_ious),
        "new_foreground": new_mean,  # background is never in "new"; named so that both groups read alike
    }
