"""Vehicles, vessels, buildings, plants and furniture: the look-alike pairs that do not breathe."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ipseg.data.scenes.figure import (
    DARK,
    HOLE,
    LIGHT,
    TRIM,
    Figure,
    Part,
    box,
    ellipse,
    limb,
    polygon,
    radial,
)


def bus(rng: np.random.Generator) -> Figure:
    """One long box with a row of windows."""
    top, count = rng.uniform(-0.62, -0.48), int(rng.integers(3, 5))
    edges = np.linspace(-0.82, 0.86, count + 1)
    windows = [box(a + 0.03, top + 0.13, b - 0.04, -0.08, DARK, corner=0.05) for a, b in pairwise(edges)]
    return [
        box(-0.95, top, 0.95, 0.38, corner=0.14),
        box(-0.95, 0.04, 0.95, 0.14, TRIM),
        *windows,
        ellipse((-0.88, 0.23), (0.05, 0.06), LIGHT),
        *_wheels(rng, 0.40),
    ]


def car(rng: np.random.Generator) -> Figure:
    """A low body with a cabin on it."""
    top, nose, tail = rng.uniform(-0.60, -0.44), rng.uniform(0.42, 0.64), rng.uniform(0.0, 0.24)  # saloon to estate
    cabin = [(-nose, -0.08), (-nose + 0.24, top), (0.46 + tail, top), (0.72 + 0.8 * tail, -0.08)]
    return [
        polygon(cabin),
        box(-0.95, -0.12, 0.95, 0.38, corner=0.16),
        polygon([(-nose + 0.1, -0.1), (-nose + 0.29, top + 0.09), (0.03, top + 0.09), (0.03, -0.1)], DARK),
        polygon([(0.11, -0.1), (0.11, top + 0.09), (0.41 + tail, top + 0.09), (0.58 + 0.8 * tail, -0.1)], DARK),
        box(-0.95, 0.12, 0.95, 0.2, TRIM),
        ellipse((-0.87, 0.05), (0.06, 0.06), LIGHT),
        *_wheels(rng, 0.40),
    ]


def _wheels(rng: np.random.Generator, y: float) -> list[Part]:
    r, spread = rng.uniform(0.17, 0.22), rng.uniform(0.48, 0.6)
    tyres = [ellipse((s * spread, y), (r, r), DARK) for s in (-1, 1)]
    return tyres + [ellipse((s * spread, y), (r * 0.45, r * 0.45), LIGHT) for s in (-1, 1)]


def cup(rng: np.random.Generator) -> Figure:
    """A straight wall, an open rim, one ear."""
    half, narrow, band = rng.uniform(0.44, 0.56), rng.uniform(0.74, 1.0), rng.uniform(-0.1, 0.3)
    reach = rng.uniform(0.26, 0.34)
    wall = [(-half, -0.6), (half, -0.6), (half * narrow, 0.55), (half * narrow * 0.8, 0.64)]
    wall += [(-half * narrow * 0.8, 0.64), (-half * narrow, 0.55)]
    return [
        *_ear((half * 0.92, -0.02), reach),
        polygon(wall),
        polygon(
            [
                (-half * 0.98, band),
                (half * 0.98 * (narrow + 1) / 2, band),
                (half * narrow, band + 0.14),
                (-half * narrow, band + 0.14),
            ],
            TRIM,
        ),
        ellipse((0, -0.6), (half, 0.13), LIGHT),
        ellipse((0, -0.58), (half * 0.86, 0.09), DARK),
    ]


def teapot(rng: np.random.Generator) -> Figure:
    """A belly, one ear, a spout on the other side and a lid."""
    half, band = rng.uniform(0.50, 0.60), rng.uniform(-0.1, 0.2)
    reach, rise = rng.uniform(0.26, 0.34), rng.uniform(-0.42, -0.24)
    return [
        *_ear((half * 0.92, 0.02), reach),
        limb((-half * 0.7, 0.26), (-half - 0.24, rise + 0.06), (0.3, 0.14)),
        limb((-half - 0.22, rise + 0.1), (-half - 0.36, rise), (0.15, 0.13)),
        ellipse((0, 0.1), (half, 0.54), power=0.85),
        ellipse((0, band + 0.08), (half * 0.98, 0.07), TRIM),
        ellipse((0, -0.42), (half * 0.66, 0.13), LIGHT),
        ellipse((0, -0.46), (half * 0.56, 0.11), TRIM),
        ellipse((0, -0.62), (0.1, 0.1), DARK),
    ]


def _ear(at: tuple[float, float], reach: float) -> list[Part]:
    return [ellipse(at, (reach, 0.36)), ellipse(at, (reach - 0.13, 0.22), HOLE)]


def sailboat(rng: np.random.Generator) -> Figure:
    """A hull under a mast with two sails."""
    tip, lean = rng.uniform(-1.0, -0.85), rng.uniform(-0.04, 0.04)
    return [
        limb((0.0, 0.3), (lean, tip), (0.07, 0.05), DARK),
        polygon([(lean + 0.05, tip + 0.08), (0.05, 0.2), (rng.uniform(0.6, 0.75), 0.2)], LIGHT),
        polygon([(lean - 0.05, tip + 0.2), (-0.05, 0.2), (rng.uniform(-0.6, -0.45), 0.2)], TRIM),
        *_hull(rng),
    ]


def steamer(rng: np.random.Generator) -> Figure:
    """A hull under a deckhouse with two funnels."""
    tip = rng.uniform(-0.82, -0.62)
    funnels = [box(x - 0.1, tip, x + 0.1, -0.2) for x in (-0.14, 0.2)]
    rings = [box(x - 0.1, tip + 0.08, x + 0.1, tip + 0.2, DARK) for x in (-0.14, 0.2)]
    decks = [box(-0.52, -0.04, 0.58, 0.3, LIGHT, corner=0.04), box(-0.38, -0.28, 0.42, 0.0, TRIM, corner=0.04)]
    return [*funnels, *rings, *decks, *_portholes(0.12, 4, 0.06), *_hull(rng)]


def _hull(rng: np.random.Generator) -> list[Part]:
    bow_, stern = rng.uniform(-1.0, -0.85), rng.uniform(0.8, 0.95)
    side = [
        (bow_, 0.24),
        (stern, 0.24),
        (stern - 0.12, 0.6),
        (stern - 0.24, 0.7),
        (bow_ + 0.36, 0.7),
        (bow_ + 0.2, 0.56),
    ]
    return [polygon(side), polygon([(bow_, 0.22), (stern, 0.22), (stern - 0.03, 0.33), (bow_ + 0.06, 0.33)], TRIM)]


def _portholes(y: float, count: int, r: float) -> list[Part]:
    return [ellipse((float(x), y), (r, r), DARK) for x in np.linspace(-0.38, 0.44, count)]


def house(rng: np.random.Generator) -> Figure:
    """Walls, a gable roof and a chimney."""
    half, ridge = rng.uniform(0.58, 0.72), rng.uniform(-0.82, -0.66)
    side, door = rng.choice([-1, 1]), rng.uniform(-0.3, 0.3)
    return [
        box(side * 0.38 - 0.1, ridge + 0.02, side * 0.38 + 0.1, -0.2, DARK),
        box(-half, -0.2, half, 0.75),
        polygon([(-half - 0.14, -0.12), (0.0, ridge), (half + 0.14, -0.12)], TRIM),
        *_windows([(-half + 0.24, 0.12), (half - 0.24, 0.12)], 0.14),
        box(door - 0.13, 0.34, door + 0.13, 0.75, DARK),
    ]


def church(rng: np.random.Generator) -> Figure:
    """Walls, a roof and a tower with a spire at one end."""
    half, tip = rng.uniform(0.62, 0.74), rng.uniform(-1.0, -0.86)
    tower, eaves = -half + 0.2, rng.uniform(-0.4, -0.26)
    return [
        box(tower, 0.05, half, 0.75),
        polygon([(tower, 0.1), (tower + 0.16, -0.28), (half - 0.08, -0.28), (half + 0.12, 0.1)], TRIM),
        box(tower - 0.22, eaves, tower + 0.22, 0.75),
        polygon([(tower - 0.29, eaves), (tower, tip), (tower + 0.29, eaves)], TRIM),
        ellipse((tower, eaves + 0.22), (0.1, 0.1), LIGHT),
        *_windows([(half - 0.5, 0.38), (half - 0.18, 0.38)], 0.1),
        box(tower - 0.11, 0.38, tower + 0.11, 0.78, DARK, corner=0.1),
    ]


def _windows(centers: list[tuple[float, float]], r: float) -> list[Part]:
    panes = [box(x - r, y - r, x + r, y + r, LIGHT) for x, y in centers]
    bars = [box(x - 0.025, y - r, x + 0.025, y + r, DARK) for x, y in centers]
    return [*panes, *bars, *[box(x - r, y - 0.025, x + r, y + 0.025, DARK) for x, y in centers]]


def tree(rng: np.random.Generator) -> Figure:
    """A trunk with a branch under a crown of several lobes."""
    spread = rng.uniform(0.34, 0.42)
    lobes = [
        ellipse((x, y), (r, r))
        for x, y, r in ((-0.36, -0.1, spread), (0.36, -0.12, spread), (0.0, -0.5, spread + 0.06))
    ]
    fruit = [ellipse((float(x), float(y)), (0.06, 0.06), LIGHT) for x, y in rng.uniform(-0.45, 0.3, (4, 2)) * (1, 0.8)]
    trunk = [limb((0, 0.95), (0, 0.1), (0.24, 0.18), TRIM), limb((0.02, 0.5), (0.3, 0.15), (0.12, 0.08), TRIM)]
    return [*trunk, *lobes, ellipse((0, -0.15), (0.4, 0.34)), *fruit]


def mushroom(rng: np.random.Generator) -> Figure:
    """A stem with a collar under one cap."""
    wide, flat = rng.uniform(0.66, 0.8), rng.uniform(0.62, 0.84)
    angle = np.linspace(np.pi, 2 * np.pi, 16)
    cap = np.stack([wide * np.cos(angle), flat * np.sin(angle) + 0.02], axis=1)
    dots = [
        ellipse((x * wide, y * flat), (0.09, 0.075), LIGHT)
        for x, y in ((-0.5, -0.28), (0.02, -0.62), (0.46, -0.36), (0.0, -0.2))
    ]
    stem = [limb((0, 0.85), (0, 0.0), (0.32, 0.22), TRIM), ellipse((0, 0.24), (0.2, 0.07), LIGHT)]
    return [*stem, polygon(cap), ellipse((0, 0.02), (wide, 0.1), DARK), *dots]


def chair(rng: np.random.Generator) -> Figure:
    """A seat on legs with a tall back on one side."""
    seat, top = rng.uniform(-0.02, 0.12), rng.uniform(-1.0, -0.85)
    rungs = [limb((-0.42, y), (0.16, y + 0.06), (0.09, 0.09), TRIM) for y in (top + 0.2, top + 0.46)]
    posts = [limb((-0.46, top), (-0.46, 0.85), (0.13, 0.12)), limb((0.18, top + 0.08), (0.2, seat), (0.12, 0.12))]
    legs = [limb((x, seat), (x, y), (0.12, 0.1)) for x, y in ((0.2, 0.7), (0.5, 0.9))]
    return [
        *rungs,
        *legs,
        *posts,
        polygon(
            [(-0.52, seat), (0.22, seat - 0.1), (0.6, seat + 0.04), (0.56, seat + 0.18), (-0.5, seat + 0.16)], TRIM
        ),
    ]


def table(rng: np.random.Generator) -> Figure:
    """A top on legs, nothing above it."""
    top, half = rng.uniform(-0.45, -0.3), rng.uniform(0.72, 0.9)
    legs = [
        limb((x * half, top), (x * half * 1.04, y), (0.13, 0.1))
        for x, y in ((-0.5, 0.5), (0.62, 0.5), (-0.82, 0.7), (0.86, 0.7))
    ]
    plate = [
        (-half, top),
        (-half * 0.7, top - 0.14),
        (half * 0.8, top - 0.14),
        (half, top),
        (half, top + 0.12),
        (-half, top + 0.12),
    ]
    return [
        *legs,
        box(-half * 0.86, top, half * 0.86, top + 0.28),
        polygon(plate, TRIM),
        ellipse((0, top + 0.2), (0.06, 0.05), DARK),
    ]


def star(rng: np.random.Generator) -> Figure:
    """Five sharp points around a middle."""
    waist = rng.uniform(0.44, 0.54)
    points = radial([1.0, waist] * 5)
    return [points, ellipse((0, 0), (0.3, 0.3), TRIM), ellipse((0, 0), (0.14, 0.14), LIGHT)]


def flower(rng: np.random.Generator) -> Figure:
    """Five round petals around a middle."""
    reach, broad = rng.uniform(0.54, 0.62), rng.uniform(0.28, 0.34)
    angles = np.deg2rad(-90 + 72 * np.arange(5))
    petals = [ellipse((reach * np.cos(a), reach * np.sin(a)), (0.42, broad), turn=float(np.rad2deg(a))) for a in angles]
    return [*petals, ellipse((0, 0), (0.3, 0.3), TRIM), ellipse((0, 0), (0.14, 0.14), LIGHT)]
