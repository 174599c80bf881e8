"""From a figure to pixels: colors, light and shadow, and the way onto the canvas."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter

from ipseg.data.scenes.figure import BODY, DARK, HOLE, LIGHT, TRIM, Figure
from ipseg.data.scenes.texture import Array, Palette, blend, cloudy, texture

FINER = 3  # outlines are drawn this many times larger and then reduced: smooth edges


@dataclass(frozen=True)
class Sprite:
    """A painted figure on its own small canvas."""

    color: Array
    """(3, h, w), 0 to 255."""
    alpha: Array
    """(h, w), 0 outside to 1 inside."""

    @property
    def solid(self) -> npt.NDArray[np.bool_]:
        """The pixels that belong to the figure when every pixel has to decide."""
        return self.alpha >= 0.5


@dataclass(frozen=True)
class Window:
    """Where a sprite lies on the canvas: the rows and columns of both that meet."""

    canvas: tuple[slice, slice]
    sprite: tuple[slice, slice]

    @classmethod
    def at(cls, top: int, left: int, sprite: tuple[int, int], canvas: tuple[int, int]) -> Window:
        """The overlap of a sprite whose corner lies at (top, left), which may be outside, with the canvas."""
        rows, columns = _meet(top, sprite[0], canvas[0]), _meet(left, sprite[1], canvas[1])
        return cls((rows[0], columns[0]), (rows[1], columns[1]))


def _meet(start: int, length: int, limit: int) -> tuple[slice, slice]:
    first = min(max(start, 0), limit)
    last = max(min(start + length, limit), first)  # nothing, where they do not meet at all
    return slice(first, last), slice(first - start, last - start)


def paint(figure: Figure, extent: float, palette: Palette, light: float, rng: np.random.Generator) -> Sprite:
    """Color a posed figure `extent` pixels large, lit from the direction `light` (radians)."""
    tones = _tones(figure, extent)
    height, width = tones.size[1] // FINER, tones.size[0] // FINER
    drawn = np.asarray(tones)
    cover = {tone: _cover(drawn == tone) for tone in sorted({part.tone for part in figure} - {HOLE})}
    alpha = np.minimum(sum(cover.values(), start=np.zeros((height, width), np.float32)), 1)
    color = np.zeros((3, height, width), np.float32)
    for tone, share in cover.items():
        color += share * _coat(tone, (height, width), extent, palette, rng)
    color *= _relief(alpha, extent, light) / np.maximum(alpha, np.float32(1e-3))
    return Sprite(color, alpha)


def _tones(figure: Figure, extent: float) -> Image.Image:
    points = np.concatenate([part.points for part in figure])
    low, high = points.min(axis=0), points.max(axis=0)
    width, height = (np.ceil((high - low) * extent).astype(int) + 2).tolist()
    tones = Image.new("L", (width * FINER, height * FINER))
    draw = ImageDraw.Draw(tones)
    for part in figure:
        corners = (part.points - low) * (extent * FINER) + FINER
        draw.polygon(corners.ravel().tolist(), fill=part.tone)
    return tones


def _cover(fine: npt.NDArray[np.bool_]) -> Array:
    """How much of each pixel is covered, of what covers its finer cells."""
    cells = _add_up(_add_up(fine.view(np.uint8)).T).T
    return cells.astype(np.float32) / np.float32(FINER**2)


def _add_up(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    total = rows[0::FINER].copy()
    for k in range(1, FINER):
        total += rows[k::FINER]
    return total


def _coat(tone: int, size: tuple[int, int], extent: float, palette: Palette, rng: np.random.Generator) -> Array:
    if tone in (BODY, TRIM):
        return blend(palette.strong(rng), palette.strong(rng), texture(rng, *size, extent))
    assert tone in (DARK, LIGHT)
    return palette.dark(rng) if tone == DARK else palette.light(rng)


def _relief(alpha: Array, extent: float, light: float) -> Array:
    """Brightness of a body that bulges: bright where its side faces the light, dark where it turns away."""
    blurred = Image.fromarray((alpha * 255).astype(np.uint8)).filter(ImageFilter.GaussianBlur(extent * 0.07))
    soft: Array = np.asarray(blurred, dtype=np.float32) / np.float32(255)
    down, right = _slope(soft), _slope(soft.T).T
    slope = (np.float32(np.cos(light)) * right + np.float32(np.sin(light)) * down) * np.float32(extent * 0.11)
    brightness: Array = np.clip(1.0 - slope, 0.6, 1.35) * (0.84 + 0.16 * soft)
    return brightness


def _slope(values: Array) -> Array:
    """Central differences from row to row: np.gradient without its overhead, which counts on small sprites."""
    slope: Array = np.zeros_like(values)
    slope[1:-1] = (values[2:] - values[:-2]) * np.float32(0.5)
    return slope


def put(canvas: Array, sprite: Sprite, window: Window) -> None:
    """Lay the sprite over the canvas."""
    patch = canvas[:, *window.canvas]
    patch += sprite.alpha[window.sprite] * (sprite.color[:, *window.sprite] - patch)


def cast_shadow(canvas: Array, bottom: float, center: float, half_width: float, light: float) -> None:
    """Darken the ground where something stands, a little to the side that the light does not reach."""
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


def develop(canvas: Array, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """What a camera makes of it: uneven light, a lens that is not quite sharp, a tint, grain."""
    height, width = canvas.shape[1:]
    short = min(height, width)
    lit = 1 + np.float32(rng.uniform(0.02, 0.1)) * cloudy(rng, height, width, short / 1.5)
    cast = rng.normal(1.0, 0.03, (3, 1, 1)).astype(np.float32) * np.float32(rng.uniform(0.88, 1.08))
    exposed = _to_bytes(canvas * (lit * cast))
    sharp = Image.fromarray(np.ascontiguousarray(np.moveaxis(exposed, 0, 2)))
    blurred = sharp.filter(ImageFilter.GaussianBlur(rng.uniform(0.0, 0.6) * max(short / 128, 0.6)))
    grain = np.repeat(_grain(rng, (height, width), rng.uniform(0.5, 4)), 3, axis=1).reshape(height, width, 3)
    grain += _grain(rng, (height, width, 3), rng.uniform(0.5, 2.5))
    return _to_bytes(np.asarray(blurred, dtype=np.float32) + grain)


def _grain(rng: np.random.Generator, shape: tuple[int, ...], deviation: float) -> Array:
    """Noise around 0; the sum of two bytes is near enough to a bell curve, and ten times faster to draw."""
    dice = np.frombuffer(rng.bytes(2 * int(np.prod(shape))), np.uint8).reshape(2, *shape)
    total = dice[0].astype(np.float32) + dice[1]
    noise: Array = (total - np.float32(255)) * np.float32(deviation / 104.5)  # 104.5: the deviation of that sum
    return noise


def _to_bytes(values: Array) -> npt.NDArray[np.uint8]:
    return np.clip(values, 0, 255).astype(np.uint8)
