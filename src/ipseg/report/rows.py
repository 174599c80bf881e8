"""What a comparison says, as plain values: the terminal, Markdown and the page all draw these rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ipseg.evaluation.results import RunResult

DAGGER = "†"
COLUMNS = ("base", "new", "all", "harmonic", "average", "forgetting")
LOWER_IS_BETTER = "forgetting"


@dataclass(frozen=True)
class Cell:
    """A number as people read it."""

    text: str
    best: bool = False
    """No comparable run has a better one."""


@dataclass(frozen=True)
class Row:
    """One run of a comparison."""

    name: str
    scenario: str
    cells: tuple[Cell, ...]
    """In the order of COLUMNS."""


def percent(value: float | None) -> str:
    """A fraction as a percentage with one decimal.

    >>> percent(0.6149), percent(None)
    ('61.5', '–')
    """
    return "–" if value is None else f"{100 * value:.1f}".replace("-0.0", "0.0")


def display_names(results: Sequence[RunResult]) -> list[str]:
    """What each run is called: its seed where names repeat, a dagger on an oracle, how far it came if unfinished."""
    often = Counter(result.name for result in results)
    names = []
    for result in results:
        seed = f" (seed {result.seed})" if often[result.name] > 1 else ""
        dagger = f" {DAGGER}" if result.oracle else ""
        state = "" if result.complete else f" ({len(result.steps)} of {result.info['steps']} steps)"
        names.append(result.name + seed + dagger + state)
    return names


def comparison_rows(results: Sequence[RunResult]) -> list[Row]:
    """One row a run. Best is best among the finished runs of the same scenario that saw nothing they must not see."""
    measured = [numbers(result) for result in results]
    rows = []
    for result, name, own in zip(results, display_names(results), measured, strict=True):
        rivals = [
            theirs
            for rival, theirs in zip(results, measured, strict=True)
            if _contest(rival) == _contest(result) and _competes(rival)
        ]
        cells = tuple(
            Cell(percent(own[column]), best=_competes(result) and is_best(column, own, rivals)) for column in COLUMNS
        )
        rows.append(Row(name, f"{result.scenario} {result.setting}", cells))
    return rows


def notes(results: Sequence[RunResult]) -> list[str]:
    """What a reader must know to read the rows."""
    said = ["mIoU in percent after the last step; base counts background; average is all over the steps"]
    seen = sorted({setting for result in results for setting in result.oracle})
    if seen:
        said.append(f"{DAGGER} saw labels that a step must not see ({', '.join(seen)}): a bound, not a rival")
    return said


def learned_at_once(result: RunResult, results: Sequence[RunResult]) -> bool:
    """Whether the run's only step is the whole story that others learn in several: it stands beside their last one."""
    return result.complete and len(result.steps) == 1 < max(len(other.steps) for other in results)


def numbers(result: RunResult) -> dict[str, float | None]:
    """What a run's row says, by COLUMNS: fractions, none where nothing was measured."""
    final = result.final()
    miou = final.get("miou", {})
    values = {column: miou.get(column) for column in COLUMNS[:4]}
    return values | {"average": final.get("average"), "forgetting": final.get("forgetting_mean")}


def _contest(result: RunResult) -> tuple[str, str]:
    return result.scenario, result.setting


def _competes(result: RunResult) -> bool:
    return result.complete and not result.oracle


def is_best(column: str, own: dict[str, float | None], rivals: Sequence[dict[str, float | None]]) -> bool:
    """Whether no rival shows a better number; runs that show the same one share the honour. Alone, none is best."""
    shown = [float(percent(value)) for rival in rivals if (value := rival[column]) is not None]
    value = own[column]
    if value is None or len(shown) < 2:
        return False
    return float(percent(value)) == (min(shown) if column == LOWER_IS_BETTER else max(shown))
