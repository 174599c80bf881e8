"""Shapes: polygons in a plane of about -1..1 (y points down), painted one over the other.

Each polygon names the tone that fills it. Colors and textures of the tones are chosen in the same way for every class,
so that a class is its shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float64]
Point = tuple[float, float]

HOLE, BODY, TRIM, DARK, LIGHT = range(5)
"""Tones. A hole removes the polygons under it, body and trim have a texture, dark and light are for small parts."""


class Part(NamedTuple):
    """One polygon."""

    points: Points
    tone: int = BODY


Shape = list[Part]
ShapeSampler = Callable[[np.random.Generator], Shape]
"""Makes a specimen; proportions vary."""

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


def circle(x: float, y: float, radius: float, tone: int = BODY) -> Part:
    """A circle."""
    return ellipse((x, y), (radius, radius), tone)


def polygon(points: Sequence[Point] | Points, tone: int = BODY) -> Part:
    """Straight edges through the points."""
    return Part(np.asarray(points, dtype=np.float64), tone)


def box(left: float, top: float, right: float, bottom: float, tone: int = BODY, *, corner: float = 0.0) -> Part:
    """An upright box whose corners are rounded by a radius."""
    if corner <= 0:
        return polygon([(left, top), (right, top), (right, bottom), (left, bottom)], tone)
    r = min(corner, (right - left) / 2, (bottom - top) / 2)
    centers = [(right - r, bottom - r), (left + r, bottom - r), (left + r, top + r), (right - r, top + r)]
    angles = [np.linspace(0, np.pi / 2, 5) + k * np.pi / 2 for k in range(4)]
    arcs = [np.stack([np.cos(a), np.sin(a)], axis=1) * r + center for a, center in zip(angles, centers, strict=True)]
    return Part(np.concatenate(arcs), tone)


def limb(start: Point, end: Point, widths: Point, tone: int = BODY) -> Part:
    """A rounded bar whose thickness goes from one width to the other."""
    a, b = np.asarray(start), np.asarray(end)
    around = rotated(_HALF_CIRCLE, float(np.rad2deg(np.arctan2(*(b - a)[::-1]))))
    return Part(np.concatenate([around * (widths[1] / 2) + b, around * (-widths[0] / 2) + a]), tone)


def bent(points: Sequence[Point], width: float, tone: int = BODY) -> Shape:
    """A bent bar through several points: tails, handles, branches."""
    return [limb(a, b, (width, width), tone) for a, b in pairwise(points)]


def radial(radii: Sequence[float] | Points, tone: int = BODY, center: Point = (0, 0), start: float = -90.0) -> Part:
    """A closed outline with these radii at equal steps of angle: lumps, stars."""
    r = np.asarray(radii, dtype=np.float64)
    angle = np.deg2rad(start) + np.linspace(0, 2 * np.pi, len(r), endpoint=False)
    return Part(np.stack([r * np.cos(angle), r * np.sin(angle)], axis=1) + center, tone)


def lens(x: Points, half: Points, tone: int = BODY) -> Part:
    """An outline around the x axis, given by its half height at each x."""
    return polygon(np.concatenate([np.stack([x, -half], axis=1), np.stack([x, half], axis=1)[::-1]]), tone)


def rotated(points: Points, degrees: float) -> Points:
    """The points turned around the origin."""
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    result: Points = points @ np.array([[c, s], [-s, c]])
    return result


def posed(shape: Shape, rng: np.random.Generator, tilt: float = 12.0) -> Shape:
    """The shape tilted, mirrored, leaning, stretched; its longest extent becomes 1."""
    stretch = np.exp(rng.uniform(-0.14, 0.14))
    mirror = rng.choice([-1.0, 1.0])
    pose = np.array([[mirror * stretch, 0.0], [rng.uniform(-0.08, 0.08), 1 / stretch]])
    angle = float(np.clip(rng.normal(0, tilt / 1.6), -2 * tilt, 2 * tilt))
    points = rotated(np.concatenate([part.points for part in shape]) @ pose, angle)
    low, high = points.min(axis=0), points.max(axis=0)
    points = (points - (low + high) / 2) / (high - low).max()
    parts = np.split(points, np.cumsum([len(part.points) for part in shape])[:-1])
    return [Part(moved, part.tone) for moved, part in zip(parts, shape, strict=True)]
