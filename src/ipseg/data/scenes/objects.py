"""The objects of the scenes: pairs of look-alikes, ordered so that class increments tear the pairs apart.

Both of a pair share a pose and a build. Details tell them apart: horns, tails and muzzles, roofs, handles.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np

from ipseg.data.scenes.shapes import (
    BODY,
    DARK,
    HOLE,
    LIGHT,
    TRIM,
    Point,
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

SIDES = (-1, 1)

# ---- animals --------------------------------------------------------------------------------------------------------


def cow(rng: np.random.Generator) -> Shape:
    deep, legs = rng.uniform(0.30, 0.38), rng.uniform(0.66, 0.80)
    x, y = -0.78, -0.22 + rng.uniform(-0.14, 0.16)  # the head
    return [
        *_legs(rng, legs, 0.15),
        *bent([(0.66, -0.2), (0.80, -0.05), (0.80, 0.3)], 0.06),
        ellipse((0.8, 0.34), (0.06, 0.11), DARK),
        ellipse((0.34, deep - 0.02), (0.15, 0.11), LIGHT),
        ellipse((0.05, 0.0), (0.68, deep), power=0.7),
        limb((-0.45, -0.08), (x, y), (0.42, 0.24)),
        *bent([(x + 0.12, y - 0.12), (x + 0.13, y - 0.24), (x + 0.03, y - 0.31)], 0.06, LIGHT),
        limb((x + 0.12, y - 0.08), (x + 0.27, y - 0.12), (0.08, 0.1), TRIM),
        limb((x + 0.05, y - 0.03), (x - 0.14, y + 0.12), (0.28, 0.2)),
        ellipse((x - 0.16, y + 0.14), (0.11, 0.09), LIGHT, turn=30),
        ellipse((x, y - 0.04), (0.035, 0.045), DARK),
    ]


def horse(rng: np.random.Generator) -> Shape:
    deep, legs = rng.uniform(0.24, 0.31), rng.uniform(0.72, 0.88)
    x, y = -0.72, -0.62 + rng.uniform(-0.10, 0.16)  # the head
    return [
        *_legs(rng, legs, 0.13),
        limb((0.60, -0.10), (0.78, 0.12), (0.10, 0.14), TRIM),
        limb((0.78, 0.12), (0.80, 0.40), (0.15, 0.06), TRIM),
        ellipse((0.06, 0.0), (0.62, deep), power=0.75),
        limb((-0.24, -0.22), (x + 0.17, y - 0.06), (0.16, 0.13), TRIM),
        limb((-0.38, -0.06), (x + 0.06, y + 0.04), (0.40, 0.2)),
        polygon([(x + 0.02, y - 0.06), (x + 0.1, y - 0.24), (x + 0.16, y - 0.02)]),
        limb((x + 0.04, y), (x - 0.2, y + 0.2), (0.24, 0.15)),
        ellipse((x - 0.22, y + 0.22), (0.07, 0.06), LIGHT, turn=30),
        ellipse((x - 0.01, y - 0.01), (0.032, 0.04), DARK),
    ]


def _legs(rng: np.random.Generator, length: float, width: float) -> Shape:
    parts = []
    for x, tone in ((-0.36, TRIM), (0.44, TRIM), (-0.48, BODY), (0.56, BODY)):  # the far legs first
        step = rng.uniform(-0.1, 0.1)
        parts.append(limb((x, 0.1), (x + step, length), (width * 1.3, width * 0.85), tone))
        parts.append(limb((x + step, length), (x + step - 0.03, length), (width, width), DARK))
    return parts


def cat(rng: np.random.Generator) -> Shape:
    wide, lift = rng.uniform(0.40, 0.48), rng.uniform(-0.15, 0.2)
    return [
        *bent([(0.3, 0.72), (0.72, 0.62), (0.78, 0.2 - lift), (0.62, 0.0 - lift)], 0.13),
        *_sitting(wide),
        *[polygon([(s * 0.40, -0.44), (s * rng.uniform(0.34, 0.46), -0.98), (s * 0.06, -0.70)]) for s in SIDES],
        *[polygon([(s * 0.34, -0.58), (s * 0.36, -0.84), (s * 0.17, -0.70)], TRIM) for s in SIDES],
        *_face(rng, wide),
        *[limb((s * 0.13, -0.3), (s * 0.5, -0.34 + d), (0.025, 0.02), LIGHT) for s in SIDES for d in (0, 0.12)],
        polygon([(-0.07, -0.36), (0.07, -0.36), (0.0, -0.27)], DARK),
    ]


def dog(rng: np.random.Generator) -> Shape:
    wide, hang = rng.uniform(0.40, 0.48), rng.uniform(0.22, 0.34)
    ears = [ellipse((s * (wide - 0.01), -0.40), (0.13, hang), TRIM, turn=-s * rng.uniform(5, 22)) for s in SIDES]
    return [
        *bent([(0.36, 0.72), (0.62, 0.60), (0.74, rng.uniform(0.30, 0.46))], 0.13),
        *_sitting(wide),
        *_face(rng, wide),
        *ears,
        ellipse((0, -0.27), (0.22, 0.17), LIGHT),
        ellipse((0, -0.36), (0.1, 0.07), DARK),
        limb((0, -0.3), (0, -0.2), (0.03, 0.03), DARK),
    ]


def _sitting(wide: float) -> Shape:
    return [
        ellipse((0.0, 0.42), (wide * 0.98, 0.52), power=0.85),
        ellipse((0.0, 0.24), (wide * 0.42, 0.26), LIGHT),
        *[ellipse((s * 0.36, 0.76), (0.17, 0.2)) for s in SIDES],
        *[limb((s * 0.14, 0.3), (s * 0.14, 0.86), (0.17, 0.15)) for s in SIDES],
        *[ellipse((s * 0.14, 0.9), (0.11, 0.07), TRIM) for s in SIDES],
    ]


def _face(rng: np.random.Generator, wide: float) -> Shape:
    gap = rng.uniform(0.16, 0.2)
    eyes = [ellipse((s * gap, -0.50), (0.07, 0.085), LIGHT) for s in SIDES]
    return [
        ellipse((0.0, -0.42), (wide, 0.37)),
        *eyes,
        *[ellipse((s * gap, -0.49), (0.04, 0.065), DARK) for s in SIDES],
    ]


def fish(rng: np.random.Generator) -> Shape:
    deep, spread = rng.uniform(0.34, 0.44), rng.uniform(0.28, 0.38)
    x = np.linspace(-1, 1, 14)
    half = deep * (1 - np.abs(x) ** 1.9) ** 0.85 + 0.035 * (x > 0)
    return [
        polygon([(0.48, 0.0), (0.98, -spread), (0.84, 0.0), (0.98, spread)], TRIM),
        polygon([(-0.2, -deep + 0.06), (0.12, -deep - 0.2), (0.4, -deep + 0.2)], TRIM),
        polygon([(0.0, deep - 0.06), (0.22, deep + 0.14), (0.32, deep - 0.14)], TRIM),
        lens(x * 0.72 - 0.1, half),
        *bent([(-0.34, -deep * 0.62), (-0.26, 0.0), (-0.34, deep * 0.62)], 0.04, DARK),
        circle(-0.5, -0.1, 0.085, LIGHT),
        circle(-0.51, -0.1, 0.045, DARK),
    ]


def whale(rng: np.random.Generator) -> Shape:
    deep, lift = rng.uniform(0.36, 0.44), rng.uniform(0.30, 0.46)
    back = [(-0.72, -0.05), (-0.62, -deep * 0.8), (-0.3, -deep), (0.1, -deep * 0.75), (0.5, -0.12), (0.78, -lift)]
    belly = [(0.9, -lift + 0.06), (0.66, 0.14), (0.3, deep * 0.8), (-0.2, deep), (-0.6, deep * 0.75), (-0.72, 0.2)]
    return [
        *[limb((-0.36, -deep), (-0.36 + s * 0.16, -deep - 0.28), (0.05, 0.08), LIGHT) for s in SIDES],
        ellipse((0.68, -lift - 0.04), (0.2, 0.09), TRIM, turn=-25),
        ellipse((0.94, -lift - 0.02), (0.18, 0.09), TRIM, turn=35),
        polygon(back + belly),
        polygon([(-0.7, 0.14), (0.0, 0.2), (0.36, deep * 0.66), (-0.2, deep * 0.96), (-0.58, deep * 0.72)], LIGHT),
        ellipse((-0.02, deep * 0.62), (0.2, 0.09), TRIM, turn=-35),
        ellipse((-0.46, 0.0), (0.05, 0.055), DARK),
    ]


# ---- vehicles -------------------------------------------------------------------------------------------------------


def bus(rng: np.random.Generator) -> Shape:
    top, count = rng.uniform(-0.62, -0.48), int(rng.integers(3, 5))
    edges = np.linspace(-0.82, 0.86, count + 1)
    return [
        box(-0.95, top, 0.95, 0.38, corner=0.14),
        box(-0.95, 0.04, 0.95, 0.14, TRIM),
        *[box(a + 0.03, top + 0.13, b - 0.04, -0.08, DARK, corner=0.05) for a, b in pairwise(edges)],
        ellipse((-0.88, 0.23), (0.05, 0.06), LIGHT),
        *_wheels(rng),
    ]


def car(rng: np.random.Generator) -> Shape:
    top, nose, tail = rng.uniform(-0.60, -0.44), rng.uniform(0.42, 0.64), rng.uniform(0.0, 0.24)  # saloon to estate
    return [
        polygon([(-nose, -0.08), (-nose + 0.24, top), (0.46 + tail, top), (0.72 + 0.8 * tail, -0.08)]),
        box(-0.95, -0.12, 0.95, 0.38, corner=0.16),
        polygon([(-nose + 0.1, -0.1), (-nose + 0.29, top + 0.09), (0.03, top + 0.09), (0.03, -0.1)], DARK),
        polygon([(0.11, -0.1), (0.11, top + 0.09), (0.41 + tail, top + 0.09), (0.58 + 0.8 * tail, -0.1)], DARK),
        box(-0.95, 0.12, 0.95, 0.2, TRIM),
        circle(-0.87, 0.05, 0.06, LIGHT),
        *_wheels(rng),
    ]


def _wheels(rng: np.random.Generator) -> Shape:
    r, spread = rng.uniform(0.17, 0.22), rng.uniform(0.48, 0.6)
    return [circle(s * spread, 0.40, size, tone) for size, tone in ((r, DARK), (r * 0.45, LIGHT)) for s in SIDES]


def sailboat(rng: np.random.Generator) -> Shape:
    tip, lean = rng.uniform(-1.0, -0.85), rng.uniform(-0.04, 0.04)
    return [
        limb((0.0, 0.3), (lean, tip), (0.07, 0.05), DARK),
        polygon([(lean + 0.05, tip + 0.08), (0.05, 0.2), (rng.uniform(0.6, 0.75), 0.2)], LIGHT),
        polygon([(lean - 0.05, tip + 0.2), (-0.05, 0.2), (rng.uniform(-0.6, -0.45), 0.2)], TRIM),
        *_hull(rng),
    ]


def steamer(rng: np.random.Generator) -> Shape:
    tip, funnels = rng.uniform(-0.82, -0.62), (-0.14, 0.2)
    return [
        *[box(x - 0.1, tip, x + 0.1, -0.2) for x in funnels],
        *[box(x - 0.1, tip + 0.08, x + 0.1, tip + 0.2, DARK) for x in funnels],
        box(-0.52, -0.04, 0.58, 0.3, LIGHT, corner=0.04),
        box(-0.38, -0.28, 0.42, 0.0, TRIM, corner=0.04),
        *[circle(x, 0.12, 0.06, DARK) for x in np.linspace(-0.38, 0.44, 4)],
        *_hull(rng),
    ]


def _hull(rng: np.random.Generator) -> Shape:
    bow, stern = rng.uniform(-1.0, -0.85), rng.uniform(0.8, 0.95)
    side = [(bow, 0.24), (stern, 0.24), (stern - 0.12, 0.6), (stern - 0.24, 0.7), (bow + 0.36, 0.7), (bow + 0.2, 0.56)]
    return [polygon(side), polygon([(bow, 0.22), (stern, 0.22), (stern - 0.03, 0.33), (bow + 0.06, 0.33)], TRIM)]


# ---- vessels, buildings, plants, furniture --------------------------------------------------------------------------


def cup(rng: np.random.Generator) -> Shape:
    half, narrow, band = rng.uniform(0.44, 0.56), rng.uniform(0.74, 1.0), rng.uniform(-0.1, 0.3)
    low, middle = half * narrow, half * 0.98 * (narrow + 1) / 2
    wall = [(-half, -0.6), (half, -0.6), (low, 0.55), (low * 0.8, 0.64), (-low * 0.8, 0.64), (-low, 0.55)]
    return [
        *_handle((half * 0.92, -0.02), rng.uniform(0.26, 0.34)),
        polygon(wall),
        polygon([(-half * 0.98, band), (middle, band), (low, band + 0.14), (-low, band + 0.14)], TRIM),
        ellipse((0, -0.6), (half, 0.13), LIGHT),
        ellipse((0, -0.58), (half * 0.86, 0.09), DARK),
    ]


def teapot(rng: np.random.Generator) -> Shape:
    half, band = rng.uniform(0.50, 0.60), rng.uniform(-0.1, 0.2)
    reach, rise = rng.uniform(0.26, 0.34), rng.uniform(-0.42, -0.24)
    return [
        *_handle((half * 0.92, 0.02), reach),
        limb((-half * 0.7, 0.26), (-half - 0.24, rise + 0.06), (0.3, 0.14)),
        limb((-half - 0.22, rise + 0.1), (-half - 0.36, rise), (0.15, 0.13)),
        ellipse((0, 0.1), (half, 0.54), power=0.85),
        ellipse((0, band + 0.08), (half * 0.98, 0.07), TRIM),
        ellipse((0, -0.42), (half * 0.66, 0.13), LIGHT),
        ellipse((0, -0.46), (half * 0.56, 0.11), TRIM),
        circle(0, -0.62, 0.1, DARK),
    ]


def _handle(at: Point, reach: float) -> Shape:
    return [ellipse(at, (reach, 0.36)), ellipse(at, (reach - 0.13, 0.22), HOLE)]


def house(rng: np.random.Generator) -> Shape:
    half, ridge = rng.uniform(0.58, 0.72), rng.uniform(-0.82, -0.66)
    chimney, door = rng.choice(SIDES) * 0.38, rng.uniform(-0.3, 0.3)
    return [
        box(chimney - 0.1, ridge + 0.02, chimney + 0.1, -0.2, DARK),
        box(-half, -0.2, half, 0.75),
        polygon([(-half - 0.14, -0.12), (0.0, ridge), (half + 0.14, -0.12)], TRIM),
        *_windows([(-half + 0.24, 0.12), (half - 0.24, 0.12)], 0.14),
        box(door - 0.13, 0.34, door + 0.13, 0.75, DARK),
    ]


def church(rng: np.random.Generator) -> Shape:
    half, tip = rng.uniform(0.62, 0.74), rng.uniform(-1.0, -0.86)
    tower, eaves = -half + 0.2, rng.uniform(-0.4, -0.26)
    return [
        box(tower, 0.05, half, 0.75),
        polygon([(tower, 0.1), (tower + 0.16, -0.28), (half - 0.08, -0.28), (half + 0.12, 0.1)], TRIM),
        box(tower - 0.22, eaves, tower + 0.22, 0.75),
        polygon([(tower - 0.29, eaves), (tower, tip), (tower + 0.29, eaves)], TRIM),
        circle(tower, eaves + 0.22, 0.1, LIGHT),
        *_windows([(half - 0.5, 0.38), (half - 0.18, 0.38)], 0.1),
        box(tower - 0.11, 0.38, tower + 0.11, 0.78, DARK, corner=0.1),
    ]


def _windows(centers: list[Point], r: float) -> Shape:
    panes = [box(x - r, y - r, x + r, y + r, LIGHT) for x, y in centers]
    bars = [box(x - 0.025, y - r, x + 0.025, y + r, DARK) for x, y in centers]
    return [*panes, *bars, *[box(x - r, y - 0.025, x + r, y + 0.025, DARK) for x, y in centers]]


def tree(rng: np.random.Generator) -> Shape:
    spread = rng.uniform(0.34, 0.42)
    return [
        limb((0, 0.95), (0, 0.1), (0.24, 0.18), TRIM),
        limb((0.02, 0.5), (0.3, 0.15), (0.12, 0.08), TRIM),
        *[circle(x, y, r) for x, y, r in ((-0.36, -0.1, spread), (0.36, -0.12, spread), (0.0, -0.5, spread + 0.06))],
        ellipse((0, -0.15), (0.4, 0.34)),
        *[circle(x, y, 0.06, LIGHT) for x, y in rng.uniform(-0.45, 0.3, (4, 2)) * (1, 0.8)],
    ]


def mushroom(rng: np.random.Generator) -> Shape:
    wide, flat = rng.uniform(0.66, 0.8), rng.uniform(0.62, 0.84)
    angle = np.linspace(np.pi, 2 * np.pi, 16)
    dots = ((-0.5, -0.28), (0.02, -0.62), (0.46, -0.36), (0.0, -0.2))
    return [
        limb((0, 0.85), (0, 0.0), (0.32, 0.22), TRIM),
        ellipse((0, 0.24), (0.2, 0.07), LIGHT),
        polygon(np.stack([wide * np.cos(angle), flat * np.sin(angle) + 0.02], axis=1)),
        ellipse((0, 0.02), (wide, 0.1), DARK),
        *[ellipse((x * wide, y * flat), (0.09, 0.075), LIGHT) for x, y in dots],
    ]


def chair(rng: np.random.Generator) -> Shape:
    seat, top = rng.uniform(-0.02, 0.12), rng.uniform(-1.0, -0.85)
    plate = [(-0.52, seat), (0.22, seat - 0.1), (0.6, seat + 0.04), (0.56, seat + 0.18), (-0.5, seat + 0.16)]
    return [
        *[limb((-0.42, y), (0.16, y + 0.06), (0.09, 0.09), TRIM) for y in (top + 0.2, top + 0.46)],
        *[limb((x, seat), (x, y), (0.12, 0.1)) for x, y in ((0.2, 0.7), (0.5, 0.9))],
        limb((-0.46, top), (-0.46, 0.85), (0.13, 0.12)),
        limb((0.18, top + 0.08), (0.2, seat), (0.12, 0.12)),
        polygon(plate, TRIM),
    ]


def table(rng: np.random.Generator) -> Shape:
    top, half = rng.uniform(-0.45, -0.3), rng.uniform(0.72, 0.9)
    legs = ((-0.5, 0.5), (0.62, 0.5), (-0.82, 0.7), (0.86, 0.7))
    back, front = [(-half * 0.7, top - 0.14), (half * 0.8, top - 0.14)], [(half, top + 0.12), (-half, top + 0.12)]
    return [
        *[limb((x * half, top), (x * half * 1.04, y), (0.13, 0.1)) for x, y in legs],
        box(-half * 0.86, top, half * 0.86, top + 0.28),
        polygon([(-half, top), *back, (half, top), *front], TRIM),
        ellipse((0, top + 0.2), (0.06, 0.05), DARK),
    ]


def star(rng: np.random.Generator) -> Shape:
    return [radial([1.0, rng.uniform(0.44, 0.54)] * 5), circle(0, 0, 0.3, TRIM), circle(0, 0, 0.14, LIGHT)]


def flower(rng: np.random.Generator) -> Shape:
    reach, broad = rng.uniform(0.54, 0.62), rng.uniform(0.28, 0.34)
    petals = [
        ellipse((reach * np.cos(a), reach * np.sin(a)), (0.42, broad), turn=float(np.rad2deg(a)))
        for a in np.deg2rad(-90 + 72 * np.arange(5))
    ]
    return [*petals, circle(0, 0, 0.3, TRIM), circle(0, 0, 0.14, LIGHT)]


# ---- classes --------------------------------------------------------------------------------------------------------


KINDS: tuple[ShapeSampler, ...] = (
    *(cow, bus, cup, cat, sailboat, house, tree, fish, chair, star),  # the first of every pair,
    *(horse, car, teapot, dog, steamer, church, mushroom, whale, table, flower),  # and their look-alikes
)
PAIRS = len(KINDS) // 2


@cache
def kinds_of(count: int) -> list[ShapeSampler]:
    """All kinds, as many as in Pascal VOC: `count` classes, pairs of look-alikes; the others are unknown foreground."""
    classes = KINDS[: (count + 1) // 2] + KINDS[PAIRS:][: count // 2]
    return [*classes, *(kind for kind in KINDS if kind not in classes)]


def class_names(count: int = 12) -> tuple[str, ...]:
    """The names of `count` classes.

    >>> class_names(6)
    ('cow', 'bus', 'cup', 'horse', 'car', 'teapot')
    """
    return tuple(kind.__name__ for kind in kinds_of(count)[:count])
