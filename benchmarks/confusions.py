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

from curves import command
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ipseg.errors import UserError
from ipseg.report.compare import Section
from ipseg.report.groups import Drawn, drawn
from ipseg.report.heat import HeatMap, confusion_map, iou_over_steps
from ipseg.report.lookalikes import last_confusion
from ipseg.report.plot_style import save, short, styled

WIDTH, ACROSS = 2.3, 3
"""Inches of a map, and how many stand beside each other: of more, the numbers could not be read in a page's column."""
TINTS = {"plain": "#3b6fe0", "bad": "#e0503a", "good": "#16a394"}


def draw(section: Section, out: Path) -> None:
    """Bands of a few runs, a column each."""
    rows = drawn(section)
    names = list(dict.fromkeys(name for row in rows for name in row.iou()[-1]))
    steps = range(max(len(row.over_steps(lambda step: step.miou.get("all"))) for row in rows))
    bands = math.ceil(len(rows) / ACROSS)
    across = math.ceil(len(rows) / bands)
    with styled(page=False):
        figure = Figure(figsize=(WIDTH * across + 0.5, (2 * WIDTH + 0.5) * bands), layout="constrained")
        parts = figure.subfigures(bands, 1, squeeze=False, hspace=0.03)
        for number, part in enumerate(parts.flat):
            band = rows[number * across :][:across]
            upper, lower = part.subplots(2, across, squeeze=False)
            for place, row in enumerate(band):
                _map(upper[place], _called(row, names), first=place == 0)
                _map(lower[place], iou_over_steps(row, names, steps), first=place == 0)
                upper[place].set_title(short(row.name), fontsize=9, weight="bold")
                lower[place].set_xlabel("after step", fontsize=8)
            upper[0].set_ylabel("true class, % called", fontsize=8)
            lower[0].set_ylabel("IoU, %", fontsize=8)
            for axes in (*upper[len(band) :], *lower[len(band) :]):
                axes.set_axis_off()
        save(figure, out)


def _called(row: Drawn, names: Sequence[str]) -> HeatMap:
    confusion = last_confusion(row.results)
    if confusion is None:
        raise UserError(f"the results of {row.name} have no confusion matrix.")
    return confusion_map(row, confusion.of(names), ())


def _map(axes: Axes, heat: HeatMap, *, first: bool) -> None:
    """A field a cell, its tint as strong as the report's."""
    for y, (_, cells) in enumerate(heat.rows):
        for x, cell in enumerate(cells):
            axes.fill_between([x, x + 1], y, y + 1, color=TINTS[cell.tone], alpha=0.85 * cell.strength, linewidth=0)
            axes.text(x + 0.5, y + 0.5, cell.text, ha="center", va="center", fontsize=8)
    axes.set(xlim=(0, len(heat.columns)), ylim=(len(heat.rows), 0))
    axes.set_xticks([x + 0.5 for x in range(len(heat.columns))], heat.columns, rotation=90 if heat.heads else 0)
    axes.set_yticks([y + 0.5 for y in range(len(heat.rows))], [name for name, _ in heat.rows] if first else [])
    axes.tick_params(length=0, labelsize=8)
    axes.grid(visible=False)


def main(words: Sequence[str] | None = None) -> int:
    """The maps."""
    return command(draw, __doc__, words)


if __name__ == "__main__":
    sys.exit(main())
