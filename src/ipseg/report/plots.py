"""Plots as SVG text that stands in any page: no fonts, scripts or ids from outside, ink in the colour of the text."""

from __future__ import annotations

import hashlib
import io
import itertools
import math
import re
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ipseg.evaluation.results import BACKGROUND, RunResult
from ipseg.report.rows import display_names, learned_at_once

RUN_COLOURS = ("#3b6fe0", "#f2773a", "#16a394", "#a35ad9", "#e0a50c", "#e0508d", "#6b7f93", "#57a639")
"""The first run has the first colour, in every plot and on the page; readable on white and on black."""

_INK, _GRID = "#010203", "#040506"  # placeholders: the finished SVG says currentColor and --plot-grid instead
_WIDTH = 4.5
"""Inches: text is as large as the page's own on a phone, and larger on a desktop."""
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "ipseg",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "text.color": _INK,
    "axes.edgecolor": _GRID,
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.7,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
}


def run_colour(position: int) -> str:
    """The colour of the run at this position."""
    return RUN_COLOURS[position % len(RUN_COLOURS)]


def miou_over_steps(results: Sequence[RunResult]) -> str:
    """The mIoU over all classes after every step, one labelled line a run; one that learned at once is a level line."""
    results = [result for result in results if result.steps]
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, 3.1), layout="constrained")
        axes = figure.add_subplot()
        last = max((result.steps[-1].step for result in results), default=0)
        ends = []
        for position, (result, name) in enumerate(zip(results, display_names(results), strict=True)):
            end = _line(axes, result, run_colour(position), learned_at_once(result, results), last)
            if not math.isnan(end):
                ends.append((end, f"{_short(name)} {end:.1f}", run_colour(position)))
        top = max([0.1, *(value for result in results for step in result.steps if (value := step.miou["all"]))])
        axes.set_ylim(0, min(100.0, 110 * top))
        axes.set_xlim(-0.08 * max(last, 1), max(last, 1) * 1.02)
        axes.set_xticks(range(0, last + 1, 1 + last // 12))
        axes.grid(visible=False, axis="x")
        axes.set_xlabel("step")
        axes.set_title("mIoU over all classes learned so far, %", loc="left", fontsize=9)
        _label_ends(axes, ends)
        return _svg(figure, "mIoU over all classes after every step")


def iou_per_class(results: Sequence[RunResult]) -> str:
    """IoU of every class after the last step, in the order of learning: bars, or dots where bars would be too many."""
    results = [result for result in results if result.steps]
    groups = _groups(results)
    places = _places(groups)
    bars = len(places) * len(results) <= 100
    row = 0.09 + 0.075 * max(2, len(results)) if bars else 0.17
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, 1.1 + row * (max(places.values(), default=0) + 1)), layout="constrained")
        axes = figure.add_subplot()
        for position, (result, name) in enumerate(zip(results, display_names(results), strict=True)):
            iou = result.steps[-1].iou
            values = [math.nan if (v := iou.get(c)) is None else 100 * v for c in places]
            style: dict[str, Any] = {"color": run_colour(position), "label": _short(name)}
            if bars:
                height = 0.8 / len(results)
                shift = (position - (len(results) - 1) / 2) * height
                axes.barh([y + shift for y in places.values()], values, height=height * 0.88, **style)
            else:
                axes.plot(values, list(places.values()), "o", markersize=4, alpha=0.85, clip_on=False, **style)
        _name_rows(axes, groups, places, dots=not bars)
        for name, place in places.items():
            if all(result.steps[-1].iou.get(name) is None for result in results):
                axes.text(1, place, "none in validation", va="center", alpha=0.65, fontsize=8.5)
        title = {"title": "IoU of every class after the last step, %", "alignment": "left"}
        figure.legend(loc="outside upper left", ncols=3, frameon=False, handlelength=0.9, handleheight=0.9, **title)
        return _svg(figure, "IoU of every class after the last step")


def _line(axes: Axes, result: RunResult, colour: str, level: bool, last: int) -> float:
    """Draw one run and say where its line ends."""
    values = [math.nan if (value := step.miou.get("all")) is None else 100 * value for step in result.steps]
    dashes = "--" if result.oracle or level else "-"
    if level:
        axes.plot([0, last], [values[0], values[0]], dashes, color=colour, linewidth=1.6)
    else:
        steps = [step.step for step in result.steps]
        axes.plot(steps, values, dashes, color=colour, linewidth=2.2, marker="o", markersize=4.5, clip_on=False)
    return values[-1]


def _label_ends(axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """Write each run's name beside the end of its line, moved apart where lines end together."""
    low, high = axes.get_ylim()
    heights = _spread([end for end, _, _ in sorted(ends)], apart=(high - low) * 0.068)
    place: dict[str, Any] = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points", "va": "center"}
    for (_, text, colour), height in zip(sorted(ends), heights, strict=True):
        axes.annotate(text, (1, height), (6, 0), color=colour, weight="bold", annotation_clip=False, **place)


def _spread(heights: list[float], apart: float) -> list[float]:
    """Rising heights pushed apart, both of a pair by half, until no two touch (or nearly so)."""
    for _ in range(100):
        for lower, upper in itertools.pairwise(range(len(heights))):
            missing = max(0.0, apart - (heights[upper] - heights[lower]))
            heights[lower] -= missing / 2
            heights[upper] += missing / 2
    return heights


def _groups(results: Sequence[RunResult]) -> dict[str, list[str]]:
    """Background, the base classes and the new ones, as the longest run learned them."""
    longest = max(results, key=lambda result: len(result.steps), default=None)
    if longest is None:
        return {}
    seen = list(longest.steps[-1].iou)
    base = [name for name in longest.steps[0].new if name in seen]
    new = [name for step in longest.steps[1:] for name in step.new if name in seen]
    groups = {"": [name for name in seen if name == BACKGROUND], "base": base, "new": new}
    return {title: names for title, names in groups.items() if names}


def _places(groups: dict[str, list[str]]) -> dict[str, float]:
    """The height of every class's row, counted downwards, with a gap between groups."""
    places: dict[str, float] = {}
    for gap, names in enumerate(groups.values()):
        for name in names:
            places[name] = len(places) + 0.6 * gap
    return places


def _name_rows(axes: Axes, groups: dict[str, list[str]], places: dict[str, float], dots: bool) -> None:
    """Class names at the left, a thin line and a word where a group begins."""
    axes.set_yticks(list(places.values()), [_short(name) for name in places])
    axes.set_ylim(max(places.values(), default=0) + 0.6, -0.6)
    axes.set_xlim(0, 100)
    axes.grid(visible=dots, axis="y")
    axes.spines["left"].set_visible(False)
    for title, names in groups.items():
        if title:
            axes.axhline(places[names[0]] - 0.8, color=_GRID, linewidth=1.2)
            place: dict[str, Any] = {"ha": "right", "va": "top", "alpha": 0.65, "fontsize": 8.5}
            axes.text(100, places[names[0]] - 0.7, title, **place)


def _short(name: str, most: int = 22) -> str:
    """The name with matplotlib's formula sign made harmless, cut where it would leave the plot no room."""
    return (name if len(name) <= most else name[: most - 1] + "…").replace("$", r"\$")


def _svg(figure: Figure, description: str) -> str:
    """The figure as an <svg> element that can stand beside others in one page, light or dark."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = text.replace(_INK, "currentColor").replace(_GRID, "var(--plot-grid, #dcdfe4)")
    text = re.sub(r"'?DejaVu Sans'?, sans-serif", "system-ui, sans-serif", text)
    unique = "p" + hashlib.sha256(text.encode()).hexdigest()[:8]
    text = re.sub(r'(<\w+ id=")', rf"\g<1>{unique}-", text)
    text = re.sub(r'(href="#|url\(#)', rf"\g<1>{unique}-", text)
    return text.replace("<svg ", f'<svg role="img" aria-label="{description}" ', 1)
