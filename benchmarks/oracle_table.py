"""The table of what real/oracles.py wrote: what each part of a run would be worth if it were true."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ipseg.report.rows import percent
from ipseg.report.table import escaped, table_line


def oracle_table(files: Sequence[Path]) -> str:
    """A row a run: mIoU over all classes, every way that was measured."""
    runs = [run for path in files for run in json.loads(path.read_text(encoding="utf-8"))["runs"].values()]
    ways = list(dict.fromkeys(way for run in runs for way in run["miou"]))
    rows = [
        [escaped(run["name"]), *(percent(run["miou"][way]["all"]) if way in run["miou"] else "–" for way in ways)]
        for run in runs
    ]
    lines = [["run", *ways], ["---", *["---:"] * len(ways)], *rows]
    return "\n".join(map(table_line, lines)) + "\n\nmIoU in percent over all classes, after the last step."
