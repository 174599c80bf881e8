"""Figures: what an object is made of, before it has a place, a size or a color.

A figure is a list of polygons in a plane of about -1..1 (y points down), painted one over the other. Each names the
tone it is filled with; which colors and textures the tones become is decided elsewhere, alike for every class. So a
class is its shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float64]
Point = tuple[float, float]

HOLE, BODY, TRIM, DARK, LIGHT = range(5)
"""Tones. A hole takes away what lies under it, body and trim have a texture, dark and light are for small parts."""


@dataclass(frozen=True)
class Part:
    """One polygon and its tone."""

    points: Points
    tone: int = BODY


Figure = list[Part]
Sketch = Callable[[np.random.Generator], Figure]
"""Draws one specimen of a class: proportions vary from call to call."""


_ANGLES = np.linspace(0, 2 * np.pi, 28, endpoint=False)
_CIRCLE = np.cos(_ANGLES), np.sin(_ANGLES)
_HALF_CIRCLE = np.stack([np.cos(_ANGLES[:15:2] - np.pi / 2), np.sin(_ANGLES[:15:2] - np.pi / 2)], axis=1)


def ellipse(center: Point, radii: Point, tone: int = BODY, turn: float = 0.0, power: float = 1.0) -> Part:
    """An ellipse, turned by degrees; a power below 1 makes it boxier."""
    x, y = _CIRCLE
    if power != 1.0:
        x, y = np.sign(x) * np.abs(x) ** power, np.sign(y) * np.abs(y) ** power
    points = np.stack([x * radii[0], y * radii[1]], axis=1)
    return Part((rotated(points, turn) if turn else points) + center, tone)


def polygon(points: Sequence[Point] | Points, tone: int = BODY) -> Part:
    """Straight edges through the given points."""
    return Part(np.asarray(points, dtype=np.float64), tone)


def box(left: float, top: float, right: float, bottom: float, tone: int = BODY, *, corner: float = 0.0) -> Part:
    """An upright box; `corner` is the radius of its rounding."""
    if corner <= 0:
        return polygon([(left, top), (right, top), (right, bottom), (left, bottom)], tone)
    corner = min(corner, (right - left) / 2, (bottom - top) / 2)
    turns = np.linspace(0, np.pi / 2, 5)
    centers = [(right, bottom, -1, -1), (left, bottom, 1, -1), (left, top, 1, 1), (right, top, -1, 1)]
    arcs = [
        np.stack([np.cos(turns + k * np.pi / 2), np.sin(turns + k * np.pi / 2)], axis=1) * corner
        + (x + sx * corner, y + sy * corner)
        for k, (x, y, sx, sy) in enumerate(centers)
    ]
    return Part(np.concatenate(arcs), tone)


def limb(start: Point, end: Point, widths: Point, tone: int = BODY) -> Part:
    """A rounded bar from start to end whose thickness goes from one width to the other."""
    a, b = np.asarray(start), np.asarray(end)
    heading = np.arctan2(*(b - a)[::-1])
    around = rotated(_HALF_CIRCLE, float(np.rad2deg(heading)))
    return Part(np.concatenate([around * (widths[1] / 2) + b, around * (-widths[0] / 2) + a]), tone)


def bow(points: Sequence[Point], width: float, tone: int = BODY) -> list[Part]:
    """A bent bar through several points: tails, handles, branches."""
    return [limb(a, b, (width, width), tone) for a, b in pairwise(points)]


def radial(radii: Sequence[float] | Points, tone: int = BODY, center: Point = (0, 0), start: float = -90.0) -> Part:
    """A closed outline given by its radius at equal steps of angle: blobs, stars, petals."""
    r = np.asarray(radii, dtype=np.float64)
    angle = np.deg2rad(start) + np.linspace(0, 2 * np.pi, len(r), endpoint=False)
    return Part(np.stack([r * np.cos(angle), r * np.sin(angle)], axis=1) + center, tone)


def rotated(points: Points, degrees: float) -> Points:
    """The points turned around the origin."""
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    turn = np.array([[c, s], [-s, c]])
    result: Points = points @ turn
    return result


def posed(figure: Figure, rng: np.random.Generator, tilt: float = 12.0) -> Figure:
    """The figure as one happens to meet it: tilted, mirrored, leaning, stretched; its longest extent becomes 1."""
    stretch = np.exp(rng.uniform(-0.14, 0.14))
    mirror = rng.choice([-1.0, 1.0])
    pose = np.array([[mirror * stretch, 0.0], [rng.uniform(-0.08, 0.08), 1 / stretch]])
    angle = rng.normal(0, tilt / 1.6)
    everything = np.concatenate([part.points for part in figure]) @ pose
    everything = rotated(everything, float(np.clip(angle, -2 * tilt, 2 * tilt)))
    low, high = everything.min(axis=0), everything.max(axis=0)
    everything = (everything - (low + high) / 2) / (high - low).max()
    ends = np.cumsum([len(part.points) for part in figure])
    return [Part(everything[end - len(part.points) : end], part.tone) for part, end in zip(figure, ends, strict=True)]
