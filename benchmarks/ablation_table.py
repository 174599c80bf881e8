"""The table of IPSeg's parts in docs/drawn-scenes.md, from lines of a script that there was before `ipseg sweep`.

    python benchmarks/ablation_table.py benchmarks/results/2026-11-15_ablations_scenes_3-1.jsonl

What field/ablations.yaml makes today, collect.py and tables.py put into tables.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ipseg.report.compare import format_mean, mean_of, std_of
from ipseg.report.formats import escaped, table_line
from ipseg.sweep.grid import Grid

GRID = Path(__file__).parent / "field" / "ablations.yaml"
COLUMNS = ("base", "new", "all", "average")


def ablation_table(files: Sequence[Path]) -> str:
    """Mean and spread over seeds, a row a variant, in the order of the grid."""
    found: dict[str, list[Any]] = {name: [] for name in Grid.read(GRID).entries}
    for path in files:
        for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            found[line["variant"]].append(line["final"]["miou"] | {"average": line["final"]["average"]})
    rows = [
        [escaped(name), *(_cell([run[column] for run in runs]) for column in COLUMNS), str(len(runs))]
        for name, runs in found.items()
    ]
    head = [["variant", *COLUMNS, "seeds"], ["---", *["---:"] * (len(COLUMNS) + 1)]]
    return "\n".join(map(table_line, [*head, *rows]))


def _cell(values: Sequence[float | None]) -> str:
    return format_mean(mean_of(values), std_of(values))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    print(ablation_table(parser.parse_args().files))


if __name__ == "__main__":
    main()
