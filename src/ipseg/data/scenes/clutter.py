"""Clutter: things of no class that are in the way."""

from __future__ import annotations

import numpy as np

from ipseg.data.scenes.shapes import (
    DARK,
    LIGHT,
    TRIM,
    Points,
    Shape,
    ShapeSampler,
    bent,
    box,
    circle,
    ellipse,
    lens,
    limb,
    polygon,
    radial,
)


def stone(rng: np.random.Generator) -> Shape:
    lump = radial(_lumps(rng, 18, 0.12))
    return [polygon(lump.points * (1, rng.uniform(0.5, 0.8)))]


def stick(rng: np.random.Generator) -> Shape:
    y = rng.uniform(-0.2, 0.2, 3)
    fork = (rng.uniform(0.2, 0.5), rng.uniform(-0.55, -0.25))
    return [*bent([(-1, y[0]), (0, y[1]), (1, y[2])], 0.12), limb((0, y[1]), fork, (0.11, 0.06), TRIM)]


def leaf(rng: np.random.Generator) -> Shape:
    x = np.linspace(-1, 1, 10)
    return [lens(x, rng.uniform(0.24, 0.42) * (1 - x**2)), limb((-1, 0), (0.8, 0), (0.07, 0.03), TRIM)]


def bush(rng: np.random.Generator) -> Shape:
    heap = [ellipse((x, rng.uniform(-0.2, 0.1)), (0.36, rng.uniform(0.3, 0.5))) for x in np.linspace(-0.65, 0.65, 4)]
    return [*heap, *[circle(x, y, 0.06, LIGHT) for x, y in rng.uniform((-0.7, -0.3), (0.7, 0.3), (3, 2))]]


def crate(rng: np.random.Generator) -> Shape:
    half = rng.uniform(0.4, 0.75)
    board = limb((-0.8, -half * 0.8), (0.8, half * 0.8), (0.16, 0.16), TRIM)
    return [box(-0.9, -half, 0.9, half), board, box(-0.9, -half, 0.9, -half + 0.12, TRIM)]


def poster(rng: np.random.Generator) -> Shape:
    half = rng.uniform(0.5, 1.0)
    inner = radial(_lumps(rng, 12, 0.3) * 0.36, TRIM, (rng.uniform(-0.2, 0.2), rng.uniform(-0.1, 0.1)))
    return [box(-half, -0.7, half, 0.7, DARK), box(-half + 0.08, -0.62, half - 0.08, 0.62), inner]


def rag(rng: np.random.Generator) -> Shape:
    return [radial(rng.uniform(0.35, 1.0, int(rng.integers(5, 9))), start=float(rng.uniform(0, 360)))]


def blob(rng: np.random.Generator) -> Shape:
    (x, y), (x2, y2) = rng.uniform(-0.4, 0.4, (2, 2))  # a pale and a dark dot, as windows, wheels and eyes have them
    return [radial(_lumps(rng, 24, 0.25)), circle(x, y, 0.13, LIGHT), circle(x2, y2, 0.13, DARK)]


def fence(rng: np.random.Generator) -> Shape:
    posts = np.linspace(-0.85, 0.85, int(rng.integers(3, 6)))
    rails = [limb((-1, y), (1, y), (0.1, 0.1), TRIM) for y in (-0.2, 0.25)]
    return [*rails, *[limb((x, -0.5), (x, 0.6), (0.13, 0.13)) for x in posts]]


def _lumps(rng: np.random.Generator, corners: int, rough: float) -> Points:
    """Radii of a closed smooth outline around 1."""
    angle = np.linspace(0, 2 * np.pi, corners, endpoint=False)
    phases, sizes = rng.uniform(0, 2 * np.pi, 3), rng.uniform(0.3, 1.0, 3)
    waves = [sizes[k] * np.sin((k + 2) * angle + phases[k]) for k in range(3)]
    return 1 + rough * sum(waves, start=np.zeros(corners))


STANDING: tuple[ShapeSampler, ...] = (stone, stick, leaf, bush, crate, rag, blob, fence)
HANGING: tuple[ShapeSampler, ...] = (poster, rag, leaf, blob)
