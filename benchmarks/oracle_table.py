"""The table of what real/oracles.py wrote: what each part of a run would be worth if it were true."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ipseg.report.compare import format_mean, mean_of, std_of
from ipseg.report.formats import escaped, table_line


def oracle_table(files: Sequence[Path]) -> str:
    """A row for the runs of one name: mIoU over all classes, every way that was measured."""
    named: dict[str, list[Any]] = {}
    for path in files:
        for run in json.loads(path.read_text(encoding="utf-8"))["runs"].values():
            named.setdefault(run["name"], []).append(run["miou"])
    ways = list(dict.fromkeys(way for runs in named.values() for run in runs for way in run))
    rows = [[escaped(name), *(_cell(runs, way) for way in ways), str(len(runs))] for name, runs in named.items()]
    lines = [["run", *ways, "n"], ["---", *["---:"] * (len(ways) + 1)], *rows]
    return "\n".join(map(table_line, lines)) + "\n\nmIoU in percent over all classes, after the last step; n runs."


def _cell(runs: Sequence[Any], way: str) -> str:
    values = [run[way]["all"] if way in run else None for run in runs]
    return format_mean(mean_of(values), std_of(values))
