"""The table `order` of tables.py: of classes that look alike, does the one that was learned first win?"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np

from ipseg.errors import UserError
from ipseg.report.compare import ResultTable, TableRow
from ipseg.report.confusion import Confusion, last_confusion
from ipseg.report.formats import escaped, table_line

PAIRS = 3
HEAD = ("look-alikes", "run", "learned first", "the later, called the first", "the first, called the later")


def order_table(found: Sequence[ResultTable], _wanted: object) -> str:
    """A row a pair and run, whatever its order of classes. Pairs are those that all runs together confuse most."""
    by_scenario: dict[tuple[str, str], list[tuple[TableRow, Confusion]]] = {}
    for section in found:
        told = [(line, seen) for line in section.rows if not line.bound and (seen := _confusion(line))]
        by_scenario.setdefault((section.scenario, section.setting), []).extend(told)
    tables = []
    for told in by_scenario.values():
        rows = [_row(pair, line, seen) for pair in _pairs([seen for _, seen in told]) for line, seen in told]
        if rows:
            lines = [HEAD, ["---"] * 3 + ["---:"] * 2, *rows]
            tables.append("\n".join(map(table_line, lines)))
    if not tables:
        raise UserError("no run that learned in steps has a confusion matrix with look-alikes in it.")
    said = "Share of a class's pixels in percent, after the last step, of all seeds together; the pairs that the runs "
    return "\n\n".join([*tables, textwrap.fill(f"{said}confuse most.", 118)])


def _confusion(line: TableRow) -> Confusion | None:
    return last_confusion(line.results)


def _pairs(seen: Sequence[Confusion]) -> list[tuple[str, str]]:
    """Each run counts alike, whatever its order of classes and its number of seeds."""
    if not seen:
        return []
    names = seen[0].names
    shares = sum(np.nan_to_num(confusion.of(names).shares) for confusion in seen) / len(seen)
    together = Confusion.of_counts(names, np.rint(shares * 1e6).astype(np.int64))
    return [tuple(sorted((pair.first, pair.second))) for pair in together.look_alikes(PAIRS)]  # type: ignore[misc]


def _row(pair: tuple[str, str], line: TableRow, seen: Confusion) -> list[str]:
    learned = {name: step.step for step in line.runs[0].result.steps for name in step.new}
    first, later = sorted(pair, key=learned.__getitem__)
    one, other = seen.names.index(first), seen.names.index(later)
    shares = [f"{100 * seen.shares[a, b]:.1f}" for a, b in ((other, one), (one, other))]
    at_once = learned[first] == learned[later]
    return [" and ".join(map(escaped, pair)), escaped(line.label), "together" if at_once else escaped(first), *shares]
