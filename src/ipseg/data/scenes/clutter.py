"""Things that are in the way and belong to no class: stones, sticks, leaves, bushes, crates, posters, rags."""

from __future__ import annotations

import numpy as np

from ipseg.data.scenes.figure import DARK, LIGHT, TRIM, Figure, Sketch, bow, box, ellipse, limb, polygon, radial


def stone(rng: np.random.Generator) -> Figure:
    """A lumpy flat stone."""
    outline = radial(_lumps(rng, 18, 0.12))
    outline.points[:, 1] *= rng.uniform(0.5, 0.8)
    return [outline]


def stick(rng: np.random.Generator) -> Figure:
    """A bent stick with a fork."""
    y = rng.uniform(-0.2, 0.2, 3)
    fork = (rng.uniform(0.2, 0.5), rng.uniform(-0.55, -0.25))
    return [*bow([(-1, y[0]), (0, y[1]), (1, y[2])], 0.12), limb((0, y[1]), fork, (0.11, 0.06), TRIM)]


def leaf(rng: np.random.Generator) -> Figure:
    """A pointed leaf with its rib."""
    x = np.linspace(-1, 1, 10)
    half = rng.uniform(0.24, 0.42) * (1 - x**2)
    edge = np.concatenate([np.stack([x, -half], axis=1), np.stack([x[::-1], half[::-1]], axis=1)])
    return [polygon(edge), limb((-1, 0), (0.8, 0), (0.07, 0.03), TRIM)]


def bush(rng: np.random.Generator) -> Figure:
    """A heap of leaves on the ground."""
    xs = np.linspace(-0.65, 0.65, 4)
    return [ellipse((float(x), rng.uniform(-0.2, 0.1)), (0.36, rng.uniform(0.3, 0.5))) for x in xs] + [
        ellipse((float(x), float(y)), (0.06, 0.06), LIGHT) for x, y in rng.uniform((-0.7, -0.3), (0.7, 0.3), (3, 2))
    ]


def crate(rng: np.random.Generator) -> Figure:
    """A box with boards across."""
    half = rng.uniform(0.4, 0.75)
    boards = [limb((-0.8, -half * 0.8), (0.8, half * 0.8), (0.16, 0.16), TRIM)]
    return [box(-0.9, -half, 0.9, half), *boards, box(-0.9, -half, 0.9, -half + 0.12, TRIM)]


def poster(rng: np.random.Generator) -> Figure:
    """A frame with an abstract picture in it."""
    half = rng.uniform(0.5, 1.0)
    inner = radial(_lumps(rng, 12, 0.3) * 0.36, TRIM, (rng.uniform(-0.2, 0.2), rng.uniform(-0.1, 0.1)))
    return [box(-half, -0.7, half, 0.7, DARK), box(-half + 0.08, -0.62, half - 0.08, 0.62), inner]


def rag(rng: np.random.Generator) -> Figure:
    """Something with a few corners."""
    return [radial(rng.uniform(0.35, 1.0, int(rng.integers(5, 9))), start=float(rng.uniform(0, 360)))]


def blob(rng: np.random.Generator) -> Figure:
    """Something soft with a pale and a dark dot, as windows, wheels and eyes have them."""
    dots = [
        ellipse((float(x), float(y)), (0.13, 0.13), tone)
        for (x, y), tone in zip(rng.uniform(-0.4, 0.4, (2, 2)), (LIGHT, DARK), strict=True)
    ]
    return [radial(_lumps(rng, 24, 0.25)), *dots]


def ladder(rng: np.random.Generator) -> Figure:
    """A piece of fence: two rails and some posts."""
    count = int(rng.integers(3, 6))
    rails = [limb((-1, y), (1, y), (0.1, 0.1), TRIM) for y in (-0.2, 0.25)]
    return rails + [limb((float(x), -0.5), (float(x), 0.6), (0.13, 0.13)) for x in np.linspace(-0.85, 0.85, count)]


def _lumps(rng: np.random.Generator, corners: int, rough: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Radii of a closed smooth outline around 1."""
    angle = np.linspace(0, 2 * np.pi, corners, endpoint=False)
    phases, sizes = rng.uniform(0, 2 * np.pi, 3), rng.uniform(0.3, 1.0, 3)
    waves = [sizes[k] * np.sin((k + 2) * angle + phases[k]) for k in range(3)]
    return 1 + rough * sum(waves, start=np.zeros(corners))


STANDING: tuple[Sketch, ...] = (stone, stick, leaf, bush, crate, rag, blob, ladder)
HANGING: tuple[Sketch, ...] = (poster, rag, leaf, blob)
