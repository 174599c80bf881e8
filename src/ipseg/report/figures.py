"""Figures of results: curves over steps and confusion matrices."""

from __future__ import annotations

import io
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ipseg.evaluation.results import StepResult
from ipseg.report.compare import ResultTable, TableRow
from ipseg.report.confusion import Confusion
from ipseg.visible import one_line

COLORS = ("#3b6fe0", "#f2773a", "#16a394", "#a35ad9", "#e0a50c", "#e0508d", "#6b7f93", "#57a639")
"""Distinguishable, and visible on white and on black."""
METHODS = ("ipseg", "ipseg_lda", "ssul_m", "plop_m", "mib", "joint", "finetune")
"""These have the same color in every figure: COLORS in this order."""
WRONG = "#e0503a"
INK, GRID = "#1c2230", "#dcdfe4"
STYLE = {
    "svg.fonttype": "none",
    "font.size": 9,
    "lines.linewidth": 2,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.major.pad": 7,
}

Value = Callable[[StepResult], float | None]


@contextmanager
def styled() -> Iterator[None]:
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # as SVG it stays text, which the reader's fonts draw
        yield


def plotted(table: ResultTable) -> list[TableRow]:
    """The rows with results; if there are more than colors, those with the highest mIoU."""
    rows = [row for row in table.rows if all(result.steps for result in row.results)]
    best = sorted(rows, key=lambda row: row.scores["all"].mean or -1, reverse=True)[: len(COLORS)]
    return [row for row in rows if row in best]


def all_classes(step: StepResult) -> float | None:
    return step.miou["all"]


def curves(rows: Sequence[TableRow], value: Value, title: str) -> Figure:
    with styled():
        figure = Figure(figsize=(5.2, max(2.8, 0.22 * len(rows))), layout="constrained")
        draw_curves(figure.add_subplot(), rows, value, title)
    return figure


def draw_curves(axes: Axes, rows: Sequence[TableRow], value: Value, title: str) -> None:
    """A number in percent over steps, its standard deviation as a band. Bounds are dashed; joint training is level."""
    last = max((len(result.steps) - 1 for row in rows for result in row.results), default=0)
    for row, color in zip(rows, run_colors([row.name for row in rows]), strict=True):
        stats = {step: stat for step, stat in enumerate(row.over_steps(value)) if stat.mean is not None}
        if not stats:
            continue
        steps, means = list(stats), np.array([stat.mean for stat in stats.values()])
        stds = np.array([stat.std or 0.0 for stat in stats.values()])
        if row.bound:
            steps, means, stds = [0, last], means.repeat(2), stds.repeat(2)
        line = "none" if not row.measured_alike else "--" if row.bound or row.oracle else "-"
        style: dict[str, Any] = {"linestyle": line, "color": color, "label": f"{short(row.label)} {means[-1]:.1f}"}
        axes.plot(steps, means, marker="" if row.bound else "o", markersize=4.5, clip_on=False, **style)
        if stds.any() and row.measured_alike:
            axes.fill_between(steps, means - stds, means + stds, color=color, alpha=0.14, linewidth=0)
    axes.set_ylim(0, min(100, max(10, 1.05 * axes.get_ylim()[1])))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("step")
    axes.set_title(title, loc="left", fontsize=9)
    lines = [line for line in axes.lines if not str(line.get_label()).startswith("_")]
    lines.sort(key=lambda line: -float(np.asarray(line.get_ydata())[-1]))  # beside the plot the highest end first
    axes.legend(handles=lines, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, handlelength=1.6)


def confusion_map(confusion: Confusion) -> Figure:
    """A figure of a confusion matrix in percent: right is blue, wrong is red. A root makes small errors visible."""
    shares, names = confusion.shares, [short(name, 16) for name in confusion.names]
    places, side = range(len(names)), 1.25 + 0.25 * len(names)
    right, known = np.eye(len(names), dtype=bool), np.nan_to_num(shares)
    tint = np.where(right[..., None], mpl.colors.to_rgb(COLORS[0]), mpl.colors.to_rgb(WRONG))
    with styled():
        figure = Figure(figsize=(side, side), layout="constrained")
        axes = figure.add_subplot()
        axes.imshow(np.dstack([tint, 0.7 * np.where(right, known, np.sqrt(known))]), interpolation="nearest")
        for (y, x), share in np.ndenumerate(known):
            if share >= 0.005:
                axes.text(x, y, f"{100 * share:.0f}", ha="center", va="center", fontsize=8)
        axes.set_xticks(places, names, rotation=90)
        axes.set_yticks(places, names)
        axes.set(xlabel="predicted", ylabel="true")
        axes.spines[:].set_visible(False)
        axes.grid(visible=False)
    return figure


def run_colors(names: Sequence[str]) -> list[str]:
    """A color for each run: its method's own, or the next that none of the others has.

    >>> run_colors(["mine", "ipseg", "plop_m (medians)"]) == [COLORS[1], COLORS[0], COLORS[3]]
    True
    """
    first = {name.partition(" ")[0]: index for index, name in reversed(list(enumerate(names)))}
    own = {first[method]: color for method, color in zip(METHODS, COLORS, strict=False) if method in first}
    rest = itertools.cycle([color for color in COLORS if color not in own.values()] or COLORS)
    return [own.get(index) or next(rest) for index in range(len(names))]


def short(name: str, most: int = 22) -> str:
    """The name for matplotlib: no formula, not hidden from legends, and without its middle where it is long.

    >>> short("ipseg, training.later_lr=0.4")
    'ipseg, tra…ater_lr=0.4'
    """
    name = one_line(f" {name}" if name.startswith("_") else name)  # matplotlib leaves _names out of legends
    if len(name) > most:
        begin = (most - 1) // 2
        name = f"{name[:begin]}…{name[begin + 1 - most :]}"  # the end often distinguishes runs
    return name.replace("$", r"\$")


def svg(figure: Figure) -> str:
    buffer = io.StringIO()
    with styled():
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return buffer.getvalue()
