"""Tables of results: runs that differ only in their seeds form a row, comparable rows form a table."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ipseg.evaluation.results import RunResult, StepResult, forgetting

DAGGER, NEAREST = "†", "≈"
COLUMNS = ("base", "new", "all", "harmonic", "average", "forgetting")
LOWER_IS_BETTER = "forgetting"
DEFINITIONS = (
    "mIoU in percent after the last step: base of background and the classes of step 0, new of those of later steps; "
    "harmonic: the harmonic mean of both; average: all, averaged over the steps",
    "forgetting: how much of their best IoU background and the classes of earlier steps have lost; below zero they got "
    "better",
)
"""Of the columns."""
Steps = tuple[tuple[str, ...], ...]
"""The new classes of every step."""


class Cell(NamedTuple):
    text: str
    best: bool = False


class Stat(NamedTuple):
    """Mean and standard deviation over seeds. The standard deviation needs two of them."""

    mean: float | None
    std: float | None


@dataclass(frozen=True)
class Setup:
    """Runs with the same setup are comparable. One name of a scenario may cover several: other classes or orders."""

    scenario: str
    setting: str
    steps: Steps
    measured: frozenset[str] = frozenset()
    """Of extended runs: the classes that the last step's data annotates."""
    held_out: float = 0.0
    """The share of training images that was measured on, instead of the validation split."""

    def continues(self, other: Setup) -> bool:
        """Whether the steps begin like those of the other one, of an unfinished run."""
        same = (self.scenario, self.setting, self.held_out) == (other.scenario, other.setting, other.held_out)
        return same and self.steps[: len(other.steps)] == other.steps

    @property
    def classes(self) -> str:
        """The classes of every step; of extended runs also the measured ones, where these are fewer."""
        learned = [name for step in self.steps for name in step]
        measured = [name for name in learned if name in self.measured]
        partly = f"; measured: {_shorten(measured) or 'none'}" if self.measured and measured != learned else ""
        return " + ".join(map(_shorten, self.steps)) + partly


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    result: RunResult
    group: str
    """Runs of one group differ only in their seeds."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Its recipe as `section.key`; empty where there is only a results.json."""
    data_seed: int | None = None
    """Of drawn scenes."""
    bound: bool = False
    """An upper bound: joint training."""
    paper: float | None = None
    """The paper's mIoU over all classes in percent, where it has the same setting."""
    folder: Path | None = None
    compared_in: Steps | None = None
    """The steps of the runs that joint training is listed with; null: its own."""

    @property
    def nearest(self) -> bool:
        """Whether `paper` is the nearest counterpart: the ablation without SD does not state which heads it has."""
        return self.paper is not None and self.settings.get("method.decoupling") is False

    @property
    def setup(self) -> Setup:
        result = self.result
        steps = tuple(step.new for step in result.steps) if self.compared_in is None else self.compared_in
        measured = result.steps[-1].measured if result.extended and result.steps else frozenset()
        held_out = float(self.settings.get("evaluation.held_out") or 0)
        return Setup(result.scenario, result.setting, steps, measured, held_out)

    @cached_property
    def scores(self) -> dict[str, float | None]:
        """COLUMNS of the last step, as fractions. An upper bound has one step, so nothing over steps."""
        final = self.result.final()
        scores = {column: final.get("miou", {}).get(column) for column in COLUMNS[:4]}
        over_steps = {"average": final.get("average"), "forgetting": final.get("forgetting_mean")}
        return scores | (dict.fromkeys(over_steps) if self.bound else over_steps)


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """Mean and standard deviation over the runs of one group, or one unfinished run."""

    name: str
    runs: tuple[ComparedRun, ...]
    state: str = ""
    """How far an unfinished run is; it has no numbers."""

    @property
    def label(self) -> str:
        """The name with a mark for bounds and the state of an unfinished run; unique in a table."""
        dagger = f" {DAGGER}" if self.oracle or self.bound else ""
        return self.name + dagger + (f" ({self.state})" if self.state else "")

    @property
    def results(self) -> list[RunResult]:
        return [run.result for run in self.runs]

    @property
    def oracle(self) -> tuple[str, ...]:
        return self.runs[0].result.oracle

    @property
    def bound(self) -> bool:
        return self.runs[0].bound

    @property
    def paper(self) -> float | None:
        return None if self.state else self.runs[0].paper

    @property
    def nearest(self) -> bool:
        return self.paper is not None and self.runs[0].nearest

    @property
    def measured_alike(self) -> bool:
        """Whether its steps were measured on the same images and classes, so that a curve may connect them."""
        return all(result.measured_alike for result in self.results)

    @cached_property
    def scores(self) -> dict[str, Stat]:
        """COLUMNS, as fractions."""
        runs = () if self.state else self.runs
        return {column: stat([run.scores[column] for run in runs]) for column in COLUMNS}

    @property
    def steps(self) -> list[tuple[StepResult, ...]]:
        """The results of all seeds, for every step that all have finished."""
        return list(zip(*(result.steps for result in self.results), strict=False))

    def over_steps(self, value: Callable[[StepResult], float | None]) -> list[Stat]:
        """A number in percent after every step, over the seeds that measured it."""
        return [_percent([value(result) for result in seeds]) for seeds in self.steps]

    def iou(self) -> dict[str, float | None]:
        """The IoU of every class in percent, after the last step."""
        seeds = self.steps[-1]
        return {name: _percent([step.iou.get(name) for step in seeds]).mean for name in seeds[0].iou}

    def forgetting(self) -> dict[str, float | None]:
        """The points of IoU that each class has lost since its best step."""
        lost = [forgetting(result.steps) for result in self.results if result.measured_alike]
        return {name: _percent([one.get(name) for one in lost]).mean for name in lost[0]} if lost else {}


@dataclass(frozen=True)
class ResultTable:
    """The rows of one setup: finished runs, then upper bounds, then unfinished runs."""

    scenario: str
    setting: str
    rows: Sequence[TableRow]
    classes: str = ""
    """The classes of every step, where other tables have the same scenario."""
    held_out: float = 0.0

    @property
    def title(self) -> str:
        where = f", measured on {100 * self.held_out:.3g} % of the training images" if self.held_out else ""
        return f"{self.scenario}{f' ({self.classes})' if self.classes else ''} {self.setting}{where}"

    @property
    def has_paper(self) -> bool:
        return any(row.paper is not None for row in self.rows)

    @property
    def columns(self) -> list[str]:
        return [*COLUMNS, "n", *(["paper"] if self.has_paper else [])]

    def cells(self, row: TableRow) -> list[Cell]:
        """COLUMNS, the number of seeds and, if any row has it, the paper's number."""
        scores = [Cell(format_mean(*row.scores[c]), self._is_best(row, c)) for c in COLUMNS]
        paper = "–" if row.paper is None else f"{NEAREST} " * row.nearest + f"{row.paper:.1f}"
        return [*scores, Cell("–" if row.state else str(len(row.runs))), *([Cell(paper)] if self.has_paper else [])]

    def _is_best(self, row: TableRow, column: str) -> bool:
        """As printed: ties are all marked best. A single number, a bound or an oracle is not."""
        rivals = [other for other in self.rows if not (other.oracle or other.bound or other.state)]
        scores = {rival.label: float(percent(v)) for rival in rivals if (v := rival.scores[column].mean) is not None}
        best = min if column == LOWER_IS_BETTER else max
        return row.label in scores and len(scores) > 1 and scores[row.label] == best(scores.values())


def make_tables(runs: Sequence[ComparedRun]) -> list[ResultTable]:
    """A table for every setup, in order of appearance; an unfinished run joins the longest that it may become."""
    setups = [run.setup for run in runs]
    members: dict[Setup, list[ComparedRun]] = {}
    for run, own in zip(runs, setups, strict=True):
        known = [own] if run.result.complete else [own, *(setup for setup in setups if setup.continues(own))]
        members.setdefault(max(known, key=lambda setup: len(setup.steps)), []).append(run)
    often = Counter((setup.scenario, setup.setting, setup.held_out) for setup in members)
    tables = []
    for setup, found in members.items():
        ambiguous = often[setup.scenario, setup.setting, setup.held_out] > 1 or found[0].result.extended
        classes = setup.classes if ambiguous else ""
        tables.append(ResultTable(setup.scenario, setup.setting, _make_rows(found), classes, setup.held_out))
    return tables


def _make_rows(runs: Sequence[ComparedRun]) -> list[TableRow]:
    names, groups = _group_names(runs), dict.fromkeys(run.group for run in runs if run.result.complete)
    rows = [
        TableRow(name=names[group], runs=tuple(run for run in runs if run.group == group and run.result.complete))
        for group in groups
    ]
    rows.sort(key=lambda row: row.bound)
    for run in runs:
        if not run.result.complete:
            state = f"seed {run.result.seed}: {len(run.result.steps)} of {run.result.info.get('steps', '?')} steps"
            rows.append(TableRow(name=names[run.group], runs=(run,), state=state))
    often: Counter[str] = Counter()
    for index, row in enumerate(rows):
        often[row.label] += 1
        if often[row.label] > 1:
            rows[index] = replace(row, name=f"{row.name} ({often[row.label]})")
    return rows


def _group_names(runs: Sequence[ComparedRun]) -> dict[str, str]:
    """The name of each group's first run; groups of one name also list the settings that distinguish them."""
    firsts = {run.group: run for run in reversed(runs)}
    names = {}
    for group, first in firsts.items():
        namesakes = [run for run in firsts.values() if run.result.name == first.result.name]

        def kinds(keys: Sequence[str], among: Sequence[ComparedRun] = namesakes) -> int:
            """How many of them the keys tell apart; of a lone results.json no setting is known."""
            having = [run for run in among if all(key in run.settings for key in keys)]
            return len({tuple(str(run.settings[key]) for key in keys) for run in having})

        keys: list[str] = []
        for key in dict.fromkeys(key for run in namesakes for key in run.settings):
            keys += [key] if kinds([*keys, key]) > kinds(keys) else []
        differing = ", ".join(f"{key}={first.settings[key]}" for key in keys if key in first.settings)
        names[group] = first.result.name + (f" [{differing}]" if differing else "")
    return names


def notes(tables: Sequence[ResultTable]) -> list[str]:
    """The definitions of the columns, and explanations of the marks that the tables have."""
    rows = [row for table in tables for row in table.rows]
    results = [result for row in rows for result in row.results]
    oracle = sorted({setting for row in rows for setting in row.oracle})
    extended = any(result.extended for result in results)
    split = len({(result.scenario, result.setting) for result in results}) < len(tables)
    explained = {
        "mean ± standard deviation of n runs that differ in their seeds": any(len(row.runs) > 1 for row in rows),
        f"{DAGGER} learned all classes at once: a bound, not a rival": any(row.bound for row in rows),
        f"{DAGGER} saw labels that a step must not see ({', '.join(oracle)}): a bound, not a rival": oracle,
        "a run that is not finished has no numbers here and counts nowhere": any(row.state for row in rows),
        "extended runs share a table only if they learned, and were measured on, the same classes": extended,
        "runs of one scenario share a table only if they learned the same classes in the same steps": (
            split and not extended
        ),
        "average and forgetting of an extended run are empty where its steps were measured on different images or "
        "classes": any(result.complete and not result.measured_alike for result in results),
        "paper: its mIoU over all classes with the same data, scenario, method, backbone and memory": any(
            table.has_paper for table in tables
        ),
        f"{NEAREST} nearest counterpart: the paper does not say which heads its ablation has without SD": any(
            row.nearest for row in rows
        ),
    }
    return [*DEFINITIONS, *(text for text, needed in explained.items() if needed)]


def percent(value: float | None) -> str:
    """A fraction as a percentage with one decimal.

    >>> percent(0.6149), percent(None)
    ('61.5', '–')
    """
    return "–" if value is None else f"{100 * value:.1f}".replace("-0.0", "0.0")


def format_mean(mean: float | None, std: float | None = None) -> str:
    """Mean and standard deviation in percent.

    >>> format_mean(0.6149, 0.012), format_mean(0.6149)
    ('61.5 ± 1.2', '61.5')
    """
    return percent(mean) + ("" if std is None else f" ± {percent(std)}")


def stat(values: Sequence[float | None], *, all_seeds: bool = True) -> Stat:
    """Without `all_seeds` over those that have the number: another seed's validation images may lack a class.

    >>> stat([0.5, None]), stat([0.5, None], all_seeds=False)
    (Stat(mean=None, std=None), Stat(mean=0.5, std=None))
    """
    known = [value for value in values if value is not None]
    if not known or (all_seeds and len(known) < len(values)):  # a mean over fewer seeds would be another number
        return Stat(None, None)
    return Stat(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None)


def _percent(values: Sequence[float | None]) -> Stat:
    return stat([None if value is None else 100 * value for value in values], all_seeds=False)


def _shorten(names: Sequence[str], most: int = 8) -> str:
    """The names, if they are few enough for a heading.

    >>> _shorten(["cat", "dog", "cow"], most=2)
    'cat and 2 more'
    """
    return ", ".join(names) if len(names) <= most else f"{names[0]} and {len(names) - 1} more"
