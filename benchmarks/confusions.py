"""Which classes are lost to which, and when: the heat maps of a report in one picture, from what collect.py wrote.

    python benchmarks/confusions.py benchmarks/results/NAME.jsonl --scenario 2-1 --run ipseg --run joint --out maps.png

Above: of each class's pixels, in percent, what they are called after the last step, all seeds together. Below: the IoU
of every class after every step. At most three runs stand beside each other, the next ones under them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from curves import command
from matplotlib.figure import Figure

from ipseg.errors import UserError
from ipseg.report.compare import ResultTable, TableRow
from ipseg.report.confusion import Confusion, last_confusion
from ipseg.report.figures import draw_heatmap, plotted, save, short, styled

WIDTH, ACROSS = 2.3, 3
"""Inches of a map, and how many stand beside each other: of more, the numbers could not be read in a page's column."""


def draw(section: ResultTable, out: Path) -> None:
    """Bands of a few runs, a column each."""
    rows = plotted(section)
    names = list(dict.fromkeys(name for row in rows for name in row.iou()[-1]))
    steps = max(len(row.iou()) for row in rows)
    bands = math.ceil(len(rows) / ACROSS)
    across = math.ceil(len(rows) / bands)
    with styled():
        figure = Figure(figsize=(WIDTH * across + 0.5, (2 * WIDTH + 0.5) * bands), layout="constrained")
        parts = figure.subfigures(bands, 1, squeeze=False, hspace=0.03)
        for number, part in enumerate(parts.flat):
            band = rows[number * across :][:across]
            upper, lower = part.subplots(2, across, squeeze=False)
            for place, row in enumerate(band):
                draw_heatmap(upper[place], _confusion(row).of(names).shares, names, names, confusion=True)
                iou = np.full((len(names), steps), np.nan)
                for step, values in enumerate(row.iou(), start=steps - len(row.iou())):  # of joint training the last
                    iou[:, step] = [math.nan if values.get(n) is None else values[n] / 100 for n in names]
                draw_heatmap(lower[place], iou, names, [str(step) for step in range(steps)])
                upper[place].set_title(short(row.label), fontsize=9, weight="bold")
                lower[place].set_xlabel("after step", fontsize=8)
                for axes in (upper[place], lower[place]):
                    axes.tick_params(labelsize=8, labelleft=place == 0)
            upper[0].set_ylabel("true class, % predicted", fontsize=8)
            lower[0].set_ylabel("IoU, %", fontsize=8)
            for axes in (*upper[len(band) :], *lower[len(band) :]):
                axes.set_axis_off()
        save(figure, out)


def _confusion(row: TableRow) -> Confusion:
    confusion = last_confusion(row.results)
    if confusion is None:
        raise UserError(f"the results of {row.label} have no confusion matrix.")
    return confusion


def main(words: Sequence[str] | None = None) -> int:
    """The maps."""
    return command(draw, __doc__, words)


if __name__ == "__main__":
    sys.exit(main())
