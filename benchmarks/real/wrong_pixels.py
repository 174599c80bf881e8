"""Wrongly predicted pixels, drawn: how likely the true class was, how likely the winning one, and which others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ipseg.report.figures import COLORS, short
from ipseg.scenario.split import BACKGROUND

MOST = 40
"""Per cent at which histograms are cut off: one bin of a softmax would flatten all others. Its number stands there."""
Rows = dict[str, list[dict[str, Any]]]
"""What a row is called -> its runs."""
WHICH = {"true": ("the true class", COLORS[0]), "winning": ("the winning class", COLORS[1])}


def columns(rows: Rows) -> int:
    """Panels in a line: as few lines as can be read, and none nearly empty."""
    return 2 if len(rows) == 4 else min(3, len(rows))


def panels_of(down: int, across: int, size: tuple[float, float] = (3.6, 2.1), **shared: Any) -> tuple[Figure, Any]:
    """A figure, and its panels by line and column."""
    figure = Figure(figsize=(size[0] * across + 0.4, size[1] * down + 0.6), layout="constrained")
    return figure, figure.subplots(down, across, squeeze=False, **shared)


def truths(run: dict[str, Any], rows: Rows) -> dict[str, set[str]]:
    """The classes of base, new and background. What learned all at once is split as one that learned in steps was."""
    classes = {*run["base"], *run["new"]}
    others = [other for entries in rows.values() for other in entries if other["new"]]
    like = next((other for other in [run, *others] if other["new"] and {*other["base"], *other["new"]} == classes), run)
    return {"base": set(like["base"]), "new": set(like["new"]), BACKGROUND: {BACKGROUND}}


def probabilities(rows: Rows, reading: str) -> Figure:
    """How likely the true and the winning class are in wrongly predicted pixels; a panel a row."""
    wide = columns(rows)
    figure, panels = panels_of(-(-len(rows) // wide), wide, sharey=True)
    for axes, (name, runs) in zip(panels.flat, rows.items(), strict=False):
        _histograms(axes, runs, set(runs[0]["pixels"]), reading, short(name, 30))
    return _finish_histograms(figure, panels, len(rows), reading)


def by_truth(rows: Rows, reading: str) -> Figure:
    """The same, split by what the pixels truly are."""
    groups = ("base", "new", BACKGROUND)
    figure, panels = panels_of(len(rows), len(groups), sharey=True)
    for line, (name, runs) in zip(panels, rows.items(), strict=True):
        for axes, group in zip(line, groups, strict=True):
            _histograms(axes, runs, truths(runs[0], rows)[group], reading, f"{short(name)}, {group}")
    return _finish_histograms(figure, panels, panels.size, reading)


def _histograms(axes: Axes, runs: Sequence[dict[str, Any]], classes: set[str], reading: str, title: str) -> None:
    """Shares of the wrong pixels whose true class is one of these."""
    pixels = sum(run["pixels"][name] for run in runs for name in classes)
    said = "no such class"
    for which, (_, color) in WHICH.items():
        found = [bins for run in runs for name, bins in run["wrong"][reading][which].items() if name in classes]
        counts = np.sum(found, axis=0) if found else np.zeros(1, dtype=int)
        shares = 100 * counts / max(1, counts.sum())
        places = np.linspace(0, 1, len(counts) + 1)
        axes.stairs(shares, places, fill=True, color=color, alpha=0.25)
        axes.stairs(shares, places, color=color, linewidth=1.6)
        for place in np.flatnonzero(shares > MOST):
            side: dict[str, Any] = {"ha": "left" if place < len(counts) / 2 else "right", "va": "top", "fontsize": 8}
            axes.text(places[place + (place < len(counts) / 2)], MOST, f" {shares[place]:.0f} ", color=color, **side)
        if pixels:
            said = f"{100 * counts.sum() / pixels:.1f} % of pixels wrong"
    axes.set_title(f"{title}: {said}", loc="left", fontsize=9)


def _finish_histograms(figure: Figure, panels: Any, drawn: int, reading: str) -> Figure:
    kind = "final score" if reading == "as_is" else "final score, of a sum of 1 over classes"
    for position, axes in enumerate(panels.flat):
        axes.set_visible(position < drawn)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, MOST)
        axes.grid(visible=False, axis="x")
    handles = [Axes.stairs(panels.flat[0], [0], [0, 0], color=color, fill=True) for _, color in WHICH.values()]
    names = [f"of {said}" for said, _ in WHICH.values()]
    title = {"title": f"Share of wrongly predicted pixels (%) over the {kind}", "alignment": "left"}
    figure.legend(handles, names, loc="outside upper left", ncols=2, frameon=False, **title)
    return figure


def mean_probabilities(rows: Rows) -> Figure:
    """The mean distribution over classes in wrongly predicted pixels of each true class; a panel a row."""
    wide = columns(rows)
    classes = max(len(run["pixels"]) for runs in rows.values() for run in runs)
    side = max(3.4, 0.42 * classes)
    figure, panels = panels_of(-(-len(rows) // wide), wide, (side, side - 0.2))
    for axes in panels.flat[len(rows) :]:
        axes.set_visible(False)
    for axes, (name, runs) in zip(panels.flat, rows.items(), strict=False):
        names = list(runs[0]["pixels"])
        means = np.array([[_pooled_mean(runs, true, other) for other in names] for true in names])
        axes.imshow(means, cmap="Blues", vmin=0, vmax=1)
        for (down, right), mean in np.ndenumerate(means) if len(names) <= 12 else ():
            text = "" if np.isnan(mean) else f"{100 * mean:.0f}"
            axes.text(right, down, text, ha="center", va="center", fontsize=7, color="white" if mean > 0.6 else None)
        axes.set_xticks(range(len(names)), [short(each, 12) for each in names], rotation=90)
        axes.set_yticks(range(len(names)), [short(each, 12) for each in names])
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        axes.set_title(short(name, 30), loc="left", fontsize=9)
    figure.supylabel("true class", fontsize=9)
    title = "Mean probability (%) of every class where the true class is missed; rows add up to 100"
    figure.suptitle(title, x=0.01, ha="left", fontsize=9)
    return figure


def _pooled_mean(runs: Sequence[dict[str, Any]], true: str, other: str) -> float:
    """Over the wrong pixels of all seeds; NaN where there are none."""
    parts = [run["wrong"]["normalized"] for run in runs if true in run["wrong"]["normalized"]["true"]]
    weights = [sum(part["true"][true]) for part in parts]
    values = [part["mean"][true].get(other, 0.0) for part in parts]
    return float(np.average(values, weights=weights)) if parts else float("nan")
