"""How every plot looks, and how it becomes SVG text that stands in any page, or a file of its own.

In a page there are no fonts, scripts or ids from outside, and ink has the colour of the text around it.
"""

from __future__ import annotations

import hashlib
import html
import io
import itertools
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ipseg.errors import UserError
from ipseg.files import replacing
from ipseg.visible import one_line

RUN_COLOURS = ("#3b6fe0", "#f2773a", "#16a394", "#a35ad9", "#e0a50c", "#e0508d", "#6b7f93", "#57a639")
"""They can be told apart, and seen on white and on black; as text they would be too pale."""
FAINT = "#8f98a3"
"""Of runs that have no colour of their own, where there are more runs than colours."""
OWN = ("ipseg", "ipseg_lda", "ssul_m", "plop_m", "mib", "joint", "finetune")
"""Runs that have the same colour on every page: RUN_COLOURS in this order."""

INK, GRID = "#010203", "#040506"
"""Placeholders: the finished SVG says currentColor and --plot-grid instead."""
WIDTH = 4.5
"""Inches: text is as large as the page's own on a phone, and larger on a desktop."""
NARROW = 3.2
"""Of plots that stand three in a row."""


def run_colour(position: int) -> str:
    """The colour at this position."""
    return RUN_COLOURS[position % len(RUN_COLOURS)]


def run_colours(names: Sequence[str]) -> list[str]:
    """A colour for each run of a page: its own, or the next that none of the others has.

    >>> run_colours(["mine", "ipseg", "plop_m (medians)"]) == [RUN_COLOURS[1], RUN_COLOURS[0], RUN_COLOURS[3]]
    True
    """
    known = dict(zip(OWN, RUN_COLOURS, strict=False))
    plain = [name.partition(" ")[0] for name in names]
    first = {name: place for place, name in reversed(list(enumerate(plain))) if name in known}
    own = {place: known[name] for name, place in first.items()}
    rest = itertools.cycle([colour for colour in RUN_COLOURS if colour not in own.values()] or RUN_COLOURS)
    return [own.get(place) or next(rest) for place in range(len(names))]


def label_ends(axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """Write each run's name beside the end of its line, moved apart where lines end together."""
    low, high = axes.get_ylim()
    line = (high - low) * min(0.075, 1 / max(1, len(ends)))
    room = (low + line / 2, high - line / 2)  # above is the title, below are the numbers of the axis
    heights = _apart([end for end, _, _ in sorted(ends)], line, room)
    place: dict[str, Any] = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points", "va": "center"}
    for (_, text, colour), height in zip(sorted(ends), heights, strict=True):
        axes.annotate("■", (1, height), (6, 0), color=colour, fontsize=7, annotation_clip=False, **place)
        axes.annotate(text, (1, height), (14, 0), annotation_clip=False, **place)


def _apart(heights: list[float], apart: float, room: tuple[float, float]) -> list[float]:
    """Rising heights pushed apart, both of a pair by half, until no two touch (or nearly so); none leaves the room."""
    for _ in range(100):
        for lower, upper in itertools.pairwise(range(len(heights))):
            missing = max(0.0, apart - (heights[upper] - heights[lower]))
            heights[lower] -= missing / 2
            heights[upper] += missing / 2
        heights = [min(max(height, room[0]), room[1]) for height in heights]
    return heights


def short(name: str, most: int = 22) -> str:
    """The name with matplotlib's formula sign made harmless, without its middle where it would leave the plot no room.

    >>> short("ipseg, training.later_lr=0.4")
    'ipseg, tra…ater_lr=0.4'
    """
    name = one_line(f" {name}" if name.startswith("_") else name)  # matplotlib leaves _names out of legends
    if len(name) > most:
        begin = (most - 1) // 2
        name = f"{name[:begin]}…{name[begin + 1 - most :]}"  # the end often tells runs apart
    return name.replace("$", r"\$")


def new_figure(height: float, width: float = WIDTH) -> tuple[Figure, Axes]:
    """An empty plot; to be made inside `styled`."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def styled(*, page: bool = True) -> Any:
    """The context in which a plot of ours is drawn: for a page, whose colours it takes, or for a file of its own."""
    return mpl.rc_context(_style(INK, GRID) if page else _style("#1c2230", "#dcdfe4"))


def _style(ink: str, grid: str) -> dict[str, Any]:
    return {
        "svg.fonttype": "none",
        "svg.hashsalt": "ipseg",
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 9,
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


def svg(figure: Figure, description: str) -> str:
    """The figure as an <svg> element that can stand beside others in one page, light or dark."""
    buffer = io.StringIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # text stays text: the reader's fonts draw it
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = text.replace(INK, "currentColor").replace(GRID, "var(--plot-grid, #dcdfe4)")
    text = re.sub(r"'?DejaVu Sans'?, sans-serif", "system-ui, sans-serif", text)
    unique = "p" + hashlib.sha256(text.encode()).hexdigest()[:8]
    text = re.sub(r'(<\w+ id=")', rf"\g<1>{unique}-", text)
    text = re.sub(r'(href="#|url\(#)', rf"\g<1>{unique}-", text)
    return text.replace("<svg ", f'<svg role="img" aria-label="{html.escape(one_line(description))}" ', 1)


def save(figure: Figure, path: Path) -> None:
    """The figure as a file for a paper or a slide, dark ink on white: .svg or .png."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("svg", "png"):
        raise UserError(f"{path}: a figure is written as .svg or .png; let the name end with one of them.")
    if not path.resolve().parent.is_dir():
        raise UserError(f"{path}: the folder {path.parent} is missing.")
    with replacing(path) as temporary:
        figure.savefig(
            temporary, format=kind, facecolor="white", dpi=200, metadata={"Date": None} if kind == "svg" else {}
        )
