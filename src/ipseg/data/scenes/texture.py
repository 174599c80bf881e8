"""Colors and textures. Look-alikes, clutter and backgrounds share them, so that color alone gives no class away."""

from __future__ import annotations

import colorsys
from bisect import bisect
from collections.abc import Callable, Sequence
from copy import copy
from itertools import accumulate
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image

T = TypeVar("T")
Array = npt.NDArray[np.float32]
Color = npt.NDArray[np.float32]
"""Red, green and blue, 0 to 255, as (3, 1, 1): color comes first, so that numpy walks along rows and not in threes."""


def hsv(hue: float, saturation: float, value: float) -> Color:
    """A color; the hue may run past 1 and the other two are clipped."""
    rgb = colorsys.hsv_to_rgb(hue % 1.0, min(max(saturation, 0.0), 1.0), min(max(value, 0.0), 1.0))
    return np.array(rgb, dtype=np.float32).reshape(3, 1, 1) * np.float32(255)


_PLEASANT = ([0.0, 0.14, 0.36, 0.50, 0.74, 0.86, 1.0], [0.0, 0.07, 0.15, 0.32, 0.58, 0.72, 1.0])
"""From even steps to hues: more reds, ochres and blues, fewer of the greens and violets that fill the HSV circle."""


OWN_COLORS = 0.75
"""How often a thing has the colors of its pair."""
FIRST_HUE, OWN_HUE = 0.08, 0.618
"""The first pair is brown; the next ones lie a golden section apart on the circle, which keeps any number spread."""


class Palette:
    """The colors of one picture: a few hues that go together, for everything in it."""

    def __init__(self, rng: np.random.Generator) -> None:
        first, step = rng.uniform(), rng.choice([0.08, 0.21, 0.33])
        even = [first + k * step + rng.normal(0, 0.03) for k in range(4)] + [rng.uniform() for _ in range(2)]
        self.hues = np.interp(np.mod(even, 1.0), *_PLEASANT)
        self.vivid = rng.uniform(0.75, 1.1)

    def of_pair(self, pair: int, rng: np.random.Generator) -> Palette:
        """The colors of a thing in this picture: mostly its pair's own, as cows and horses are brown, sometimes any.

        Look-alikes share them, so that color may tell which pair it is, and never which of the two.
        """
        own = copy(self)
        if rng.uniform() < OWN_COLORS:
            own.hues = FIRST_HUE + OWN_HUE * pair + rng.normal(0, 0.04, 2)
        return own

    def strong(self, rng: np.random.Generator) -> Color:
        """The color of a thing."""
        hue = self.hues[rng.integers(len(self.hues))]
        return hsv(hue, self.vivid * rng.beta(3.0, 2.0), rng.uniform(0.5, 1.0))

    def soft(self, rng: np.random.Generator, low: float = 0.5, high: float = 0.95) -> Color:
        """The color of a wall, a field, a cloth: calmer, but of the same hues."""
        hue = self.hues[rng.integers(len(self.hues))]
        return hsv(hue, self.vivid * rng.uniform(0.08, 0.45), rng.uniform(low, high))

    def dark(self, rng: np.random.Generator) -> Color:
        """Nearly black, with a tint."""
        return hsv(self.hues[rng.integers(len(self.hues))], rng.uniform(0.2, 0.6), rng.uniform(0.12, 0.30))

    def light(self, rng: np.random.Generator) -> Color:
        """Nearly white, with a tint."""
        return hsv(self.hues[rng.integers(len(self.hues))], rng.uniform(0.03, 0.22), rng.uniform(0.86, 1.0))


def cloudy(rng: np.random.Generator, height: int, width: int, grain: float) -> Array:
    """Smooth noise around 0 with a deviation of about 1; `grain` is the size of its lumps in pixels."""
    rows, columns = max(2, round(height / grain) + 2), max(2, round(width / grain) + 2)
    coarse = Image.fromarray(rng.standard_normal((rows, columns)).astype(np.float32))
    return np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC))


def texture(rng: np.random.Generator, height: int, width: int, extent: float) -> Array:
    """A random pattern for something `extent` pixels large: (height, width), from 0 (first color) to 1 (second)."""
    return choose(rng, _PATTERNS, _WEIGHTS)(rng, height, width, extent)


def choose(rng: np.random.Generator, among: Sequence[T], chances: Sequence[float]) -> T:
    """One of several, with these chances (Generator.choice does the same, ten times slower)."""
    return among[min(bisect(list(accumulate(chances)), rng.random()), len(among) - 1)]


def blend(first: Color, second: Color, share: Array) -> Array:
    """(3, height, width): the first color where the share is 0, the second where it is 1."""
    return first + share * (second - first)


def turned_grid(rng: np.random.Generator, height: int, width: int, angle: float | None = None) -> tuple[Array, Array]:
    """Coordinates of every pixel along two perpendicular axes, turned at random unless the angle (radians) is given."""
    angle = rng.uniform(0, np.pi) if angle is None else angle
    c, s = np.float32(np.cos(angle)), np.float32(np.sin(angle))
    x, y = np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32)[:, None]
    shift = np.float32(rng.uniform(0, 100))
    return c * x + s * y + shift, c * y - s * x + shift


def _plain(rng: np.random.Generator, height: int, width: int, extent: float) -> Array:
    return np.float32(0.12) * cloudy(rng, height, width, extent / 3)


def _gradient(rng: np.random.Generator, height: int, width: int, extent: float) -> Array:
    along, _ = turned_grid(rng, height, width)
    low, high = float(along.min()), float(along.max())
    share: Array = (along - np.float32(low)) / np.float32(max(high - low, 1.0))
    return share


def _stripes(rng: np.random.Generator, height: int, width: int, extent: float) -> Array:
    along, across = turned_grid(rng, height, width)
    period = _period(rng, extent)
    wave = np.sin(along * (2 * np.pi / period) + rng.uniform(0, 0.8) * np.sin(across * (2 * np.pi / extent)))
    return _soft_step(wave, rng.uniform(-0.4, 0.4)) * np.float32(rng.uniform(0.4, 0.95))


def _spots(rng: np.random.Generator, height: int, width: int, extent: float) -> Array:
    along, across = turned_grid(rng, height, width)
    period = _period(rng, extent) * 1.2
    wave = np.cos(along * (2 * np.pi / period)) + np.cos(across * (2 * np.pi / period))
    return _soft_step(wave, rng.uniform(0.3, 0.9)) * np.float32(rng.uniform(0.4, 0.95))


def _checks(rng: np.random.Generator, height: int, width: int, extent: float) -> Array:
    along, across = turned_grid(rng, height, width)
    period = _period(rng, extent) * 1.3
    wave = np.sin(along * (2 * np.pi / period)) * np.sin(across * (2 * np.pi / period))
    return _soft_step(wave * 2, 0.0) * np.float32(rng.uniform(0.3, 0.8))


def _mottle(rng: np.random.Generator, height: int, width: int, extent: float) -> Array:
    coarse, fine = cloudy(rng, height, width, extent / 4), cloudy(rng, height, width, max(extent / 12, 1.5))
    return np.clip(0.5 + 0.28 * coarse + 0.18 * fine, 0, 1)


def _patches(rng: np.random.Generator, height: int, width: int, extent: float) -> Array:
    return _soft_step(cloudy(rng, height, width, extent / rng.uniform(3, 5)), rng.uniform(0.0, 0.5), 5.0)


def _period(rng: np.random.Generator, extent: float) -> float:
    return max(extent * float(rng.uniform(0.1, 0.3)), 3.5)  # finer than a few pixels would only be gray


def _soft_step(values: Array, threshold: float, steepness: float = 3.0) -> Array:
    steps: Array = np.clip((values - np.float32(threshold)) * np.float32(steepness) + np.float32(0.5), 0, 1)
    return steps


_PATTERNS: tuple[Callable[[np.random.Generator, int, int, float], Array], ...]
_PATTERNS = (_plain, _gradient, _stripes, _spots, _checks, _mottle, _patches)
_WEIGHTS = (0.22, 0.18, 0.14, 0.10, 0.08, 0.16, 0.12)
