"""What a comparison says, as plain values: the terminal, Markdown and the page all draw these rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ipseg.evaluation.results import RunResult

DAGGER = "†"
COLUMNS = ("base", "new", "all", "harmonic", "average", "forgetting")
LOWER_IS_BETTER = "forgetting"
NUMBERS = (
    "mIoU in percent after the last step: base of background and the classes of step 0, new of those of later steps; "
    "harmonic: the harmonic mean of both; average: all, averaged over the steps",
    "forgetting: how much of their best IoU background and the classes of earlier steps have lost; below zero they got "
    "better",
)
"""What the columns mean."""


@dataclass(frozen=True)
class Cell:
    """A number as people read it."""

    text: str
    best: bool = False
    """No comparable run has a better one."""


def percent(value: float | None) -> str:
    """A fraction as a percentage with one decimal.

    >>> percent(0.6149), percent(None)
    ('61.5', '–')
    """
    return "–" if value is None else f"{100 * value:.1f}".replace("-0.0", "0.0")


def learned_at_once(result: RunResult, results: Sequence[RunResult]) -> bool:
    """Whether the run's only step is the whole story that others learn in several: it stands beside their last one."""
    return result.complete and len(result.steps) == 1 < max(len(other.steps) for other in results)


def numbers(result: RunResult) -> dict[str, float | None]:
    """What a run's row says, by COLUMNS: fractions, none where nothing was measured."""
    final = result.final()
    miou = final.get("miou", {})
    values = {column: miou.get(column) for column in COLUMNS[:4]}
    return values | {"average": final.get("average"), "forgetting": final.get("forgetting_mean")}


def is_best(column: str, own: dict[str, float | None], rivals: Sequence[dict[str, float | None]]) -> bool:
    """Whether no rival shows a better number; runs that show the same one share the honour. Alone, none is best."""
    shown = [float(percent(value)) for rival in rivals if (value := rival[column]) is not None]
    value = own[column]
    if value is None or len(shown) < 2:
        return False
    return float(percent(value)) == (min(shown) if column == LOWER_IS_BETTER else max(shown))
