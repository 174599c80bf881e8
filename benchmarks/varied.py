"""The table `varied` of tables.py: what the values of a setting came to that a grid varied, a table a setting."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Any

from ipseg.errors import UserError
from ipseg.report.compare import ResultTable, Run, TableRow, format_mean, percent
from ipseg.report.formats import escaped, table_line
from ipseg.sweep import grid

BEFORE_A_SETTING = re.compile(r", (?=[a-z_.]+=)")
"""In a name as `ipseg sweep` writes it: NAME, KEY=VALUE. The run's own name may have commas too."""
Tried = dict[str, TableRow]
"""What a run reached, by the setting's value."""


def varied_table(found: Sequence[ResultTable], _wanted: object) -> str:
    """A row a run, a column a value, its own among them; runs that vary several settings at once are left out."""
    tables = []
    for section in found:
        for setting, runs in _by_setting(section).items():
            values = _in_order({value for tried in runs.values() for value in tried})
            rows = [[escaped(run), *_cells(tried, values)] for run, tried in runs.items()]
            lines = [[f"`{setting}`", *values], ["---", *["---:"] * len(values)], *rows]
            tables.append("\n".join(map(table_line, lines)))
    if not tables:
        raise UserError("no run has a varied setting in its name, as `ipseg sweep` writes it: NAME, KEY=VALUE.")
    said = "mIoU in percent over all classes, after the last step; in brackets base and new; in bold the row's best."
    return "\n\n".join([*tables, textwrap.fill(said, 118)])


def _by_setting(section: ResultTable) -> dict[str, dict[str, Tried]]:
    """By the setting, then by the run's name."""
    found: dict[str, dict[str, Tried]] = {}
    for line in section.rows:
        run, *changes = BEFORE_A_SETTING.split(line.runs[0].result.name)
        if len(changes) == 1:
            setting, _, value = changes[0].partition("=")
            found.setdefault(setting, {}).setdefault(run, {})[value] = line
    for setting, runs in found.items():
        for tried in runs.values():
            _add_kin(tried, setting, section)
    return found


def _add_kin(tried: Tried, setting: str, section: ResultTable) -> None:
    """Runs of other names that differ in nothing else: the one whose setting was varied, for example."""
    named = list(tried.values())
    first = named[0].runs[0]
    for line in (line for line in section.rows if line not in named):
        entry = line.runs[0]
        if entry.result.method == first.result.method and _rest(entry, setting) == _rest(first, setting):
            tried.setdefault(_value(entry, setting), line)


def _rest(entry: Run, setting: str) -> dict[str, Any]:
    return {key: value for key, value in entry.settings.items() if key != setting}


def _value(entry: Run, setting: str) -> str:
    """As it stands in a grid's names."""
    return grid.format_value(entry.settings[setting])


def _in_order(values: set[str]) -> list[str]:
    """Numbers by size, words by the alphabet."""
    try:
        return sorted(values, key=float)
    except ValueError:
        return sorted(values)


def _cells(tried: Tried, values: Sequence[str]) -> list[str]:
    best = max(_shown(line) for line in tried.values())
    return [_cell(tried[value], best) if value in tried else "–" for value in values]


def _cell(line: TableRow, best: float) -> str:
    value = format_mean(line.means["all"], line.spreads["all"])
    told = f"**{value}**" if _shown(line) == best else value
    return f"{told} ({percent(line.means['base'])}, {percent(line.means['new'])})"


def _shown(line: TableRow) -> float:
    """As it is printed: what looks equal shares the honor."""
    value = line.means["all"]
    return 0.0 if value is None else float(percent(value))
