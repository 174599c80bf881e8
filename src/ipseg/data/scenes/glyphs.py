"""More classes: an outline with a mark. A pair shares outline and kind of mark, and differs in how many it has."""

from __future__ import annotations

from functools import partial

import numpy as np

from ipseg.data.scenes.figure import DARK, HOLE, LIGHT, TRIM, Figure, Part, box, ellipse, limb, polygon

OUTLINES = ("disc", "square", "triangle", "cross", "pill")
MARKS = ("hole", "horn", "belt", "leg")
COUNTS = {"hole": ("one-hole", "two-holes"), "horn": ("two-horns", "three-horns")}
COUNTS |= {"belt": ("one-belt", "two-belts"), "leg": ("two-legs", "three-legs")}


def glyph(outline: str, mark: str, second: bool, rng: np.random.Generator) -> Figure:
    """A specimen of the outline with the mark; the second of a pair has it once more than the first."""
    size = rng.uniform(0.58, 0.68)
    base = _outline(outline, size, rng)
    count = {"hole": 1, "horn": 2, "belt": 1, "leg": 2}[mark] + second
    if mark == "hole":
        return [base, *_holes(count, size * rng.uniform(0.26, 0.32), outline)]
    if mark == "horn":
        return [*_horns(count, size, outline), base]
    if mark == "belt":
        return [base, *_belts(count, size, outline)]
    return [*_legs(count, size, rng), base]


def _outline(outline: str, s: float, rng: np.random.Generator) -> Part:
    if outline == "disc":
        return ellipse((0, 0), (s, s))
    if outline == "square":
        return box(-s * 0.92, -s * 0.92, s * 0.92, s * 0.92, corner=0.08)
    if outline == "triangle":
        return polygon([(0, -1.05 * s), (1.12 * s, 0.85 * s), (-1.12 * s, 0.85 * s)])
    if outline == "cross":
        w = s * rng.uniform(0.44, 0.52)
        corners = [
            (-w, -s),
            (w, -s),
            (w, -w),
            (s, -w),
            (s, w),
            (w, w),
            (w, s),
            (-w, s),
            (-w, w),
            (-s, w),
            (-s, -w),
            (-w, -w),
        ]
        return polygon(corners)
    return box(-s * 1.45, -s * 0.66, s * 1.45, s * 0.66, corner=s)


def _holes(count: int, r: float, outline: str) -> list[Part]:
    low = 0.2 if outline == "triangle" else 0.0  # a triangle is widest below
    xs = [0.0] if count == 1 else [-1.25 * r, 1.25 * r]
    scale = 1.15 if count == 1 else 0.85
    return [ellipse((x, low), (r * scale, r * scale), HOLE) for x in xs]


def _horns(count: int, s: float, outline: str) -> list[Part]:
    reach = s * (1.25 if outline == "pill" else 1.6)
    spread = 1.0 if outline == "pill" else 0.62
    xs = np.linspace(-spread, spread, count) * s
    return [polygon([(x - 0.19, 0), (x * 1.25, -reach), (x + 0.19, 0)], TRIM) for x in xs]


def _belts(count: int, s: float, outline: str) -> list[Part]:
    half = s * {"disc": 0.86, "square": 0.92, "triangle": 0.5, "cross": 0.46, "pill": 0.62}[outline]
    if outline == "pill":  # across the long way, or two belts would fill it
        xs = [0.0] if count == 1 else [-0.42 * s, 0.42 * s]
        return [box(x - 0.08, -half, x + 0.08, half, DARK) for x in xs]
    ys = [0.06 * s] if count == 1 else [-0.3 * s, 0.36 * s]
    return [box(-half, y - 0.08, half, y + 0.08, DARK) for y in ys]


def _legs(count: int, s: float, rng: np.random.Generator) -> list[Part]:
    length = s + rng.uniform(0.34, 0.46)
    xs = np.linspace(-0.56, 0.56, count) * s
    shafts = [limb((x, 0.0), (x * 1.15, length), (0.19, 0.17), TRIM) for x in xs]
    return shafts + [ellipse((x * 1.15, length), (0.16, 0.09), LIGHT) for x in xs]


PAIRS = tuple(
    tuple(
        (f"{outline}-{name}", partial(glyph, outline, mark, bool(second))) for second, name in enumerate(COUNTS[mark])
    )
    for mark in MARKS
    for outline in OUTLINES
)
