"""What stands out, without a trained model: that which no path from the border reaches without crossing an edge.

Three steps, at a working size of 64 pixels. The minimum barrier distance to the border (Zhang et al., ICCV 2015) is
small wherever some path from the border keeps to nearly one color: ground, sky, walls. Its high values, weighed
towards the center, are a first guess. The colors inside and outside of the guess then decide about each pixel again,
which gives objects that touch the border a chance.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

Floats: TypeAlias = NDArray[np.float32]

SIDE = 64
"""The longer side at which all is computed."""
LEAST_CONTRAST = 10.0
"""The largest barrier must be higher, in the units of Lab (black and white differ by 100): noise is no object."""
CENTER = 0.35
"""How wide objects are believed to lie around the middle: the deviation, as a share of the side."""
SOFTNESS = 6.0
"""How steeply the first guess goes from ground to object."""
FIRST_GUESS = 0.5
"""How much the first guess counts beside the colors."""
BINS = 12
"""Of the color histograms, on each axis of Lab."""


def salient(image: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """(H, W), true where something stands out of an (H, W, 3) RGB picture. The same picture gives the same map."""
    height, width = image.shape[:2]
    colors = lab(_shrunk(image))
    barrier = minimum_barrier(colors).sum(-1)
    if barrier.max() < LEAST_CONTRAST:
        return np.zeros((height, width), dtype=bool)
    guess = _stretched(_smooth(barrier) * _center(*barrier.shape))
    guess = _sigmoid(SOFTNESS * (guess - otsu(guess)))
    chance = _stretched(by_color(colors, guess))
    large = Pillow.fromarray(chance).resize((width, height), Pillow.Resampling.BILINEAR)
    return np.asarray(large) > otsu(chance)


def minimum_barrier(channels: Floats) -> Floats:
    """(H, W, C): the least that a channel must vary along a path from the border to each pixel.

    Found by sweeps down, up, right and left, each a row (or column) at a time, twice: a close upper bound, as that of
    the raster scans of the paper.
    """
    distance = np.full_like(channels, np.inf)
    distance[[0, -1]] = 0
    distance[:, [0, -1]] = 0
    state = (distance, channels.copy(), channels.copy())
    for _ in range(2):
        _sweep(channels, *state)
        _sweep(channels.swapaxes(0, 1), *(array.swapaxes(0, 1) for array in state))
    return distance


def _sweep(channels: Floats, distance: Floats, highest: Floats, lowest: Floats) -> None:
    """Down and up: is a pixel reached better through the one before? `highest` and `lowest` are those of its path.

    The first row is border, so that from the first way down on every pixel has a path.
    """
    count = len(channels)
    steps = [(i, i - 1) for i in range(1, count)] + [(i, i + 1) for i in range(count - 2, -1, -1)]
    for row, before in steps:
        high = np.maximum(highest[before], channels[row])
        low = np.minimum(lowest[before], channels[row])
        better = high - low < distance[row]
        np.copyto(distance[row], high - low, where=better)
        np.copyto(highest[row], high, where=better)
        np.copyto(lowest[row], low, where=better)


def by_color(colors: Floats, guess: Floats) -> Floats:
    """(H, W) in 0-1: how much likelier a pixel's color is inside of the guess than outside, and the guess itself."""
    scaled = (colors / [100, 120, 120] + [0, 0.5, 0.5]) * BINS
    lightness, a, b = np.moveaxis(np.clip(scaled, 0, BINS - 1).astype(np.intp), -1, 0)
    place = (lightness * BINS + a) * BINS + b
    inside, outside = (_histogram(place, weights)[place] for weights in (guess, 1 - guess))
    evidence = _smooth(np.log((inside + 1e-5) / (outside + 1e-5)))
    before = np.log((guess + 0.02) / (1 - guess + 0.02))
    return _sigmoid(_floats(FIRST_GUESS * before + evidence))


def _histogram(place: NDArray[np.intp], weights: Floats) -> Floats:
    """Shares of the colors, neighbors blended, so that a color beside one that was seen is no surprise."""
    counts = np.bincount(place.ravel(), weights.ravel(), BINS**3).reshape(BINS, BINS, BINS)
    for axis in range(3):
        padded = np.moveaxis(np.pad(counts, [(1, 1) if axis == i else (0, 0) for i in range(3)]), axis, 0)
        counts = np.moveaxis(0.25 * padded[:-2] + 0.5 * padded[1:-1] + 0.25 * padded[2:], 0, axis)
    return _floats(counts / max(counts.sum(), 1e-6)).ravel()


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


def _shrunk(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    height, width = image.shape[:2]
    scale = SIDE / max(height, width)
    size = max(3, round(width * scale)), max(3, round(height * scale))  # thinner has a border and nothing inside
    return np.asarray(Pillow.fromarray(image).resize(size, Pillow.Resampling.BOX))


def _center(height: int, width: int) -> Floats:
    down, across = (((np.arange(n) + 0.5) / n - 0.5) / CENTER for n in (height, width))
    return np.exp(-0.5 * (down[:, None] ** 2 + across**2)).astype(np.float32)


def _smooth(values: Floats, reach: int = 2) -> Floats:
    """The mean over a square of five pixels."""
    padded = np.pad(values, reach, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2 * reach + 1, 2 * reach + 1))
    return _floats(windows.mean((-1, -2)))


def _stretched(values: Floats) -> Floats:
    return _floats((values - values.min()) / max(float(np.ptp(values)), 1e-6))


def _sigmoid(values: Floats) -> Floats:
    return _floats(1 / (1 + np.exp(-values)))


def _floats(values: NDArray[Any]) -> Floats:
    return values.astype(np.float32)
