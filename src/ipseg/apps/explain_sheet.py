"""The drawing of an explanation: rows of label maps, heat maps and bars above one legend, drawn by matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray
from PIL import Image

from ipseg.report.figures import short, styled
from ipseg.report.overlay import paint
from ipseg.report.palette import colors

IGNORED, PURE, UNKNOWN_THING, OTHER, SALIENT = range(255, 260)
"""Values of a map beside learned indices, which end at 253: ignored, c'_b, c'_u, c_f, salient."""
SPECIAL = {
    IGNORED: ((210, 210, 210), "ignored"),
    PURE: ((62, 68, 84), "c'_b  pure background"),
    UNKNOWN_THING: ((255, 61, 190), "c'_u  unknown object"),
    OTHER: ((225, 225, 215), "c_f  other foreground"),
    SALIENT: ((255, 255, 255), "salient"),
}
MAX_HEADS, MAX_CLASSES, MAX_BARS = 6, 4, 12
PANEL = 2.3
"""Inches of a panel's width."""


Values = NDArray[np.integer] | NDArray[np.floating] | Mapping[str, float] | None
"""(H, W) labels, or (H, W) probabilities, or a probability a class; none: the image itself."""


class Panel(NamedTuple):
    caption: str
    values: Values = None


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """The panels of one image."""

    image: NDArray[np.uint8]
    classes: Sequence[str]
    """The name of each label, background first."""
    title: str
    rows: Mapping[str, Sequence[Panel]]
    special: Sequence[int] = ()
    """Semantics that the legend names beside the classes."""
    notes: list[str] = field(default_factory=list)
    """Which parts are left out."""


def head_rows(heads: Mapping[str, Mapping[str, NDArray[np.float32]]]) -> tuple[dict[str, list[Panel]], list[str]]:
    """A row a head: c_f, then its classes. Of many, those with the highest scores, and a note about it."""
    peaks = {
        head: {name: float(values.max()) for name, values in scores.items() if name not in ("c_f", "c'_b")}
        for head, scores in heads.items()
    }
    strongest = sorted(heads, key=lambda head: -max(peaks[head].values()))[:MAX_HEADS]
    rows = {}
    for head in [head for head in heads if head in strongest]:
        classes = sorted(peaks[head], key=lambda name: -peaks[head][name])[:MAX_CLASSES]
        names = [name for name in heads[head] if name == "c_f" or name in classes]
        rows[head] = [Panel("c_f  other" if name == "c_f" else name, heads[head][name]) for name in names]
    if len(heads) <= MAX_HEADS and all(len(found) <= MAX_CLASSES for found in peaks.values()):
        return rows, []
    return rows, [
        f"Of {len(heads)} heads at most {MAX_HEADS} are drawn, with {MAX_CLASSES} classes each: the strongest."
    ]


def draw(sheet: Sheet) -> Figure:
    """Draw the rows, a title above, and below a legend of the special semantics and of every class."""
    aspect = sheet.image.shape[0] / sheet.image.shape[1]
    columns = max(len(row) for row in sheet.rows.values())
    entries = [SPECIAL[label] for label in sheet.special]
    entries += [(tuple(colors()[label].tolist()), name) for label, name in enumerate(sheet.classes) if label]
    size = (columns * PANEL + 2.4, len(sheet.rows) * (PANEL * aspect + 0.35) + 0.2 * -(-len(entries) // columns) + 1)
    image = Image.fromarray(sheet.image)
    image.thumbnail((480, 480))
    with styled():
        figure = Figure(figsize=size, layout="constrained")
        figure.suptitle(short(sheet.title, 120), x=0.01, ha="left", fontsize=11)
        grid = figure.subplots(len(sheet.rows), columns, squeeze=False)
        for axes_of_row, (name, row) in zip(grid, sheet.rows.items(), strict=True):
            axes_of_row[0].set_ylabel(short(name), rotation=0, ha="right", va="center", labelpad=8)
            for axes in axes_of_row[len(row) :]:
                axes.set_axis_off()
            for axes, panel in zip(axes_of_row, row, strict=False):
                axes.set(xticks=[], yticks=[], box_aspect=aspect)
                axes.spines[:].set_visible(False)
                axes.set_title(short(panel.caption, 32), loc="left", fontsize=9)
                _draw_panel(axes, panel.values, np.asarray(image), sheet.classes)
        scale = mpl.cm.ScalarMappable(mpl.colors.Normalize(0, 1), "magma")
        figure.colorbar(scale, ax=list(grid.flat), shrink=min(1, 2 / size[1]), aspect=12, label="probability")
        patches = [
            Patch(facecolor=np.array(color) / 255, edgecolor="gray", label=short(text)) for color, text in entries
        ]
        figure.legend(handles=patches, loc="outside lower left", ncols=columns, frameon=False)
    return figure


def _draw_panel(axes: Axes, values: Values, image: NDArray[np.uint8], classes: Sequence[str]) -> None:
    if values is None:
        axes.imshow(image, aspect="auto")
    elif isinstance(values, Mapping):
        _draw_bars(axes, values, classes)
    elif np.issubdtype(values.dtype, np.floating):
        axes.imshow(values, cmap="magma", vmin=0, vmax=1, aspect="auto")
        axes.set_title(f"max {values.max():.2f}", loc="right", fontsize=8)
    else:
        rows, columns = (
            np.arange(small) * large // small for small, large in zip(image.shape, values.shape, strict=False)
        )
        table = np.concatenate([colors(255), np.array([color for color, _ in SPECIAL.values()], dtype=np.uint8)])
        opacity = np.full(len(table), 0.72)
        opacity[0], opacity[IGNORED:] = 0, 0.86
        axes.imshow(paint(image, values[rows][:, columns], table, opacity), aspect="auto")


def _draw_bars(axes: Axes, posterior: Mapping[str, float], classes: Sequence[str]) -> None:
    """A bar a class in the order of learning, or the likeliest where there are many. Names are inside the axes."""
    names = list(posterior)
    if len(names) > MAX_BARS:
        names = sorted(names, key=lambda name: -posterior[name])[:MAX_BARS]
        axes.set_title(f"top {MAX_BARS} of {len(posterior)}", loc="right", fontsize=8)
    places = range(len(names))
    axes.barh(places, [1] * len(names), color="#e8eaee", height=0.6)
    tints = [colors()[classes.index(name)] / 255 for name in names]
    axes.barh(places, [posterior[name] for name in names], color=tints, height=0.6)
    for place, name in enumerate(names):
        axes.text(-0.04, place, short(name, 12), ha="right", va="center", fontsize=8)
        axes.text(1.04, place, f"{posterior[name]:.2f}", ha="left", va="center", fontsize=8)
    axes.set(xlim=(-0.75, 1.3), ylim=(max(3, len(names)) - 0.4, -0.6))
