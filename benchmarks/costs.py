"""What the runs of a grid cost, each once: `ipseg cost` of all of them, as JSON for the table `cost` of tables.py.

    python benchmarks/costs.py benchmarks/real/main.yaml --size 320 --out costs.json --set data.path=...

Parameters and multiply-adds are counted anywhere. Speeds and memory need a GPU with nothing beside. With the data at
hand: how long training alone takes at these speeds.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ipseg.apps.cost import cost
from ipseg.config import override
from ipseg.data.step_dataset import StepDataset
from ipseg.errors import WRONG, UserError
from ipseg.files import read_json, write_text
from ipseg.report.formats import escaped, table_line
from ipseg.sweep.grid import Grid, GridRun
from ipseg.training.recipe import Recipe, make_recipe
from ipseg.training.system import choose_device

VERSION = 1
Row = dict[str, Any]


def first_runs(grid: Path) -> list[GridRun]:
    """Of every run its first: other scenarios and seeds cost much the same."""
    found: dict[str, GridRun] = {}
    for run in Grid.read(grid).runs():
        found.setdefault(run.label, run)
    return list(found.values())


def seconds(recipe: Recipe, rates: Sequence[float | None]) -> float | None:
    """Of training at these speeds; none where they or the data are not known."""
    try:
        splits = recipe.splits()
    except UserError:
        return None
    if None in rates:
        return None
    scenario, training = recipe.scenario.build(splits.name, splits.classes), recipe.training
    later = training.epochs if training.later_epochs is None else training.later_epochs
    visits = [
        (later if step.index else training.epochs) * len(StepDataset(splits.train, scenario, step))
        for step in scenario.steps
    ]
    return sum(count / rate for count, rate in zip(visits, rates, strict=True) if rate)


def measured(grid: Path, size: int, device: str, changes: Sequence[str]) -> Iterator[Row]:
    """A run after the other."""
    for run in first_runs(grid):
        recipe = make_recipe(override(run.settings, changes))
        found = cost(recipe, size, choose_device(device))
        rates = [step["training_images_a_second"] for step in found["steps"]]
        yield {"run": run.label, "seconds": seconds(recipe, rates), **found}


def _ends(row: Row, key: str, unit: float = 1.0, digits: int = 0) -> str:
    """Of the first and the last step."""
    values = [row["steps"][0][key], row["steps"][-1][key]][: len(row["steps"])]
    return UNKNOWN if None in values else " – ".join(f"{value / unit:.{digits}f}" for value in values)


def _most(row: Row, key: str) -> str:
    values = [step[key] for step in row["steps"] if step[key] is not None]
    return f"{max(values) / 2**30:.1f}" if values else UNKNOWN


UNKNOWN = "?"
COLUMNS: dict[str, Callable[[Row], str]] = {
    "parameters, M": lambda row: _ends(row, "parameters", 1e6, 1),
    "learning, M": lambda row: _ends(row, "trainable", 1e6, 1),
    "multiply-adds, G": lambda row: _ends(row, "macs", 1e9, 1),
    "labels, img/s": lambda row: _ends(row, "fps"),
    "to label, GiB": lambda row: _most(row, "inference_memory"),
    "learns, img/s": lambda row: _ends(row, "training_images_a_second"),
    "to learn, GiB": lambda row: _most(row, "training_memory"),
    "minutes": lambda row: UNKNOWN if row["seconds"] is None else f"{row['seconds'] / 60:.1f}",
}


def cost_table(files: Sequence[Path]) -> str:
    """Sizes and speeds in the first and the last step, the most memory.

    What was measured in no run has no column; runs that cost the same share a row.
    """
    rows = [row for file in files for row in read_json(file, "what costs.py wrote", VERSION)["runs"]]
    columns = {name: [cell(row) for row in rows] for name, cell in COLUMNS.items()}
    known = {name: cells for name, cells in columns.items() if set(cells) != {UNKNOWN}}
    alike: dict[tuple[str, ...], list[str]] = {}
    for row, cells in zip(rows, zip(*known.values(), strict=True), strict=True):
        alike.setdefault(cells, []).append(escaped(row["run"]))
    lines = [["run", *known], ["---", *["---:"] * len(known)]]
    lines += [[", ".join(names), *cells] for cells, names in alike.items()]
    said = "After the first and the last step; learning: parameters that learn in it; multiply-adds of labeling one "
    said += f"picture of {rows[0]['size']} pixels."
    if len(known) == len(COLUMNS):
        said += f" Memory at most, on {rows[0]['device']}."
    return "\n".join(map(table_line, lines)) + f"\n\n{textwrap.fill(said, 118)}"


def main(words: Sequence[str] | None = None) -> int:
    """Measure a grid; the file is written after every run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("grid", type=Path)
    parser.add_argument("--size", type=int, default=512, help="side of the pictures to label")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", dest="changes", action="append", default=[], help="KEY=VALUE for every run")
    options = parser.parse_args(words)
    rows: list[Row] = []
    try:
        for row in measured(options.grid, options.size, options.device, options.changes):
            rows.append(row)
            write_text(options.out, json.dumps({"version": VERSION, "runs": rows}, indent=1) + "\n")
            print(table_line([row["run"], *(cell(row) for cell in COLUMNS.values())]), flush=True)
    except UserError as error:
        print(error, file=sys.stderr)
        return WRONG
    return 0


if __name__ == "__main__":
    sys.exit(main())
