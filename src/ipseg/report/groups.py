"""What a page draws of a row of the table: its runs, its colour, and its means over seeds."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

from ipseg.evaluation.results import RunResult, StepResult, forgetting
from ipseg.report.compare import Entry, Line, Section, sections
from ipseg.report.plot_style import FAINT, RUN_COLOURS, run_colours
from ipseg.report.rows import learned_at_once

MOST = len(RUN_COLOURS)
"""Rows that are drawn everywhere: as many as there are colours that can be told apart. The table has them all."""
MOST_LINES = 24
"""Rows whose mIoU over the steps is drawn: the others have thin lines, told apart by their names alone."""


@dataclass(frozen=True)
class Mean:
    """A number after a step, in percent, over the seeds."""

    step: int
    mean: float | None
    spread: float | None


@dataclass(frozen=True)
class Drawn:
    """A row of the table, as it is drawn."""

    line: Line
    colour: str
    level: bool = False
    """It learned at once what others learn in several steps: it stands beside their last one."""

    @property
    def name(self) -> str:
        """Its name with what a reader must not overlook."""
        return self.line.shown

    @property
    def results(self) -> list[RunResult]:
        """Its runs; they differ in their seeds alone."""
        return [entry.result for entry in self.line.entries]

    @property
    def dashed(self) -> bool:
        """Whether it is a bound, and no rival."""
        return bool(self.level or self.line.bound or self.line.oracle)

    @property
    def measured_alike(self) -> bool:
        """Whether numbers of its steps belong together, and may be joined by a line."""
        return all(result.measured_alike for result in self.results)

    def over_steps(self, value: Callable[[StepResult], float | None]) -> list[Mean]:
        """A number after every step that all its seeds have finished."""
        return [_mean(steps, value) for steps in zip(*(result.steps for result in self.results), strict=False)]

    def iou(self) -> list[dict[str, float | None]]:
        """The IoU of every class after every step, in percent."""
        by_step = zip(*(result.steps for result in self.results), strict=False)
        return [
            {name: _percent([step.iou.get(name) for step in steps])[0] for name in steps[0].iou} for steps in by_step
        ]

    def forgetting(self) -> dict[str, float | None]:
        """What each class lost since it was best, in percent; of runs whose steps were measured alike."""
        lost = [forgetting(result.steps) for result in self.results if result.measured_alike]
        return {name: _percent([one.get(name) for one in lost])[0] for name in dict.fromkeys(chain(*lost))}


def drawn(section: Section) -> list[Drawn]:
    """The rows of a scenario that have something to draw, with their colours; of too many, the best."""
    lines = _from_best(section, 0, MOST)
    return _as_drawn(section, lines, run_colours([line.name for line in lines]))


def thinly_drawn(section: Section) -> list[Drawn]:
    """The next best rows, which have a thin line among the curves and are drawn nowhere else."""
    lines = _from_best(section, MOST, MOST_LINES)
    return _as_drawn(section, lines, [FAINT] * len(lines))


def undrawn(section: Section) -> list[str]:
    """Names of rows that the table alone shows."""
    return [line.shown for line in _from_best(section, MOST_LINES, len(section.lines))]


def _as_drawn(section: Section, lines: Sequence[Line], colours: Sequence[str]) -> list[Drawn]:
    results = [entry.result for line in section.lines for entry in line.entries if entry.result.steps]
    return [
        Drawn(line, colour, learned_at_once(line.entries[0].result, results))
        for line, colour in zip(lines, colours, strict=True)
    ]


def _from_best(section: Section, start: int, end: int) -> list[Line]:
    """The rows with something to draw that are at these places from the best one on, in the table's order."""
    known = [line for line in section.lines if all(entry.result.steps for entry in line.entries)]
    chosen = {line.shown for line in sorted(known, key=_merit, reverse=True)[start:end]}
    return [line for line in known if line.shown in chosen]


def _merit(line: Line) -> float:
    """The mIoU after the last step; a run that has not come so far is behind all others."""
    value = line.means.get("all")
    return -1.0 if value is None else value


def longest(rows: Sequence[Drawn]) -> tuple[StepResult, ...]:
    """The steps of the run that learned in most of them: what was learned when."""
    return max((row.results[0].steps for row in rows), key=len, default=())


def sections_of(results: Sequence[RunResult]) -> list[Section]:
    """Tables of results that stand for themselves; those of one name that differ in their seeds are one row."""
    entries = [
        Entry(result=result, group=json.dumps([result.name, result.scenario, result.setting, result.oracle]))
        for result in results
        if result.steps
    ]
    return sections(entries)


def _mean(steps: Sequence[StepResult], value: Callable[[StepResult], float | None]) -> Mean:
    return Mean(steps[0].step, *_percent([value(step) for step in steps]))


def _percent(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Mean and spread in percent, over the seeds that have the number: a seed's validation may lack a class."""
    known = [100 * value for value in values if value is not None]
    if not known:
        return None, None
    return statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None
