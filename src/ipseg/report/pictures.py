"""Pictures as they stand in a page: photographs, thin layers of labels over them, and outlines of what is wrong."""

from __future__ import annotations

import base64
import io
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ipseg.report.overlay import DARKER, checked, hatching, outline
from ipseg.report.palette import IGNORE, Bytes, colours

SHARP = 200
"""Pictures up to this size are shown pixel by pixel; larger ones are photographs."""
_LARGEST = 480
"""No picture on the page is larger: a page of many scenes must still open on a phone."""
_THUMBNAIL = 112
_CASING, _LINE = (20, 20, 20), (255, 255, 255)
"""White inside black is seen on every colour of the palette and on every photograph."""

Marks = NDArray[np.bool_]


@dataclass(frozen=True)
class Layer:
    """One view of a picture's labels."""

    source: str
    """A see-through palette PNG of a few hundred bytes, to lie over the image."""
    seen: str
    """The classes that it shows, in words."""
    errors: str = ""
    """Another one, with outlines of what is wrong; none where nothing is, or nobody asked."""
    wrong: str = ""
    """How much of the picture is wrong, in words."""


def photo(image: Bytes) -> str:
    """The image as a data address: exact if small, as JPEG if it is a photograph."""
    picture = Image.fromarray(image)
    if max(picture.size) <= SHARP:
        return _address(picture, "png", optimize=True)
    picture.thumbnail((_LARGEST, _LARGEST))
    return _address(picture, "jpeg", quality=85)


def thumbnail(image: Bytes) -> str:
    """A small copy."""
    picture = Image.fromarray(image)
    picture.thumbnail((_THUMBNAIL, _THUMBNAIL))
    return _address(picture, "jpeg", quality=80)


def layer(image: Bytes, labels: NDArray[np.integer], names: Sequence[str], truth: Bytes | None = None) -> Layer:
    """The labels over the image and, where the truth is given, outlines of what is wrong."""
    whole = checked(image, labels, names)
    small = _thinned(whole).copy()
    small[(small == IGNORE) & hatching(small.shape)] = 0
    shown, inverse = np.unique(small, return_inverse=True)
    indices = inverse.reshape(small.shape)
    if 2 * len(shown) <= 256:  # an outline takes a second palette entry a class; so many classes need none
        indices = indices + len(shown) * outline(small)
    fill = colours(256)[shown]
    palette = np.concatenate([fill, (fill * DARKER).astype(np.uint8)])[:256]
    alpha = np.concatenate([np.where(shown == 0, 0, 165), np.full(len(shown), 240)])[:256]
    seen = [("ignored" if label == IGNORE else names[label]) for label in shown.tolist() if label]
    source, words = _palette_png(indices, palette, alpha), ", ".join(seen) or "nothing"
    if truth is None:
        return Layer(source, words)
    wrong = (whole != truth) & (truth != IGNORE)
    counted = max(1, int((truth != IGNORE).sum()))
    return Layer(source, words, _outlined(_thinned(wrong.astype(np.uint8)) > 0), _say_wrong(int(wrong.sum()) / counted))


def expected(truth: NDArray[np.integer], names: Sequence[str], seen: Collection[str], unseen: int = 0) -> Bytes:
    """What should be there after a step: classes that are not learned yet are `unseen`, background or ignored."""
    table = np.array([i if name in seen or i == 0 else unseen for i, name in enumerate(names)], dtype=np.uint8)
    whole = np.full(256, IGNORE, dtype=np.uint8)
    whole[: len(table)] = table
    shown: Bytes = whole[truth]
    return shown


def _say_wrong(share: float) -> str:
    return f"{100 * share:.0f} % wrong" if share >= 0.005 or share == 0 else "under 1 % wrong"


def _outlined(wrong: Marks) -> str:
    """Outlines of the wrong areas; an edge that is a pixel or two off is no area."""
    radius = max(1, round(min(wrong.shape) / 100))
    areas = _grown(_shrunk(wrong, radius), radius)
    if not areas.any():
        return ""
    thick = max(1, round(min(wrong.shape) / 200))
    line = areas & ~_shrunk(areas, thick, beyond=False)
    casing = _grown(areas, thick) & ~areas
    rows, columns = np.indices(areas.shape)
    stripes = areas & ~line & ((rows + columns) % (7 * thick) < thick)  # they say which side of the line is wrong
    palette = np.array([[0, 0, 0], _LINE, _CASING, _LINE], np.uint8)
    return _palette_png(line + 2 * casing + 3 * stripes, palette, np.array([0, 255, 255, 120]))


def _grown(marks: Marks, radius: int, *, beyond: bool = False) -> Marks:
    """Everything within a square of the marks; `beyond` says whether what lies around the picture is marked."""
    height, width = marks.shape
    padded = np.pad(marks, radius, constant_values=beyond)
    shifts = range(2 * radius + 1)
    across = np.any([padded[:, x : x + width] for x in shifts], axis=0)
    down: Marks = np.any([across[y : y + height] for y in shifts], axis=0)
    return down


def _shrunk(marks: Marks, radius: int, *, beyond: bool = True) -> Marks:
    """What is farther than the radius from everything unmarked."""
    return ~_grown(~marks, radius, beyond=not beyond)


def _thinned(labels: Bytes) -> Bytes:
    """The labels at the size of the page's photograph."""
    if max(labels.shape) <= SHARP:
        return labels
    picture = Image.fromarray(labels)
    factor = min(1.0, _LARGEST / max(picture.size))
    size = (max(1, round(picture.width * factor)), max(1, round(picture.height * factor)))
    return np.asarray(picture.resize(size, Image.Resampling.NEAREST))


def _palette_png(indices: NDArray[np.integer], palette: Bytes, alpha: NDArray[np.integer]) -> str:
    picture = Image.fromarray(indices.astype(np.uint8))
    picture.putpalette(palette.tobytes())
    return _address(picture, "png", optimize=True, transparency=bytes(alpha.astype(np.uint8)))


def _address(picture: Image.Image, kind: str, **options: Any) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, format=kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"
