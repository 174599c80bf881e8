"""Figures of results, as SVG elements of a page or as files: curves over steps, heat maps, losses, the paper's figure.

An SVG element needs no fonts, scripts or ids from outside, and its ink has the color of the text around it.
"""

from __future__ import annotations

import hashlib
import html
import io
import itertools
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from ipseg.errors import UserError
from ipseg.evaluation.results import StepResult
from ipseg.files import replacing
from ipseg.report.compare import ResultTable, TableRow
from ipseg.report.confusion import Confusion
from ipseg.report.paper import published
from ipseg.visible import one_line

COLORS = ("#3b6fe0", "#f2773a", "#16a394", "#a35ad9", "#e0a50c", "#e0508d", "#6b7f93", "#57a639")
"""Distinguishable, and visible on white and on black."""
METHODS = ("ipseg", "ipseg_lda", "ssul_m", "plop_m", "mib", "joint", "finetune")
"""These have the same color in every figure: COLORS in this order."""
INK, GRID = "#010203", "#040506"
"""Placeholders in a page's figures, replaced by currentColor and --line."""
WIDTH = 4.8
"""Inches of a page's figures: text stays legible on a phone."""
READINGS = {"posterior": "the image posterior", "pixel": "the pixels", "both": "the final prediction"}
"""What may tell which classes an image has."""
Losses = Mapping[str, Sequence[tuple[float, float]]]
"""Name -> (step + share of the step that is done, value)."""

PAPER_FIGURE = "fig:performance_voc"
PAPER_PANELS = {
    "(a)": "VOC, mIoU after the last step, %",
    "(b)": "VOC 2-2, mIoU after every step, %",
    "(c)": "VOC 15-1, mIoU after every step, %",
}


# ---- curves ---------------------------------------------------------------------------------------------------------


def plotted(table: ResultTable) -> list[TableRow]:
    """The rows with results; if there are more than colors, those with the highest mIoU."""
    rows = [row for row in table.rows if all(result.steps for result in row.results)]
    best = sorted(rows, key=lambda row: row.means["all"] or -1, reverse=True)[: len(COLORS)]
    return [row for row in rows if row in best]


def all_classes(step: StepResult) -> float | None:
    """The mIoU over all classes seen so far."""
    return step.miou["all"]


def draw_curves(axes: Axes, rows: Sequence[TableRow], value: Callable[[StepResult], float | None], title: str) -> None:
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
    axes.grid(visible=False, axis="x")
    legend_beside(axes)


def legend_beside(axes: Axes) -> None:
    """Names of the lines on the right, the highest end first."""
    lines = [line for line in axes.lines if not str(line.get_label()).startswith("_")]
    lines.sort(key=lambda line: -float(np.asarray(line.get_ydata())[-1]))
    axes.legend(handles=lines, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, handlelength=1.6)


def miou_curves(rows: Sequence[TableRow]) -> str:
    """For a page."""
    return _curves(rows, all_classes, "mIoU over all classes seen so far, %")


def image_accuracy(rows: Sequence[TableRow], reading: str) -> str | None:
    """For a page: the share of images whose set of classes is predicted exactly; none where no run has it."""

    def value(step: StepResult) -> float | None:
        return (step.image_accuracy or {}).get("all", {}).get(reading)

    known = [row for row in rows if any(stat.mean is not None for stat in row.over_steps(value))]
    return _curves(known, value, f"image-level accuracy of {READINGS[reading]}, %") if known else None


def _curves(rows: Sequence[TableRow], value: Callable[[StepResult], float | None], title: str) -> str:
    with styled():
        figure, axes = new_figure(max(2.8, 0.22 * len(rows)))
        draw_curves(axes, rows, value, title)
        means = ((row, [stat.mean for stat in row.over_steps(value)]) for row in rows)
        numbers = [f"{row.label} " + ", ".join("–" if m is None else f"{m:.1f}" for m in found) for row, found in means]
        return svg(figure, f"{title}, after every step. {'; '.join(numbers)}")


def loss_curves(row: TableRow, losses: Losses) -> str:
    """For a page: the losses of one run; every step is equally wide."""
    with styled():
        figure, axes = new_figure(2.6)
        for (name, points), style in zip(losses.items(), itertools.cycle(["-", "--", ":", "-."])):
            marker = "o" if len(points) < 10 else ""  # a single point has no line
            axes.plot(*zip(*points, strict=True), style, marker=marker, markersize=3, label=short(name))
        last = math.ceil(max(x for points in losses.values() for x, _ in points))
        axes.set_xticks([step + 0.5 for step in range(last)], [str(step) for step in range(last)])
        axes.set(xlim=(0, last), xlabel="step")
        axes.set_ylim(bottom=0)
        axes.set_title(f"{short(row.label, 40)}: losses", loc="left", fontsize=9)
        axes.grid(visible=False, axis="x")
        for step in range(1, last):
            axes.axvline(step, color=mpl.rcParams["grid.color"], linewidth=0.7)
        legend_beside(axes)
        ends = ", ".join(f"{name} {points[-1][1]:.3g}" for name, points in losses.items())
        return svg(figure, f"Training losses of {row.label} over its steps; at the end: {ends}")


# ---- heat maps ------------------------------------------------------------------------------------------------------


def draw_heatmap(
    axes: Axes, values: NDArray[np.float64], rows: Sequence[str], columns: Sequence[str], *, confusion: bool = False
) -> None:
    """Shares, printed in percent. In a confusion matrix errors are red; a root makes small ones visible."""
    right = np.eye(len(rows), dtype=bool) if confusion else np.ones_like(values, dtype=bool)
    tint = np.where(right[..., None], mpl.colors.to_rgb(COLORS[0]), mpl.colors.to_rgb("#e0503a"))
    known = np.nan_to_num(values)
    axes.imshow(np.dstack([tint, 0.7 * np.where(right, known, np.sqrt(known))]), aspect="auto", interpolation="nearest")
    for (y, x), value in np.ndenumerate(values):
        text = "" if np.isnan(value) or (confusion and value < 0.005) else f"{100 * value:.0f}"
        axes.text(x, y, text, ha="center", va="center", fontsize=8)
    axes.set_xticks(range(len(columns)), [short(name, 16) for name in columns], rotation=90 if confusion else 0)
    axes.set_yticks(range(len(rows)), [short(name, 16) for name in rows])
    axes.spines[:].set_visible(False)
    axes.grid(visible=False)


def iou_values(row: TableRow, classes: Sequence[str]) -> NDArray[np.float64]:
    """(classes, steps): the IoU after every step; NaN before a class is learned and where validation lacks it."""
    found = [[iou.get(name) for iou in row.iou()] for name in classes]
    return np.array([[math.nan if value is None else value / 100 for value in values] for values in found])


def iou_map(row: TableRow, classes: Sequence[str]) -> str:
    """For a page: the IoU of every class after every step."""
    values = iou_values(row, classes)
    with styled():
        figure, axes = new_figure(0.9 + 0.21 * len(classes), 1.5 + 0.42 * values.shape[1])
        draw_heatmap(axes, values, classes, [str(step) for step in range(values.shape[1])])
        axes.set_xlabel("after step")
        return svg(figure, f"IoU of every class of {row.label} after every step; the table has those of the last one")


def confusion_map(row: TableRow, confusion: Confusion) -> str:
    """For a page: the confusion matrix after the last step."""
    side = 1.4 + 0.29 * len(confusion.names)
    with styled():
        figure, axes = new_figure(side, side)
        draw_heatmap(axes, confusion.shares, confusion.names, confusion.names, confusion=True)
        axes.set(xlabel="predicted", ylabel="true")
        return svg(figure, f"Confusion matrix of {row.label}; the most frequent confusions are listed beside it")


# ---- the paper's figure ---------------------------------------------------------------------------------------------


def paper_rows(tables: Sequence[ResultTable]) -> list[tuple[str, TableRow]]:
    """Scenario and row of finished runs that may stand beside the paper's curves: VOC, overlap, no bounds."""
    return [
        (table.scenario.removeprefix("voc/"), row)
        for table in tables
        if table.setting == "overlap" and table.scenario.startswith("voc/")
        for row in table.rows
        if row.paper is not None and row.ranked
    ]


def paper_panels(tables: Sequence[ResultTable]) -> list[str]:
    """For a page: the paper's figure of results with our runs; nothing where it has no place for one."""
    ours, panels = paper_rows(tables), []
    with styled():
        for panel, title in PAPER_PANELS.items() if ours else ():
            figure, axes = new_figure(3.2)
            _draw_paper_panel(axes, panel, ours)
            paper = [
                f"{n.row} {n.scenario if n.step is None else n.step} {n.value}"
                for n in published(where=PAPER_FIGURE + panel)
            ]
            own = [f"{row.name} {scenario} {100 * (row.means['all'] or 0):.1f}" for scenario, row in ours]
            panels.append(svg(figure, f"{title}. The paper: {', '.join(paper)}. Ours: {', '.join(own)}"))
    return panels


def save_paper_figure(path: Path, tables: Sequence[ResultTable] = ()) -> None:
    """The paper's figure of results as a file, with our runs where they belong."""
    with styled(page=False):
        figure = Figure(figsize=(14, 3.6), layout="constrained")
        for axes, panel in zip(figure.subplots(1, len(PAPER_PANELS)), PAPER_PANELS, strict=True):
            _draw_paper_panel(axes, panel, paper_rows(tables))
        save(figure, path)


def _draw_paper_panel(axes: Axes, panel: str, ours: Sequence[tuple[str, TableRow]]) -> None:
    """The paper's curves thin, ours thick, over the scenarios or over the steps of one."""
    numbers = published(where=PAPER_FIGURE + panel)
    over_steps = numbers[0].step is not None
    scenarios = list(dict.fromkeys(number.scenario for number in numbers))
    ticks = sorted({n.step for n in numbers if n.step is not None}) if over_steps else range(len(scenarios))
    curves: dict[str, dict[int, float]] = {}
    for number in numbers:
        place = scenarios.index(number.scenario) if number.step is None else number.step
        curves.setdefault(number.row, {})[place] = number.value
    theirs = len(curves)
    for scenario, row in ours:
        if scenario in scenarios:
            own = curves.setdefault(f"{row.name} (ours)", {})
            if over_steps:
                own |= {step: stat.mean for step, stat in enumerate(row.over_steps(all_classes)) if stat.mean}
            elif (value := row.means["all"]) is not None:
                own[scenarios.index(scenario)] = 100 * value
    for index, (name, points) in enumerate(curves.items()):
        end = max(points)
        where = "" if end == ticks[-1] else f" at {end if over_steps else scenarios[end]}"
        style: dict[str, Any] = {"linewidth": 1.3, "marker": "o", "markersize": 3}
        if index >= theirs:
            style = {"linewidth": 2.6, "marker": "D", "markersize": 6}
        line = [points.get(place, math.nan) for place in range(end + 1)]  # no line over a gap
        axes.plot(line, color=COLORS[index % len(COLORS)], label=f"{short(name)} {points[end]:.1f}{where}", **style)
    axes.set_title(f"{panel} {PAPER_PANELS[panel]}", loc="left", fontsize=9)
    axes.set_xticks(ticks, list(map(str, ticks)) if over_steps else scenarios)
    axes.set_xlabel("step" if over_steps else "scenario")
    axes.grid(visible=False, axis="x")
    legend_beside(axes)


# ---- style ----------------------------------------------------------------------------------------------------------


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


def new_figure(height: float, width: float = WIDTH) -> tuple[Figure, Axes]:
    """An empty plot; to be made inside `styled`."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def styled(*, page: bool = True) -> Any:
    """The context in which a figure is drawn: for a page, whose colors it takes, or for a file."""
    ink, grid = (INK, GRID) if page else ("#1c2230", "#dcdfe4")
    return mpl.rc_context(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "ipseg",
            "font.family": "sans-serif",
            "font.sans-serif": ["DejaVu Sans"],
            "font.size": 9,
            "lines.linewidth": 2,
            "text.color": ink,
            "axes.edgecolor": grid,
            "axes.labelcolor": ink,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.axisbelow": True,
            "axes.grid": True,
            "grid.color": grid,
            "grid.linewidth": 0.7,
            "xtick.color": ink,
            "ytick.color": ink,
            "xtick.major.size": 0,
            "ytick.major.size": 0,
        }
    )


def svg(figure: Figure, description: str) -> str:
    """The figure as an <svg> element with an alternative text, for a light or dark page."""
    buffer = io.StringIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # text stays text: the reader's fonts draw it
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = re.sub(r"<metadata>.*?</metadata>", "", buffer.getvalue(), flags=re.DOTALL)
    text = text[text.index("<svg") :].replace(INK, "currentColor").replace(GRID, "var(--line, #dcdfe4)")
    text = re.sub(r"'?DejaVu Sans'?, sans-serif", "system-ui, sans-serif", text)
    unique = "p" + hashlib.sha256(text.encode()).hexdigest()[:8]  # ids of a page's figures must not collide
    text = re.sub(r'(<\w+ id="|href="#|url\(#)', rf"\g<1>{unique}-", text)
    return text.replace("<svg ", f'<svg role="img" aria-label="{html.escape(one_line(description))}" ', 1)


def save(figure: Figure, path: Path) -> None:
    """The figure as a file, dark ink on white: .svg or .png."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("svg", "png"):
        raise UserError(f"{path}: a figure is written as .svg or .png; let the name end with one of them.")
    if not path.resolve().parent.is_dir():
        raise UserError(f"{path}: the folder {path.parent} is missing.")
    with replacing(path) as temporary:
        options: dict[str, Any] = {"metadata": {"Date": None}} if kind == "svg" else {"dpi": 200}
        figure.savefig(temporary, format=kind, facecolor="white", **options)
