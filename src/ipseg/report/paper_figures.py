"""The paper's figure of results, from its numbers: mIoU over scenarios and over steps, with runs of ours beside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ipseg.report.compare import Line, Section
from ipseg.report.groups import Drawn
from ipseg.report.paper import published
from ipseg.report.plot_style import label_ends, new_figure, run_colour, save, short, styled, svg

FIGURE = "fig:performance_voc"
PANELS = {
    "(a)": "VOC, mIoU after the last step, %",
    "(b)": "VOC 2-2, mIoU after every step, %",
    "(c)": "VOC 15-1, mIoU after every step, %",
}


@dataclass(frozen=True)
class Own:
    """A row of ours whose setting is the paper's."""

    name: str
    scenario: str
    line: Line


def own_rows(sections: Sequence[Section]) -> list[Own]:
    """The rows that may stand beside the paper's curves: finished, of VOC in the overlap setting, no bounds."""
    return [
        Own(line.name, section.scenario.rpartition("/")[2], line)
        for section in sections
        if section.setting == "overlap" and section.scenario.startswith("voc/")
        for line in section.lines
        if line.paper is not None and line.rival
    ]


def paper_panels(sections: Sequence[Section]) -> list[str]:
    """The figure for a page, panel by panel; none where no run of ours belongs into it."""
    ours = own_rows(sections)
    panels = []
    with styled():
        for panel, title in PANELS.items() if ours else ():
            figure, axes = new_figure(3.0, 3.7)
            _panel(axes, panel, ours)
            told = [
                f"{n.row} {n.scenario if n.step is None else n.step} {n.value}" for n in published(where=FIGURE + panel)
            ]
            panels.append(svg(figure, f"{title}. The paper: {', '.join(told)}. Ours: {_told(ours)}"))
    return panels


def save_paper_figure(path: Path, sections: Sequence[Section] = ()) -> None:
    """The figure as a file."""
    with styled(page=False):
        figure = Figure(figsize=(13.2, 3.6), layout="constrained")
        for axes, panel in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
            _panel(axes, panel, own_rows(sections))
        save(figure, path)


def _told(ours: Sequence[Own]) -> str:
    return ", ".join(f"{own.name} {own.scenario} {100 * (own.line.means['all'] or 0):.1f}" for own in ours)


def _panel(axes: Axes, panel: str, ours: Sequence[Own]) -> None:
    """The paper's curves thin, ours strong; places are scenarios, or the steps of one."""
    numbers = published(where=FIGURE + panel)
    axes.set_title(f"{panel} {PANELS[panel]}", loc="left", fontsize=9)
    over_steps = numbers[0].step is not None
    scenarios = list(dict.fromkeys(number.scenario for number in numbers))
    curves = list(dict.fromkeys(number.row for number in numbers))
    last = max(n.step or 0 for n in numbers) if over_steps else len(scenarios) - 1
    ends, values = [], [number.value for number in numbers]
    for place, row in enumerate(curves):
        points = [
            (n.step if n.step is not None else scenarios.index(n.scenario), n.value) for n in numbers if n.row == row
        ]
        axes.plot(*zip(*points, strict=True), color=run_colour(place), linewidth=1.3, marker="o", markersize=3)
        ends.append((points[-1][1], f"{short(row)} {points[-1][1]:.1f}", run_colour(place)))
    for place, (name, points) in enumerate(_own_points(ours, scenarios, over_steps=over_steps).items(), len(curves)):
        style: dict[str, Any] = {"color": run_colour(place), "linewidth": 2.6, "marker": "D", "markersize": 6}
        known = dict(points)
        axes.plot(range(last + 1), [known.get(i, math.nan) for i in range(last + 1)], **style)  # no line over a gap
        end, value = points[-1]
        where = "" if end == last else f" at {end if over_steps else scenarios[end]}"
        ends.append((value, f"{short(name)} (ours) {value:.1f}{where}", run_colour(place)))
        values += known.values()
    axes.set_xticks(range(last + 1), [str(i) for i in range(last + 1)] if over_steps else scenarios)
    axes.set_xlabel("step" if over_steps else "scenario")
    axes.grid(visible=False, axis="x")
    axes.set_ylim(max(0.0, min(values) - 6), min(100.0, max(values) + 4))
    label_ends(axes, ends)


def _own_points(
    ours: Sequence[Own], scenarios: Sequence[str], *, over_steps: bool
) -> dict[str, list[tuple[int, float]]]:
    """Our curves of a panel, in percent."""
    found: dict[str, list[tuple[int, float]]] = {}
    for own in ours:
        if own.scenario not in scenarios:
            continue
        if over_steps:
            means = Drawn(own.line, "").over_steps(lambda step: step.miou.get("all"))
            found[own.name] = [(mean.step, mean.mean) for mean in means if mean.mean is not None]
        elif (value := own.line.means["all"]) is not None:
            found.setdefault(own.name, []).append((scenarios.index(own.scenario), 100 * value))
    return {name: sorted(points) for name, points in found.items() if points}
