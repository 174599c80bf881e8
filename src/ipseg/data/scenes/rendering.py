"""From shapes to pixels: colors, textures, light and shadow, and the camera.

Look-alikes, clutter and backgrounds share colors and textures, so that color alone gives no class away. Arrays of color
are (3, height, width), 0 to 255: color first, so that numpy walks along rows.
"""

from __future__ import annotations

import colorsys
from bisect import bisect
from collections.abc import Sequence
from copy import copy
from itertools import accumulate
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter

from ipseg.data.scenes.shapes import BODY, DARK, HOLE, TRIM, Shape

T = TypeVar("T")
Array = npt.NDArray[np.float32]
Color = npt.NDArray[np.float32]
"""(3, 1, 1)."""
Size = tuple[int, int]
"""Height and width."""

FINER = 3
"""Polygons are drawn this many times larger and then reduced: smooth edges."""
OWN_COLORS = 0.75
"""How often an object has the colors of its pair."""
FIRST_HUE, NEXT_HUE = 0.08, 0.618
"""The first pair is brown; the next ones lie a golden section apart on the circle, which keeps any number spread."""
HUES = ([0.0, 0.14, 0.36, 0.50, 0.74, 0.86, 1.0], [0.0, 0.07, 0.15, 0.32, 0.58, 0.72, 1.0])
"""From even steps to hues: more reds, ochres and blues, fewer of the greens and violets that fill the HSV circle."""
TEXTURES = {"plain": 0.22, "gradient": 0.18, "stripes": 0.14, "spots": 0.10, "checks": 0.08, "mottle": 0.16,
            "patches": 0.12}  # fmt: skip
"""Each with its probability."""


def choose(rng: np.random.Generator, among: Sequence[T], probabilities: Sequence[float]) -> T:
    """Generator.choice does the same, ten times slower."""
    return among[min(bisect(list(accumulate(probabilities)), rng.random()), len(among) - 1)]


def hsv(hue: float, saturation: float, value: float) -> Color:
    """A color; the hue may run past 1 and the other two are clipped."""
    rgb = colorsys.hsv_to_rgb(hue % 1.0, min(max(saturation, 0.0), 1.0), min(max(value, 0.0), 1.0))
    return np.array(rgb, dtype=np.float32).reshape(3, 1, 1) * np.float32(255)


class Palette:
    """The colors of one image: a few hues that go together, for everything in it."""

    def __init__(self, rng: np.random.Generator) -> None:
        first, step = rng.uniform(), rng.choice([0.08, 0.21, 0.33])
        even = [first + k * step + rng.normal(0, 0.03) for k in range(4)] + [rng.uniform() for _ in range(2)]
        self.hues = np.interp(np.mod(even, 1.0), *HUES)
        self.vivid = rng.uniform(0.75, 1.1)

    def of_pair(self, pair: int, rng: np.random.Generator) -> Palette:
        """The colors of an object: mostly its pair's own, as cows and horses are brown, sometimes any.

        Look-alikes share them, so that color may tell which pair it is, and never which of the two.
        """
        own = copy(self)
        if rng.uniform() < OWN_COLORS:
            own.hues = FIRST_HUE + NEXT_HUE * pair + rng.normal(0, 0.04, 2)
        return own

    def strong(self, rng: np.random.Generator) -> Color:
        """Of an object."""
        return hsv(self._hue(rng), self.vivid * rng.beta(3.0, 2.0), rng.uniform(0.5, 1.0))

    def soft(self, rng: np.random.Generator, low: float = 0.5, high: float = 0.95) -> Color:
        """Of a wall, a field, a cloth."""
        return hsv(self._hue(rng), self.vivid * rng.uniform(0.08, 0.45), rng.uniform(low, high))

    def dark(self, rng: np.random.Generator) -> Color:
        """Nearly black, with a tint."""
        return hsv(self._hue(rng), rng.uniform(0.2, 0.6), rng.uniform(0.12, 0.30))

    def light(self, rng: np.random.Generator) -> Color:
        """Nearly white, with a tint."""
        return hsv(self._hue(rng), rng.uniform(0.03, 0.22), rng.uniform(0.86, 1.0))

    def _hue(self, rng: np.random.Generator) -> float:
        return float(self.hues[rng.integers(len(self.hues))])


def blend(first: Color, second: Color, share: Array) -> Array:
    """The first color where the share is 0, the second where it is 1."""
    return first + share * (second - first)


def smooth_noise(rng: np.random.Generator, size: Size, grain: float) -> Array:
    """Noise around 0 with a deviation of about 1; `grain` is the size of its lumps in pixels."""
    rows, columns = (max(2, round(side / grain) + 2) for side in size)
    coarse = Image.fromarray(rng.standard_normal((rows, columns)).astype(np.float32))
    return np.asarray(coarse.resize((size[1], size[0]), Image.Resampling.BICUBIC))


def texture(rng: np.random.Generator, size: Size, extent: float) -> Array:
    """A random pattern for an object `extent` pixels large: (height, width), from 0 (first color) to 1 (second)."""
    kind = choose(rng, tuple(TEXTURES), tuple(TEXTURES.values()))
    if kind == "plain":
        share = np.float32(0.12) * smooth_noise(rng, size, extent / 3)
    elif kind == "mottle":
        coarse, fine = smooth_noise(rng, size, extent / 4), smooth_noise(rng, size, max(extent / 12, 1.5))
        share = np.clip(0.5 + 0.28 * coarse + 0.18 * fine, 0, 1)
    elif kind == "patches":
        share = _soft_step(smooth_noise(rng, size, extent / rng.uniform(3, 5)), rng.uniform(0.0, 0.5), 5.0)
    elif kind == "gradient":
        along, _ = _rotated_grid(rng, size)
        low, high = float(along.min()), float(along.max())
        share = (along - np.float32(low)) / np.float32(max(high - low, 1.0))
    else:
        along, across = _rotated_grid(rng, size)
        period = max(extent * float(rng.uniform(0.1, 0.3)), 3.5)  # finer than a few pixels would only be gray
        period *= {"stripes": 1.0, "spots": 1.2, "checks": 1.3}[kind]
        if kind == "stripes":
            bend = rng.uniform(0, 0.8) * np.sin(across * (2 * np.pi / extent))
            share = _soft_step(np.sin(along * (2 * np.pi / period) + bend), rng.uniform(-0.4, 0.4))
        elif kind == "spots":
            wave = np.cos(along * (2 * np.pi / period)) + np.cos(across * (2 * np.pi / period))
            share = _soft_step(wave, rng.uniform(0.3, 0.9))
        else:
            share = _soft_step(np.sin(along * (2 * np.pi / period)) * np.sin(across * (2 * np.pi / period)) * 2, 0.0)
        share *= np.float32(rng.uniform(0.3, 0.8) if kind == "checks" else rng.uniform(0.4, 0.95))
    return share


def _rotated_grid(rng: np.random.Generator, size: Size) -> tuple[Array, Array]:
    """Coordinates of every pixel along two perpendicular axes."""
    angle = rng.uniform(0, np.pi)
    c, s = np.float32(np.cos(angle)), np.float32(np.sin(angle))
    y, x = np.arange(size[0], dtype=np.float32)[:, None], np.arange(size[1], dtype=np.float32)
    shift = np.float32(rng.uniform(0, 100))
    return c * x + s * y + shift, c * y - s * x + shift


def _soft_step(values: Array, threshold: float, steepness: float = 3.0) -> Array:
    steps: Array = np.clip((values - np.float32(threshold)) * np.float32(steepness) + np.float32(0.5), 0, 1)
    return steps


class Sprite(NamedTuple):
    """A painted shape on its own small canvas."""

    color: Array
    """(3, h, w)."""
    alpha: Array
    """(h, w), 0 outside to 1 inside."""
    solid: npt.NDArray[np.bool_]
    """(h, w): the pixels of the shape, where each must decide."""


def render(shape: Shape, extent: float, palette: Palette, light: float, rng: np.random.Generator) -> Sprite:
    """Paint a posed shape `extent` pixels large, lit from the direction `light` (radians)."""
    tones = np.asarray(_rasterize(shape, extent))
    covered = {tone: _reduced(tones == tone) for tone in sorted({part.tone for part in shape} - {HOLE})}
    painted = [share * _paint(tone, share.shape, extent, palette, rng) for tone, share in covered.items()]
    alpha: Array = np.sum([*covered.values()], axis=0).clip(max=1)
    color: Array = np.sum(painted, axis=0) * (_relief(alpha, extent, light) / np.maximum(alpha, np.float32(1e-3)))
    return Sprite(color, alpha, alpha >= 0.5)


def _rasterize(shape: Shape, extent: float) -> Image.Image:
    points = np.concatenate([part.points for part in shape])
    low, high = points.min(axis=0), points.max(axis=0)
    width, height = (np.ceil((high - low) * extent).astype(int) + 2).tolist()
    tones = Image.new("L", (width * FINER, height * FINER))
    pen = ImageDraw.Draw(tones)
    for part in shape:
        corners = (part.points - low) * (extent * FINER) + FINER
        pen.polygon(corners.ravel().tolist(), fill=part.tone)
    return tones


def _reduced(fine: npt.NDArray[np.bool_]) -> Array:
    """How much of each pixel is covered."""
    cells = fine.view(np.uint8)
    covered = sum(cells[row::FINER, column::FINER] for row in range(FINER) for column in range(FINER))
    return np.asarray(covered, np.float32) / np.float32(FINER**2)


def _paint(tone: int, size: Size, extent: float, palette: Palette, rng: np.random.Generator) -> Array:
    if tone in (BODY, TRIM):
        return blend(palette.strong(rng), palette.strong(rng), texture(rng, size, extent))
    return palette.dark(rng) if tone == DARK else palette.light(rng)


def _relief(alpha: Array, extent: float, light: float) -> Array:
    """Brightness of a body that bulges: bright where its side faces the light, dark where it turns away."""
    blurred = Image.fromarray((alpha * 255).astype(np.uint8)).filter(ImageFilter.GaussianBlur(extent * 0.07))
    soft: Array = np.asarray(blurred, dtype=np.float32) / np.float32(255)
    down, right = np.zeros_like(soft), np.zeros_like(soft)
    down[1:-1] = (soft[2:] - soft[:-2]) * np.float32(0.5)
    right[:, 1:-1] = (soft[:, 2:] - soft[:, :-2]) * np.float32(0.5)
    slope = (np.float32(np.cos(light)) * right + np.float32(np.sin(light)) * down) * np.float32(extent * 0.11)
    brightness: Array = np.clip(1.0 - slope, 0.6, 1.35) * (0.84 + 0.16 * soft)
    return brightness


def cast_shadow(canvas: Array, bottom: float, center: float, half_width: float, light: float) -> None:
    """Darken the ground where an object stands, a little to the side that the light does not reach."""
    height, width = canvas.shape[1:]
    center -= half_width * 0.35 * float(np.cos(light))
    flat = half_width * 0.28
    top, under = max(int(bottom - 3 * flat), 0), min(int(bottom + 3 * flat) + 1, height)
    left, right = max(int(center - 2.4 * half_width), 0), min(int(center + 2.4 * half_width) + 1, width)
    if top >= under or left >= right:
        return
    y = (np.arange(top, under, dtype=np.float32)[:, None] - np.float32(bottom)) / np.float32(flat)
    x = (np.arange(left, right, dtype=np.float32) - np.float32(center)) / np.float32(half_width)
    canvas[:, top:under, left:right] *= 1 - np.float32(0.45) * np.exp(-(x**2) * np.float32(1.3)) * np.exp(-(y**2))


def photograph(canvas: Array, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """The image (height, width, 3) of a camera: uneven light, a lens that is not quite sharp, a tint, grain."""
    height, width = canvas.shape[1:]
    short = min(height, width)
    lit = 1 + np.float32(rng.uniform(0.02, 0.1)) * smooth_noise(rng, (height, width), short / 1.5)
    cast = rng.normal(1.0, 0.03, (3, 1, 1)).astype(np.float32) * np.float32(rng.uniform(0.88, 1.08))
    exposed = np.clip(canvas * (lit * cast), 0, 255).astype(np.uint8)
    sharp = Image.fromarray(np.ascontiguousarray(np.moveaxis(exposed, 0, 2)))
    blurred = sharp.filter(ImageFilter.GaussianBlur(rng.uniform(0.0, 0.6) * max(short / 128, 0.6)))
    grain = _grain(rng, (height, width, 1), rng.uniform(0.5, 4)) + _grain(
        rng, (height, width, 3), rng.uniform(0.5, 2.5)
    )
    return np.clip(np.asarray(blurred, dtype=np.float32) + grain, 0, 255).astype(np.uint8)


def _grain(rng: np.random.Generator, shape: tuple[int, ...], deviation: float) -> Array:
    """Noise around 0; the sum of two bytes is near enough to a bell curve, and ten times faster to draw."""
    dice = np.frombuffer(rng.bytes(2 * int(np.prod(shape))), np.uint8).reshape(2, *shape)
    total = dice[0].astype(np.float32) + dice[1]
    noise: Array = (total - np.float32(255)) * np.float32(deviation / 104.5)  # 104.5: the deviation of that sum
    return noise
