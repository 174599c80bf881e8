"""Animals. Both of a pair share a pose and a build; ears, necks, tails and muzzles tell them apart."""

from __future__ import annotations

import numpy as np

from ipseg.data.scenes.figure import BODY, DARK, LIGHT, TRIM, Figure, Part, bow, ellipse, limb, polygon


def cow(rng: np.random.Generator) -> Figure:
    """A heavy body, a low head with horns, an udder, a thin tail."""
    deep, legs = rng.uniform(0.30, 0.38), rng.uniform(0.66, 0.80)
    nod = rng.uniform(-0.14, 0.16)
    head = (-0.78, -0.22 + nod)
    return [
        *_legs(rng, legs, 0.15),
        *bow([(0.66, -0.2), (0.80, -0.05), (0.80, 0.3)], 0.06),
        ellipse((0.8, 0.34), (0.06, 0.11), DARK),
        ellipse((0.34, deep - 0.02), (0.15, 0.11), LIGHT),
        ellipse((0.05, 0.0), (0.68, deep), power=0.7),
        limb((-0.45, -0.08), head, (0.42, 0.24)),
        *bow(
            [(head[0] + 0.12, head[1] - 0.12), (head[0] + 0.13, head[1] - 0.24), (head[0] + 0.03, head[1] - 0.31)],
            0.06,
            LIGHT,
        ),
        limb((head[0] + 0.12, head[1] - 0.08), (head[0] + 0.27, head[1] - 0.12), (0.08, 0.1), TRIM),
        limb((head[0] + 0.05, head[1] - 0.03), (head[0] - 0.14, head[1] + 0.12), (0.28, 0.2)),
        ellipse((head[0] - 0.16, head[1] + 0.14), (0.11, 0.09), LIGHT, turn=30),
        ellipse((head[0], head[1] - 0.04), (0.035, 0.045), DARK),
    ]


def horse(rng: np.random.Generator) -> Figure:
    """A slimmer body, a raised neck with a mane, a bushy tail."""
    deep, legs = rng.uniform(0.24, 0.31), rng.uniform(0.72, 0.88)
    nod = rng.uniform(-0.10, 0.16)
    head = (-0.72, -0.62 + nod)
    return [
        *_legs(rng, legs, 0.13),
        limb((0.60, -0.10), (0.78, 0.12), (0.10, 0.14), TRIM),
        limb((0.78, 0.12), (0.80, 0.40), (0.15, 0.06), TRIM),
        ellipse((0.06, 0.0), (0.62, deep), power=0.75),
        limb((-0.24, -0.22), (head[0] + 0.17, head[1] - 0.06), (0.16, 0.13), TRIM),
        limb((-0.38, -0.06), (head[0] + 0.06, head[1] + 0.04), (0.40, 0.2)),
        polygon([(head[0] + 0.02, head[1] - 0.06), (head[0] + 0.1, head[1] - 0.24), (head[0] + 0.16, head[1] - 0.02)]),
        limb((head[0] + 0.04, head[1]), (head[0] - 0.2, head[1] + 0.2), (0.24, 0.15)),
        ellipse((head[0] - 0.22, head[1] + 0.22), (0.07, 0.06), LIGHT, turn=30),
        ellipse((head[0] - 0.01, head[1] - 0.01), (0.032, 0.04), DARK),
    ]


def _legs(rng: np.random.Generator, length: float, width: float) -> list[Part]:
    parts = []
    for x, tone in ((-0.36, TRIM), (0.44, TRIM), (-0.48, BODY), (0.56, BODY)):  # the far legs first
        step = rng.uniform(-0.1, 0.1)
        parts.append(limb((x, 0.1), (x + step, length), (width * 1.3, width * 0.85), tone))
        parts.append(limb((x + step, length), (x + step - 0.03, length), (width, width), DARK))
    return parts


def cat(rng: np.random.Generator) -> Figure:
    """Sits and looks at you: pointed ears, a small nose, whiskers, a long raised tail."""
    wide = rng.uniform(0.40, 0.48)
    lift = rng.uniform(-0.15, 0.2)
    ears = [
        polygon([(s * 0.40, -0.44), (s * rng.uniform(0.34, 0.46), -0.98), (s * 0.06, -0.70)], BODY) for s in (-1, 1)
    ] + [polygon([(s * 0.34, -0.58), (s * 0.36, -0.84), (s * 0.17, -0.70)], TRIM) for s in (-1, 1)]
    tail = bow([(0.3, 0.72), (0.72, 0.62), (0.78, 0.2 - lift), (0.62, 0.0 - lift)], 0.13)
    whiskers = [limb((s * 0.13, -0.3), (s * 0.5, -0.34 + d), (0.025, 0.02), LIGHT) for s in (-1, 1) for d in (0, 0.12)]
    nose = [polygon([(-0.07, -0.36), (0.07, -0.36), (0.0, -0.27)], DARK)]
    return [*tail, *_sitting(wide), *ears, *_face(rng, wide), *whiskers, *nose]


def dog(rng: np.random.Generator) -> Figure:
    """Sits and looks at you: hanging ears, a broad muzzle, a tongue at times, a short tail."""
    wide = rng.uniform(0.40, 0.48)
    hang = rng.uniform(0.22, 0.34)
    ears = [ellipse((s * (wide - 0.01), -0.40), (0.13, hang), TRIM, turn=-s * rng.uniform(5, 22)) for s in (-1, 1)]
    tail = bow([(0.36, 0.72), (0.62, 0.60), (0.74, rng.uniform(0.30, 0.46))], 0.13)
    muzzle = [ellipse((0, -0.27), (0.22, 0.17), LIGHT), ellipse((0, -0.36), (0.1, 0.07), DARK)]
    mouth = [limb((0, -0.3), (0, -0.2), (0.03, 0.03), DARK)]
    return [*tail, *_sitting(wide), *_face(rng, wide), *ears, *muzzle, *mouth]


def _sitting(wide: float) -> list[Part]:
    return [
        ellipse((0.0, 0.42), (wide * 0.98, 0.52), power=0.85),
        ellipse((0.0, 0.24), (wide * 0.42, 0.26), LIGHT),
        *[ellipse((s * 0.36, 0.76), (0.17, 0.2)) for s in (-1, 1)],
        *[limb((s * 0.14, 0.3), (s * 0.14, 0.86), (0.17, 0.15)) for s in (-1, 1)],
        *[ellipse((s * 0.14, 0.9), (0.11, 0.07), TRIM) for s in (-1, 1)],
    ]


def _face(rng: np.random.Generator, wide: float) -> list[Part]:
    gap = rng.uniform(0.16, 0.2)
    eyes = [ellipse((s * gap, -0.50), (0.07, 0.085), LIGHT) for s in (-1, 1)]
    pupils = [ellipse((s * gap, -0.49), (0.04, 0.065), DARK) for s in (-1, 1)]
    return [ellipse((0.0, -0.42), (wide, 0.37)), *eyes, *pupils]


def fish(rng: np.random.Generator) -> Figure:
    """A lens with an upright tail fin, fins above and below, a gill."""
    deep = rng.uniform(0.34, 0.44)
    spread = rng.uniform(0.28, 0.38)
    return [
        polygon([(0.48, 0.0), (0.98, -spread), (0.84, 0.0), (0.98, spread)], TRIM),
        polygon([(-0.2, -deep + 0.06), (0.12, -deep - 0.2), (0.4, -deep + 0.2)], TRIM),
        polygon([(0.0, deep - 0.06), (0.22, deep + 0.14), (0.32, deep - 0.14)], TRIM),
        _hull_of_fish(deep, 0.72),
        *bow([(-0.34, -deep * 0.62), (-0.26, 0.0), (-0.34, deep * 0.62)], 0.04, DARK),
        ellipse((-0.5, -0.1), (0.085, 0.085), LIGHT),
        ellipse((-0.51, -0.1), (0.045, 0.045), DARK),
    ]


def whale(rng: np.random.Generator) -> Figure:
    """A blunt front, a pale belly, a fluke that lies flat, a spout."""
    deep = rng.uniform(0.36, 0.44)
    lift = rng.uniform(0.30, 0.46)
    spout = [limb((-0.36, -deep), (-0.36 + s * 0.16, -deep - 0.28), (0.05, 0.08), LIGHT) for s in (-1, 1)]
    back = [(-0.72, -0.05), (-0.62, -deep * 0.8), (-0.3, -deep), (0.1, -deep * 0.75), (0.5, -0.12), (0.78, -lift)]
    belly = [(0.9, -lift + 0.06), (0.66, 0.14), (0.3, deep * 0.8), (-0.2, deep), (-0.6, deep * 0.75), (-0.72, 0.2)]
    return [
        *spout,
        ellipse((0.68, -lift - 0.04), (0.2, 0.09), TRIM, turn=-25),
        ellipse((0.94, -lift - 0.02), (0.18, 0.09), TRIM, turn=35),
        polygon(back + belly),
        polygon([(-0.7, 0.14), (0.0, 0.2), (0.36, deep * 0.66), (-0.2, deep * 0.96), (-0.58, deep * 0.72)], LIGHT),
        ellipse((-0.02, deep * 0.62), (0.2, 0.09), TRIM, turn=-35),
        ellipse((-0.46, 0.0), (0.05, 0.055), DARK),
    ]


def _hull_of_fish(deep: float, long: float) -> Part:
    x = np.linspace(-1, 1, 14)
    half = deep * (1 - np.abs(x) ** 1.9) ** 0.85 + 0.035 * (x > 0)
    upper, lower = np.stack([x * long, -half], axis=1), np.stack([x[::-1] * long, half[::-1]], axis=1)
    return polygon(np.concatenate([upper, lower]) - (0.1, 0.0))
