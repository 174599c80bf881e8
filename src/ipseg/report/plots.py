"""What was measured, drawn: mIoU over steps, IoU of every class, image-level accuracy, losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes

from ipseg.evaluation.results import BACKGROUND, StepResult
from ipseg.report.groups import Drawn, Mean, longest
from ipseg.report.plot_style import FAINT, INK, NARROW, WIDTH, label_ends, new_figure, short, styled, svg

Curves = Mapping[str, Sequence[tuple[float, float]]]
"""A loss -> (place, value): a place is the step's number plus the share of the step that is done."""

READINGS = {
    "posterior": "by the image posterior",
    "pixel": "by the pixels alone",
    "both": "by the finished label map",
}
"""The ways to say which classes are in a picture."""
MIOU_TITLE = "mIoU over all classes learned so far, %"
CLASSES_TITLE = "IoU of every class after the last step, %"
_DASHES = ("-", "--", ":", "-.")
_FEW = 10
"""A loss that was logged less often is drawn with its points: a single one has no line."""
_TALL = 40
"""Of more classes the plot has its scale at the top too: nobody sees both ends at once."""
_SHORT = 14
"""Names of up to so many letters stand three in a line."""


def miou_over_steps(rows: Sequence[Drawn], thin: Sequence[Drawn] = ()) -> str:
    """The mIoU over all classes after every step, one labelled line a row; one that learned at once is a level line."""
    what = "mIoU over all classes after every step"
    return _over_steps([*thin, *rows], _all, MIOU_TITLE, what, alone=len(rows) == 1)


def draw_miou_over_steps(axes: Axes, rows: Sequence[Drawn]) -> None:
    """The same, for a figure of its own."""
    _draw_over_steps(axes, rows, _all, MIOU_TITLE, alone=len(rows) == 1)


def _all(step: StepResult) -> float | None:
    return step.miou.get("all")


def image_accuracy(rows: Sequence[Drawn], reading: str) -> str | None:
    """The share of pictures whose set of classes is exactly right, read one way; none where no run was."""

    def value(step: StepResult) -> float | None:
        return (step.image_accuracy or {}).get("all", {}).get(reading)

    known = [row for row in rows if any(mean.mean is not None for mean in row.over_steps(value))]
    if not known:
        return None
    title = f"pictures right {READINGS[reading]}, %"
    what = f"share of pictures whose classes are all right, {READINGS[reading]}"
    return _over_steps(known, value, title, what, NARROW, alone=len(rows) == 1)


def _over_steps(
    rows: Sequence[Drawn],
    value: Callable[[StepResult], float | None],
    title: str,
    what: str,
    width: float = WIDTH,
    *,
    alone: bool,
) -> str:
    with styled():
        figure, axes = new_figure(max(3.1 if width == WIDTH else 2.6, 0.24 * len(rows)), width)
        _draw_over_steps(axes, rows, value, title, alone=alone, ticks=12 if width == WIDTH else 6)
        told = "; ".join(f"{row.name} {_told(row.over_steps(value))}" for row in rows)
        return svg(figure, f"{what}. {told}")


def _draw_over_steps(
    axes: Axes,
    rows: Sequence[Drawn],
    value: Callable[[StepResult], float | None],
    title: str,
    *,
    alone: bool,
    ticks: int = 12,
) -> None:
    """A line a row; a run that is alone on its page needs no name at the end of it."""
    last = max((step.step for step in longest(rows)), default=0)
    ends, top = [], 10.0
    for row in rows:
        means = [mean for mean in row.over_steps(value) if mean.mean is not None]
        if means:
            end = _line(axes, row, means, last)
            ends.append((end, f"{end:.1f}" if alone else f"{short(row.name)} {end:.1f}", row.colour))
            top = max(top, *(mean.mean + (mean.spread or 0) for mean in means if mean.mean is not None))
    axes.set_ylim(0, min(100.0, 1.1 * top))
    axes.set_xlim(-0.08 * max(last, 1), max(last, 1) * 1.02)
    axes.set_xticks(range(0, last + 1, 1 + last // ticks))
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("step")
    axes.set_title(title, loc="left", fontsize=9)
    label_ends(axes, ends)


def _line(axes: Axes, row: Drawn, means: Sequence[Mean], last: int) -> float:
    """Draw one row, its spread over seeds as a band, and say where its line ends; marks alone where none belongs."""
    steps = [0, last] if row.level else [mean.step for mean in means]
    values = [mean.mean or 0.0 for mean in means] * (2 if row.level else 1)
    spreads = [mean.spread or 0.0 for mean in means] * (2 if row.level else 1)
    dashes = "none" if not row.measured_alike else "--" if row.dashed else "-"
    thin = row.colour == FAINT
    marks: dict[str, Any] = {} if row.level else {"marker": "o", "markersize": 2.5 if thin else 4.5, "clip_on": False}
    width = 1.0 if thin else 1.6 if row.level else 2.2
    axes.plot(steps, values, linestyle=dashes, color=row.colour, linewidth=width, **marks)
    if any(spreads) and row.measured_alike and not thin:
        low, high = ([v + sign * s for v, s in zip(values, spreads, strict=True)] for sign in (-1, 1))
        axes.fill_between(steps, low, high, color=row.colour, alpha=0.14, linewidth=0)
    return values[-1]


def _told(means: Sequence[Mean]) -> str:
    """The numbers of a line, for those who do not see it."""
    return ", ".join("–" if mean.mean is None else f"{mean.mean:.1f}" for mean in means)


def training_curve(row: Drawn, curves: Curves) -> str:
    """The losses of one run, each step as wide as the others; their sum strong, the parts thin."""
    with styled():
        figure, axes = new_figure(2.6, NARROW)
        last = max((place for points in curves.values() for place, _ in points), default=1.0)
        parts = [name for name in curves if name != "sum"]
        total = curves.get("sum", ())
        few: dict[str, Any] = {"marker": "o", "markersize": 3.5, "clip_on": False} if len(total) < _FEW else {}
        if total and len(parts) != 1:
            axes.plot(*zip(*total, strict=True), color=row.colour, linewidth=2.2, label="sum", **few)
        for number, name in enumerate(parts):
            alone: dict[str, Any] = {"color": row.colour, "linewidth": 2.2}
            style = alone if len(parts) == 1 else {"color": INK, "linewidth": 1.1, "alpha": 0.75}
            dashes = _DASHES[number % len(_DASHES)]
            axes.plot(*zip(*curves[name], strict=True), dashes, label=short(name), **style, **few)
        axes.set_ylim(bottom=0)
        axes.set_xlim(0, last)
        steps = range(math.ceil(last))
        axes.set_xticks([number + 0.5 for number in steps], [f"step {number}" for number in steps])
        axes.grid(visible=False, axis="x")
        for number in steps[1:]:
            axes.axvline(number, color=mpl.rcParams["grid.color"], linewidth=0.7)
        title = {"title": f"{short(row.name, 30)}: loss", "alignment": "left"}
        figure.legend(loc="outside upper left", ncols=2, frameon=False, handlelength=1.6, fontsize=8, **title)
        ended = ", ".join(f"{name} {points[-1][1]:.3g}" for name, points in curves.items())
        return svg(figure, f"losses of {row.name} over its steps; at the end: {ended}")


# ---- class by class -------------------------------------------------------------------------------------------------


def iou_per_class(rows: Sequence[Drawn]) -> str:
    """IoU of every class after the last step, in the order of learning: bars, or dots where bars would be too many."""
    places = _places(_groups(rows))
    height = 0.09 + 0.075 * max(2, len(rows)) if _as_bars(places, rows) else 0.17
    with styled():
        figure, axes = new_figure(1.1 + height * (max(places.values(), default=0) + 1))
        draw_iou_per_class(axes, rows)
        title = {"title": CLASSES_TITLE, "alignment": "left"}
        columns = 3 if all(len(row.name) <= _SHORT for row in rows) else 2
        sizes = {"handlelength": 0.9, "handleheight": 0.9}
        handles = axes.get_legend_handles_labels()[0] if len(rows) > 1 else []  # nobody asks which run it is
        figure.legend(handles=handles, loc="outside upper left", ncols=columns, frameon=False, **sizes, **title)
        told = "; ".join(f"{row.name}: {_listed(row.iou()[-1])}" for row in rows)
        return svg(figure, f"IoU of every class after the last step. {told}")


def _listed(iou: Mapping[str, float | None]) -> str:
    return ", ".join(f"{name} {'–' if value is None else f'{value:.0f}'}" for name, value in iou.items())


def draw_iou_per_class(axes: Axes, rows: Sequence[Drawn]) -> None:
    """The same without title and legend, for a figure of its own."""
    groups = _groups(rows)
    places = _places(groups)
    bars = _as_bars(places, rows)
    for position, row in enumerate(rows):
        iou = row.iou()[-1]
        values = [math.nan if (value := iou.get(name)) is None else value for name in places]
        style: dict[str, Any] = {"color": row.colour, "label": short(row.name)}
        if bars:
            thick = 0.8 / len(rows)
            shift = (position - (len(rows) - 1) / 2) * thick
            axes.barh([y + shift for y in places.values()], values, height=thick * 0.88, **style)
        else:
            axes.plot(values, list(places.values()), "o", markersize=4, alpha=0.85, clip_on=False, **style)
    _name_rows(axes, groups, places, dots=not bars)
    for name, place in places.items():
        if all(row.iou()[-1].get(name) is None for row in rows):
            axes.text(1, place, "none in validation", va="center", alpha=0.65, fontsize=8.5)


def _as_bars(places: Mapping[str, float], rows: Sequence[Drawn]) -> bool:
    return len(places) * len(rows) <= 100


def _groups(rows: Sequence[Drawn]) -> dict[str, list[str]]:
    """Background, the base classes and the new ones, as the longest run learned them."""
    steps = longest(rows)
    if not steps:
        return {}
    seen = list(steps[-1].iou)
    base = [name for name in steps[0].new if name in seen]
    new = [name for step in steps[1:] for name in step.new if name in seen]
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
    axes.set_yticks(list(places.values()), [short(name) for name in places])
    axes.set_ylim(max(places.values(), default=0) + 0.6, -0.6)
    axes.set_xlim(0, 100)
    axes.tick_params(labeltop=len(places) > _TALL)
    axes.grid(visible=dots, axis="y")
    axes.spines["left"].set_visible(False)
    for title, names in groups.items():
        if title:
            axes.axhline(places[names[0]] - 0.8, color=mpl.rcParams["grid.color"], linewidth=1.2)
            place: dict[str, Any] = {"ha": "right", "va": "top", "alpha": 0.65, "fontsize": 8.5}
            axes.text(100, places[names[0]] - 0.7, title, **place)
