"""Saliency without a trained model: pixels that no path from the border reaches without crossing an edge.

Three steps, at a working size of 64 pixels. The minimum barrier distance to the border (Zhang et al., ICCV 2015) is
small wherever some path from the border keeps to nearly one color: ground, sky, walls. Its high values, weighed
towards the center, are a first guess. The colors inside and outside of the guess then decide about each pixel again,
which gives objects that touch the border a chance.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

Floats: TypeAlias = NDArray[np.float32]

SIDE = 64
"""The working size: of the longer side."""
MIN_CONTRAST = 10.0
"""The largest barrier must be higher, in the units of Lab (black and white differ by 100): noise is no object."""
CENTER = 0.35
"""The prior of objects around the middle: its deviation, as a share of the side."""
SOFTNESS = 6.0
"""Steepness of the first guess, from ground to object."""
FIRST_GUESS = 0.5
"""Weight of the first guess beside the colors."""
BINS = 12
"""Of the color histograms, on each axis of Lab."""


def salient(image: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """(H, W), true where an object of the (H, W, 3) RGB image is salient. The same image gives the same map."""
    height, width = image.shape[:2]
    scale = SIDE / max(height, width)
    size = max(3, round(width * scale)), max(3, round(height * scale))  # thinner has a border and nothing inside
    colors = lab(np.asarray(Pillow.fromarray(image).resize(size, Pillow.Resampling.BOX)))
    barrier = minimum_barrier(colors).sum(-1)
    if barrier.max() < MIN_CONTRAST:
        return np.zeros((height, width), dtype=bool)
    across, down = (((np.arange(side) + 0.5) / side - 0.5) / CENTER for side in size)
    center = np.exp(-0.5 * (down[:, None] ** 2 + across**2)).astype(np.float32)
    guess = _stretched(_smooth(barrier) * center)
    guess = _sigmoid(SOFTNESS * (guess - otsu(guess)))
    probability = _stretched(by_color(colors, guess))
    large = Pillow.fromarray(probability).resize((width, height), Pillow.Resampling.BILINEAR)
    return np.asarray(large) > otsu(probability)


def minimum_barrier(channels: Floats) -> Floats:
    """(H, W, C): the least that a channel must vary along a path from the border to each pixel.

    Two passes of sweeps down, up, right and left, each a row (or column) at a time: a close upper bound, as that of the
    raster scans of the paper. A pixel takes the path through its neighbor where that varies less; `highest` and
    `lowest` are those of its path.
    """
    distance = np.full_like(channels, np.inf)
    distance[[0, -1]] = 0
    distance[:, [0, -1]] = 0
    state = (channels, distance, channels.copy(), channels.copy())
    for _ in range(2):
        for values, distances, highest, lowest in (state, [array.swapaxes(0, 1) for array in state]):
            count = len(values)
            steps = [(i, i - 1) for i in range(1, count)] + [(i, i + 1) for i in range(count - 2, -1, -1)]
            for row, before in steps:  # the first row is border: after the first way down every pixel has a path
                high = np.maximum(highest[before], values[row])
                low = np.minimum(lowest[before], values[row])
                better = high - low < distances[row]
                np.copyto(distances[row], high - low, where=better)
                np.copyto(highest[row], high, where=better)
                np.copyto(lowest[row], low, where=better)
    return distance


def by_color(colors: Floats, guess: Floats) -> Floats:
    """(H, W) in 0-1: how much likelier a pixel's color is inside of the guess than outside, and the guess itself."""
    scaled = (colors / [100, 120, 120] + [0, 0.5, 0.5]) * BINS
    lightness, a, b = np.moveaxis(np.clip(scaled, 0, BINS - 1).astype(np.intp), -1, 0)
    place = (lightness * BINS + a) * BINS + b
    inside, outside = (_histogram(place, weights)[place] for weights in (guess, 1 - guess))
    evidence = _smooth(np.log((inside + 1e-5) / (outside + 1e-5)))
    prior = np.log((guess + 0.02) / (1 - guess + 0.02))
    return _sigmoid((FIRST_GUESS * prior + evidence).astype(np.float32))


def _histogram(place: NDArray[np.intp], weights: Floats) -> Floats:
    """Shares of the colors, neighbors blended, so that a color beside one that was seen is no surprise."""
    counts = np.bincount(place.ravel(), weights.ravel(), BINS**3).reshape(BINS, BINS, BINS)
    for axis in range(3):
        padded = np.pad(counts, [(1, 1) if axis == i else (0, 0) for i in range(3)]).swapaxes(axis, 0)
        counts = (0.25 * padded[:-2] + 0.5 * padded[1:-1] + 0.25 * padded[2:]).swapaxes(0, axis)
    return np.asarray(counts / max(counts.sum(), 1e-6), np.float32).ravel()


def otsu(values: Floats) -> float:
    """The threshold that parts values of 0-1 into two groups as far apart as can be.

    >>> 0.2 < otsu(np.array([0.1, 0.2, 0.8, 0.9], dtype=np.float32)) < 0.8
    True
    """
    counts, edges = np.histogram(values, 64, (0, 1))
    below, sums = np.cumsum(counts), np.cumsum(counts * (edges[1:] + edges[:-1]) / 2)
    apart = (sums[-1] * below / below[-1] - sums) ** 2 / (below * (below[-1] - below) + 1e-6)
    best = np.flatnonzero(apart >= apart.max() * (1 - 1e-9))  # a whole range where the groups leave a gap
    return float(edges[1:][best].mean())


def lab(rgb: NDArray[np.uint8]) -> Floats:
    """CIE Lab (D65), in which equal distances look equally different."""
    linear = rgb.astype(np.float32) / 255
    linear = np.where(linear > 0.04045, ((linear + 0.055) / 1.055) ** 2.4, linear / 12.92)
    to_xyz = np.array([[0.4339, 0.3762, 0.1899], [0.2126, 0.7152, 0.0722], [0.0177, 0.1095, 0.8728]], np.float32)
    xyz = linear @ to_xyz.T  # each relative to white
    x, y, z = np.moveaxis(np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116), -1, 0)
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1).astype(np.float32)


def _smooth(values: Floats, reach: int = 2) -> Floats:
    """The mean over a square of five pixels."""
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(values, reach, mode="edge"), (2 * reach + 1,) * 2)
    return np.asarray(windows.mean((-1, -2)), np.float32)


def _stretched(values: Floats) -> Floats:
    return np.asarray((values - values.min()) / max(float(np.ptp(values)), 1e-6), np.float32)


def _sigmoid(values: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-values)), np.float32)
