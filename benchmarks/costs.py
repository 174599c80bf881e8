"""Parameters and multiply-adds of the methods of a grid, each once; on a GPU also speed and memory.

python benchmarks/costs.py benchmarks/animals/grid.yaml --size 320 --out benchmarks/animals/costs.json \
        --run ipseg --run ssul_m
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ipseg.apps.cost import cost
from ipseg.sweep.grid import Grid
from ipseg.training.recipe import make_recipe
from ipseg.training.system import choose_device


def main(words: Sequence[str] | None = None) -> int:
    """Measure the first run of every name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("grid", type=Path)
    parser.add_argument("--run", dest="names", action="append", required=True, help="a name in the grid; repeatable")
    parser.add_argument("--size", type=int, default=512, help="side of the image to label")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(words)
    planned = {run.entry: run for run in reversed(Grid.read(options.grid).runs())}
    runs = [
        {"name": name, **cost(make_recipe(planned[name].settings), options.size, choose_device("auto"))}
        for name in options.names
    ]
    options.out.write_text(json.dumps({"runs": runs}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
