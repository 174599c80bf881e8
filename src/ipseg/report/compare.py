"""Runs side by side, as plain values: seeds as one row with mean and spread, scenarios apart, the paper beside them."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ipseg.evaluation.results import RunResult
from ipseg.report.names import row_names
from ipseg.report.places import Place, Steps, home, place_of
from ipseg.report.rows import COLUMNS, DAGGER, NUMBERS, Cell, is_best, numbers, percent

NEAREST = "≈"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One run and what is known about it."""

    result: RunResult
    group: str
    """Runs of one group differ in their seeds alone."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of its recipe, as `section.key`; nothing where there is only a results.json."""
    data_seed: int | None = None
    """Of pictures that are drawn."""
    bound: bool = False
    """It learned all classes at once: what can be reached, not a rival."""
    paper: float | None = None
    """What the paper measured over all classes, in percent, where the setting is the paper's."""
    folder: Path | None = None
    """The run's folder; none of results without one."""
    compared_in: Steps | None = None
    """The steps of others that joint training stands beside. null: its own."""

    @property
    def nearest(self) -> bool:
        """Whether `paper` is the nearest counterpart: its ablation does not say which heads it has without SD."""
        return self.paper is not None and self.settings.get("method.decoupling") is False

    @property
    def held_out(self) -> float:
        """The share of training pictures that it was measured on; 0: on validation pictures."""
        return float(self.settings.get("evaluation.held_out") or 0)

    @property
    def place(self) -> Place:
        """Where it belongs."""
        return place_of(self.result, self.compared_in, self.held_out)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One row: what was measured with one group of settings, over its seeds."""

    name: str
    method: str
    seeds: tuple[int, ...]
    means: Mapping[str, float | None]
    spreads: Mapping[str, float | None]
    """The standard deviation over seeds; none of a single one."""
    cells: tuple[Cell, ...] = ()
    """In the order of COLUMNS."""
    oracle: tuple[str, ...] = ()
    bound: bool = False
    state: str = ""
    """How far an unfinished run is; its numbers are not told."""
    paper: float | None = None
    entries: tuple[Entry, ...] = ()
    """The runs that it stands for."""

    @property
    def shown(self) -> str:
        """Its name with what a reader must not overlook."""
        dagger = f" {DAGGER}" if self.oracle or self.bound else ""
        return self.name + dagger + (f" ({self.state})" if self.state else "")

    @property
    def nearest(self) -> bool:
        """Whether `paper` is a counterpart whose heads are not known to be the same."""
        return self.entries[0].nearest

    @property
    def rival(self) -> bool:
        """Whether it may be the best."""
        return not (self.oracle or self.bound or self.state)


@dataclass(frozen=True)
class Section:
    """The runs of one scenario."""

    scenario: str
    setting: str
    lines: Sequence[Line]
    classes: str = ""
    """What was learned step by step, where the scenario's name alone does not tell it from another section."""
    held_out: float = 0.0
    """The share of training pictures that it was measured on."""

    @property
    def title(self) -> str:
        """What heads its table."""
        where = f", measured on {100 * self.held_out:.3g} % of the training pictures" if self.held_out else ""
        return f"{self.scenario}{f' ({self.classes})' if self.classes else ''} {self.setting}{where}"

    @property
    def has_paper(self) -> bool:
        """Whether a row has a number of the paper."""
        return any(line.paper is not None for line in self.lines)


def notes(sections: Sequence[Section]) -> list[str]:
    """What a reader must know to read the tables."""
    lines = [line for section in sections for line in section.lines]
    said = list(NUMBERS)
    if any(len(line.seeds) > 1 for line in lines):
        said.append("mean ± standard deviation of n runs that differ in their seeds")
    if any(line.bound for line in lines):
        said.append(f"{DAGGER} learned all classes at once: a bound, not a rival")
    seen = sorted({setting for line in lines for setting in line.oracle})
    if seen:
        said.append(f"{DAGGER} saw labels that a step must not see ({', '.join(seen)}): a bound, not a rival")
    if any(line.state for line in lines):
        said.append("a run that is not finished has no numbers here and counts nowhere")
    results = [entry.result for line in lines for entry in line.entries]
    if any(result.grown for result in results):
        said.append("grown runs share a table only if they learned, and were measured on, the same classes")
    elif len({(result.scenario, result.setting) for result in results}) < len(sections):
        said.append("runs of one scenario share a table only if they learned the same classes in the same steps")
    if any(result.complete and not result.measured_alike for result in results):
        said.append(
            "average and forgetting of a grown run are empty where its steps were measured on different pictures or "
            "classes: such numbers do not belong together"
        )
    if any(section.has_paper for section in sections):
        said.append("paper: its mIoU over all classes with the same data, scenario, method, backbone and memory")
    if any(line.nearest for line in lines):
        said.append(f"{NEAREST} nearest counterpart: the paper does not say which heads its ablation has without SD")
    return said


def sections(entries: Sequence[Entry]) -> list[Section]:
    """A section a scenario, in the order in which they come; in each the rows, bounds and unfinished runs last."""
    own = [entry.place for entry in entries]
    places: dict[Place, list[Entry]] = {}
    for entry, place in zip(entries, own, strict=True):
        places.setdefault(home(entry.result, place, own), []).append(entry)
    names = Counter((place.scenario, place.setting, place.held_out) for place in places)
    made = []
    for place, found in places.items():
        told = names[place.scenario, place.setting, place.held_out] > 1 or found[0].result.grown
        classes = place.classes if told else ""
        made.append(Section(place.scenario, place.setting, _lines(found), classes, place.held_out))
    return made


def _lines(entries: Sequence[Entry]) -> list[Line]:
    names = row_names(entries)
    groups = dict.fromkeys(entry.group for entry in entries if entry.result.complete)
    finished = [
        _line(names[group], [entry for entry in entries if entry.group == group and entry.result.complete])
        for group in groups
    ]
    left = [_unfinished(names[entry.group], entry) for entry in entries if not entry.result.complete]
    lines = _apart(sorted(finished, key=lambda line: line.bound) + left)
    rivals = [dict(line.means) for line in lines if line.rival]
    return [_with_cells(line, rivals) for line in lines]


def _apart(lines: Sequence[Line]) -> list[Line]:
    """No two rows have one name: a page finds by it what belongs to them."""
    often: Counter[str] = Counter()
    named = []
    for line in lines:
        often[line.shown] += 1
        named.append(line if often[line.shown] == 1 else replace(line, name=f"{line.name} ({often[line.shown]})"))
    return named


def _line(name: str, runs: Sequence[Entry]) -> Line:
    first = runs[0]
    measured = [_numbers(run) for run in runs]
    values = {column: [run[column] for run in measured] for column in COLUMNS}
    return Line(
        name=name,
        method=first.result.method,
        seeds=tuple(run.result.seed for run in runs),
        means={column: mean_of(found) for column, found in values.items()},
        spreads={column: spread_of(found) for column, found in values.items()},
        oracle=first.result.oracle,
        bound=first.bound,
        paper=first.paper,
        entries=tuple(runs),
    )


def _unfinished(name: str, entry: Entry) -> Line:
    nothing: dict[str, float | None] = dict.fromkeys(COLUMNS)
    result = entry.result
    state = f"seed {result.seed}: {len(result.steps)} of {result.info.get('steps', '?')} steps"
    return Line(
        name=name,
        method=result.method,
        seeds=(result.seed,),
        means=nothing,
        spreads=nothing,
        oracle=result.oracle,
        state=state,
        entries=(entry,),
    )


def _numbers(run: Entry) -> dict[str, float | None]:
    """A bound knows no steps, so it has no average over them."""
    return numbers(run.result) | ({"average": None, "forgetting": None} if run.bound else {})


def _with_cells(line: Line, rivals: Sequence[dict[str, float | None]]) -> Line:
    cells = tuple(
        Cell(
            say(line.means[column], line.spreads[column]),
            best=line.rival and is_best(column, dict(line.means), rivals),
        )
        for column in COLUMNS
    )
    return replace(line, cells=cells)


def say(mean: float | None, spread: float | None) -> str:
    """Mean and spread in percent.

    >>> say(0.6149, 0.012), say(0.6149, None), say(None, None)
    ('61.5 ± 1.2', '61.5', '–')
    """
    return percent(mean) + ("" if spread is None else f" ± {percent(spread)}")


def mean_of(values: Sequence[float | None]) -> float | None:
    """None as soon as one is missing: a mean over fewer seeds than the row says would be another number."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if len(known) == len(values) else None


def spread_of(values: Sequence[float | None]) -> float | None:
    """The standard deviation; none of a single value, or where one is missing."""
    known = [value for value in values if value is not None]
    return statistics.stdev(known) if len(known) == len(values) > 1 else None
