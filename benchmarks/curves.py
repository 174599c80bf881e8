"""The result in one picture: mIoU over steps, and the IoU of every class at the end, from what collect.py wrote.

    python benchmarks/curves.py benchmarks/results/NAME.jsonl --scenario 2-1 --run ipseg --run ssul_m --out curves.png

Bands are the spread over seeds. Runs come in the order of `--run`; without it, all of them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tables import Wanted

from ipseg.errors import WRONG, UserError
from ipseg.evaluation.results import BACKGROUND
from ipseg.report.compare import ResultTable, TableRow
from ipseg.report.figures import all_classes, draw_curves, plotted, run_colors, save, short, styled


def draw(section: ResultTable, out: Path) -> None:
    """Both plots side by side; the legend between them is that of both."""
    rows = plotted(section)
    with styled():
        figure = Figure(figsize=(9.4, 3.8), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[1.25, 1])
        draw_curves(left, rows, all_classes, "mIoU over all classes seen so far, %")
        draw_classes(right, rows)
        save(figure, out)


def draw_classes(axes: Axes, rows: Sequence[TableRow]) -> None:
    """The IoU of every class after the last step, in the order of learning, a dot a run."""
    steps = max((row.results[0].steps for row in rows), key=len)
    names = [BACKGROUND, *(name for step in steps for name in step.new)]
    for row, color in zip(rows, run_colors([row.name for row in rows]), strict=True):
        iou = row.iou()[-1]
        found = [(value, place) for place, name in enumerate(names) if (value := iou.get(name)) is not None]
        axes.plot(*zip(*found, strict=True), "o", color=color, markersize=6, alpha=0.85, clip_on=False)
    axes.axhline(len(steps[0].new) + 0.5, color="#8f98a3", linewidth=1)
    axes.text(100, len(steps[0].new) + 0.45, "base ", ha="right", va="bottom", fontsize=8)
    axes.text(100, len(steps[0].new) + 0.55, "new ", ha="right", va="top", fontsize=8)
    axes.set_yticks(range(len(names)), [short(name) for name in names])
    axes.set(xlim=(0, 100), ylim=(len(names) - 0.5, -0.5))
    axes.set_title("IoU of every class after the last step, %", loc="left", fontsize=9)


def command(draw: Callable[[ResultTable, Path], None], about: str | None, words: Sequence[str] | None) -> int:
    """Draw one scenario, as the words of the command line say."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--scenario", required=True)
    parser.add_argument("--run", dest="runs", action="append", default=[])
    parser.add_argument("--out", type=Path, required=True, help=".png or .svg")
    options = parser.parse_args(words)
    try:
        wanted = Wanted(table="main", files=tuple(options.files), scenario=options.scenario, runs=tuple(options.runs))
        (section,) = wanted.sections()
        draw(section, options.out)
    except UserError as error:
        print(error, file=sys.stderr)
        return WRONG
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """The two plots."""
    return command(draw, __doc__, words)


if __name__ == "__main__":
    sys.exit(main())
