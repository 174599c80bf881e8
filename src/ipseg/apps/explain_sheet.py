"""How an explanation looks: panels with captions, laid out in rows above one legend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from ipseg.report.overlay import DARKER, LegendEntry, fitted, font, grid, hatching, heatmap, outline, with_legend
from ipseg.report.palette import colors

IGNORED, PURE, UNKNOWN_THING, OTHER, SALIENT = range(255, 260)
"""What a map may hold beside learned indices, which end at 253: ignored, c'_b, c'_u, c_f, salient, none."""
SPECIAL: dict[int, LegendEntry] = {
    PURE: ((62, 68, 84), "c'_b  pure background"),
    UNKNOWN_THING: ((255, 61, 190), "c'_u  unknown object"),
    OTHER: ((246, 246, 240), "c_f  other foreground"),
    IGNORED: ((210, 210, 210), "ignored"),
    SALIENT: ((255, 255, 255), "stands out"),
}
COLUMNS = 5
MOST_HEADS = 6
WIDTH, MOST_HEIGHT = 232, 300
_LEGEND = 960
"""A legend's text grows with its width; this one is as large as the captions."""
_SIZE = 15
_INK, _QUIET, _TRACK = (34, 38, 46), (110, 116, 128), (232, 234, 238)

Panel = Image.Image


@dataclass(frozen=True)
class View:
    """The picture that everything is drawn over."""

    image: NDArray[np.uint8]
    classes: tuple[str, ...]
    """The name of each label, background first."""
    title: str


@dataclass(frozen=True)
class Head:
    """A branch's probabilities by channel, each (H, W)."""

    name: str
    scores: Mapping[str, NDArray[np.float32]]


# ---- panels -----------------------------------------------------------------------------------------------------


def photo(view: View, caption: str) -> Panel:
    """The picture itself."""
    return _captioned(_fit(Image.fromarray(view.image), Image.Resampling.LANCZOS), caption)


def painted(view: View, labels: NDArray[np.integer], caption: str) -> Panel:
    """A label map: strong colors over a faint picture; background shows the picture, ignored pixels are hatched."""
    picture = np.array(_fit(Image.fromarray(view.image), Image.Resampling.LANCZOS))
    rows, columns = (
        (np.arange(small) * large // small) for small, large in zip(picture.shape, labels.shape, strict=False)
    )
    return _captioned(Image.fromarray(_paint(picture, labels[rows][:, columns])), caption)


def _paint(image: NDArray[np.uint8], labels: NDArray[np.integer]) -> NDArray[np.uint8]:
    special = [SPECIAL[label][0] for label in range(IGNORED + 1, SALIENT + 1)]
    table = np.concatenate([colors(), special]).astype(float)
    share = np.full(len(table), 0.72)
    share[0], share[IGNORED:] = 0, 0.86
    strength, color = share[labels], table[labels]
    strength[(labels == IGNORED) & hatching(labels.shape)] = 0.2
    edge = outline(labels)  # type: ignore[arg-type]  # more labels than fit a byte
    color[edge] *= DARKER
    strength[edge] = 0.9
    blended: NDArray[np.uint8] = (image + strength[..., None] * (color - image)).round().astype(np.uint8)
    return blended


def heat(scores: NDArray[np.float32], name: str) -> Panel:
    """A channel's probabilities, with the highest one in the caption."""
    shown = _fit(heatmap(scores.astype(np.float64)), Image.Resampling.BILINEAR)
    return _captioned(shown, name, f"max {scores.max():.2f}")


def bars(view: View, posterior: Mapping[str, float], caption: str) -> Panel:
    """The posterior: a bar a class, in the order of learning, or the likeliest ones where there are many."""
    height = _size(Image.fromarray(view.image))[1]
    room = max(3, height // 19)
    shown = sorted(posterior, key=lambda name: -posterior[name])[:room]
    quiet = "" if len(posterior) <= room else f"top {room} of {len(posterior)}"
    names = [name for name in posterior if name in shown] if len(posterior) <= room else shown
    panel = Image.new("RGB", (WIDTH, max(height, 19 * len(names))), "white")
    draw, face = ImageDraw.Draw(panel), font(_SIZE - 1)
    line = min(30, panel.height / max(1, len(names)))
    start, end = round(WIDTH * 0.42), WIDTH - 40
    for row, name in enumerate(names):
        middle = line * (row + 0.5)
        color = tuple(colors()[view.classes.index(name)].tolist())
        draw.text((start - 8, middle), fitted(name, face, start - 10), _INK, face, anchor="rm")
        for right, fill in ((end, _TRACK), (start + (end - start) * posterior[name], color)):
            draw.rounded_rectangle((start, middle - line * 0.28, max(right, start + 1), middle + line * 0.28), 2, fill)
        draw.text((WIDTH - 2, middle), f"{posterior[name]:.2f}", _INK, face, anchor="rm")
    return _captioned(panel, caption, quiet)


def scale() -> Panel:
    """What the colors of heat maps mean."""
    ramp = heatmap(np.tile(np.linspace(0, 1, WIDTH - 40), (18, 1)))
    panel = Image.new("RGB", (WIDTH, 60), "white")
    panel.paste(ramp, (20, 8))
    draw, face = ImageDraw.Draw(panel), font(_SIZE - 1)
    for value, left in ((0, 20), (0.5, WIDTH // 2), (1, WIDTH - 20)):
        draw.text((left, 40), f"{value:g}", _QUIET, face, anchor="mm")
    return _captioned(panel, "probability (heat maps)")


# ---- rows and sheet ---------------------------------------------------------------------------------------------


def permanent_row(head: Head) -> list[Panel]:
    """Background first, then unknown objects, then the key to the colors."""
    return [heat(head.scores["c'_b"], "c'_b  background"), heat(head.scores["c'_u"], "c'_u  unknown"), scale()]


def head_rows(heads: Sequence[Head]) -> tuple[dict[str, list[Panel]], list[str]]:
    """A row a head: c_f, then its classes. Where there are many, those with the highest scores; notes say so."""
    notes, shown = [], list(heads)
    if len(heads) > MOST_HEADS:
        strongest = sorted(heads, key=lambda head: -max(_peaks(head).values()))[:MOST_HEADS]
        shown = [head for head in heads if head in strongest]
        notes.append(f"Of {len(heads)} heads the {MOST_HEADS} with the highest class scores are drawn.")
    rows = {}
    for head in shown:
        peaks = _peaks(head)
        extra = [name for name in ("c_f",) if name in head.scores]
        room = COLUMNS - len(extra)
        chosen = sorted(peaks, key=lambda name: -peaks[name])[:room]
        if len(peaks) > room:
            notes.append(f"The {head.name} has {len(peaks)} classes; the {room} with the highest scores are drawn.")
        names = extra + [name for name in peaks if name in chosen]
        rows[head.name] = [heat(head.scores[n], "c_f  other" if n == "c_f" else n) for n in names]
    return rows, notes


def _peaks(head: Head) -> dict[str, float]:
    return {name: float(values.max()) for name, values in head.scores.items() if name not in ("c_f", "c'_b")}


def sheet(view: View, rows: Mapping[str, list[Panel]], special: Sequence[int]) -> Image.Image:
    """All rows, a title above, and below a legend of the special semantics and of every class."""
    columns = max(len(row) for row in rows.values())
    body = grid(list(rows.values()), [""] * columns, list(rows))
    ImageDraw.Draw(body).text((12, 8), fitted(view.title, font(17), body.width - 24), _INK, font(17))
    entries = [SPECIAL[label] for label in special]
    entries += [(tuple(colors()[label].tolist()), name) for label, name in enumerate(view.classes) if label]
    return _stacked(body, with_legend(Image.new("RGB", (min(body.width, _LEGEND), 1), "white"), entries))


def _stacked(above: Image.Image, below: Image.Image) -> Image.Image:
    both = Image.new("RGB", (max(above.width, below.width), above.height + below.height), "white")
    both.paste(above, (0, 0))
    both.paste(below, (0, above.height))
    return both


def _captioned(picture: Image.Image, caption: str, quiet: str = "") -> Panel:
    """The picture under a line of text, on a panel of the common width."""
    panel = Image.new("RGB", (WIDTH, picture.height + 22), "white")
    draw = ImageDraw.Draw(panel)
    room = WIDTH - (font(_SIZE - 2).getlength(quiet) + 8 if quiet else 0)
    draw.text((0, 10), fitted(caption, font(_SIZE - 1), room), _INK, font(_SIZE - 1), anchor="lm")
    draw.text((WIDTH - 1, 10), quiet, _QUIET, font(_SIZE - 2), anchor="rm")
    panel.paste(picture, ((WIDTH - picture.width) // 2, 22))
    return panel


def _size(picture: Image.Image) -> tuple[int, int]:
    factor = min(WIDTH / picture.width, MOST_HEIGHT / picture.height)
    return max(1, round(picture.width * factor)), max(1, round(picture.height * factor))


def _fit(picture: Image.Image, how: Image.Resampling) -> Image.Image:
    return picture.resize(_size(picture), how)
