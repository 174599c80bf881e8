"""Backgrounds: a landscape, a shore, a room, a cloth."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw

from ipseg.data.scenes.rendering import Array, Color, Palette, Size, blend, choose, hsv, smooth_noise, texture


def background(rng: np.random.Generator, size: Size, palette: Palette) -> tuple[Array, float]:
    """An empty place, (3, height, width), and the row of its horizon, above which nothing can stand."""
    place = choose(rng, (_landscape, _shore, _room, _cloth), (0.38, 0.14, 0.28, 0.20))
    return place(rng, size, palette)


def _landscape(rng: np.random.Generator, size: Size, palette: Palette) -> tuple[Array, float]:
    height, width = size
    horizon = height * rng.uniform(0.28, 0.55)
    canvas = _sky(rng, size, palette)
    for layer in range(int(rng.integers(1, 4))):
        hills = horizon - height * (0.16 - 0.06 * layer) * (0.5 + _ridge(rng, width, 2 + layer))
        _fill(canvas, hills, blend(_earth(rng, palette), _earth(rng, palette), texture(rng, size, width / 2)))
    ground = blend(_earth(rng, palette), _earth(rng, palette), _depth(rng, size, horizon))
    _fill(canvas, horizon, ground, height * 0.02 * _ridge(rng, width, 3))
    if rng.uniform() < 0.75:
        _grass(canvas, rng, horizon, _earth(rng, palette))
    return canvas, horizon


def _shore(rng: np.random.Generator, size: Size, palette: Palette) -> tuple[Array, float]:
    height, width = size
    horizon, beach = height * rng.uniform(0.25, 0.45), height * rng.uniform(0.6, 0.85)
    canvas = _sky(rng, size, palette)
    sea = hsv(rng.normal(0.54, 0.04), rng.uniform(0.3, 0.7), rng.uniform(0.45, 0.85))
    ripples: Array = np.sin(_rows(height) * (2 * np.pi / (height * 0.05)) + 1.5 * smooth_noise(rng, size, width / 6))
    _fill(canvas, horizon, blend(sea, palette.light(rng), 0.16 + 0.14 * ripples))
    sand = blend(_earth(rng, palette), palette.soft(rng), _depth(rng, size, beach))
    _fill(canvas, beach, sand, height * 0.05 * _ridge(rng, width, 2))
    return canvas, horizon


def _room(rng: np.random.Generator, size: Size, palette: Palette) -> tuple[Array, float]:
    height, width = size
    horizon = height * rng.uniform(0.45, 0.75)
    wall = palette.soft(rng)
    canvas = blend(wall, _near(wall, palette.soft(rng), rng), texture(rng, size, width / 3))
    floor = palette.soft(rng, 0.35, 0.8)
    depth = np.maximum(_rows(height) - horizon, 1.0) / height
    across = (np.arange(width, dtype=np.float32) - width * rng.uniform(0.2, 0.8)) / width
    boards = np.sin(across / (depth + 0.25) * rng.uniform(14, 34))  # they run towards the viewer and spread
    share = np.clip(0.5 + 2.2 * boards, 0, 1) * 0.5 + 0.15 * smooth_noise(rng, size, width / 10)
    _fill(canvas, horizon, blend(floor, _near(floor, palette.soft(rng, 0.3), rng), share))
    skirting = int(horizon - height * 0.04)
    canvas[:, skirting : max(int(horizon), skirting + 1)] = palette.light(rng)
    return canvas, horizon


def _cloth(rng: np.random.Generator, size: Size, palette: Palette) -> tuple[Array, float]:
    short, color = min(size), palette.soft(rng, 0.3)
    other = _near(color, palette.soft(rng, 0.3), rng)
    canvas = blend(color, other, texture(rng, size, short * rng.uniform(0.4, 1.2)))
    canvas += 16 * smooth_noise(rng, size, short / 3) + 12 * smooth_noise(rng, size, short / 8)
    if rng.uniform() < 0.4:
        _grass(canvas, rng, 0.0, palette.soft(rng))
    return canvas, 0.0


def _sky(rng: np.random.Generator, size: Size, palette: Palette) -> Array:
    natural = rng.uniform() < 0.55
    top = hsv(rng.normal(0.57, 0.03), rng.uniform(0.3, 0.7), rng.uniform(0.6, 0.95)) if natural else palette.soft(rng)
    fall = np.linspace(0, 1.3, size[0], dtype=np.float32)[:, None]
    canvas = np.repeat(blend(top, palette.light(rng), np.minimum(fall, 1)), size[1], axis=2)
    grain = min(size) / rng.uniform(3, 6)
    lumps = smooth_noise(rng, size, grain) + 0.6 * smooth_noise(rng, size, grain / 2.2)
    clouds = np.clip(lumps * 0.7 - rng.uniform(-0.2, 0.9), 0, 0.85)
    canvas += clouds * (palette.light(rng) - canvas)
    return canvas


def _earth(rng: np.random.Generator, palette: Palette) -> Color:
    """Grass, sand or soil, or any color of the image: green must not mean ground."""
    if rng.uniform() < 0.5:
        hue = rng.choice([0.08, 0.11, 0.22, 0.28, 0.34]) + rng.normal(0, 0.02)
        return hsv(hue, rng.uniform(0.25, 0.65), rng.uniform(0.4, 0.85))
    return palette.soft(rng, 0.35, 0.85)


def _near(color: Color, other: Color, rng: np.random.Generator) -> Color:
    """A neighbor of a color: patterns on walls and floors are quieter than those on objects, mostly."""
    share = np.float32(rng.uniform(0.2, 0.6))
    return (1 - share) * color + share * other


def _rows(height: int) -> Array:
    return np.arange(height, dtype=np.float32)[:, None]


def _ridge(rng: np.random.Generator, width: int, bends: int) -> Array:
    x = np.linspace(0, 2 * np.pi, width, dtype=np.float32)
    waves = [np.sin(x * rng.uniform(0.3, bends) + rng.uniform(0, 6.3)) * rng.uniform(0.2, 0.6) for _ in range(3)]
    total: Array = np.sum(waves, axis=0, dtype=np.float32)
    return total


def _depth(rng: np.random.Generator, size: Size, horizon: float) -> Array:
    """Ground from far to near, with lumps."""
    height, width = size
    near = (_rows(height) - np.float32(horizon)) / np.float32(max(height - horizon, 1))
    lumps = 0.16 * smooth_noise(rng, size, width / 8) + 0.10 * smooth_noise(rng, size, max(width / 40, 1.5))
    share: Array = np.clip(near + lumps, 0, 1)
    return share


def _fill(canvas: Array, edge: float | Array, color: Array, waves: float | Array = 0.0) -> None:
    """Paint below an edge (a row, or one for each column), which is smooth."""
    share = np.clip(_rows(canvas.shape[1]) - edge - waves + 0.5, 0, 1)
    canvas += share * (color - canvas)


def _grass(canvas: Array, rng: np.random.Generator, horizon: float, color: Color) -> None:
    """Short strokes that lean with the wind, longer towards the viewer."""
    height, width = canvas.shape[1:]
    layer = Image.new("L", (2 * width, 2 * height))
    pen = ImageDraw.Draw(layer)
    count = int(rng.integers(20, 70))
    xs, ys = rng.uniform(0, width, count), rng.uniform(min(horizon + 1, height - 1), height, count)
    lengths = min(height, width) * rng.uniform(0.03, 0.10, count) * (0.4 + ys / height)
    leans = rng.normal(rng.uniform(-0.5, 0.5), 0.3, count)
    strength = rng.integers(90, 230, count)
    for x, y, length, lean, fill in zip(xs, ys, lengths, leans, strength, strict=True):
        pen.line((2 * x, 2 * y, 2 * (x + lean * length), 2 * (y - length)), fill=int(fill), width=max(2, width // 64))
    share = np.asarray(layer.reduce(2), dtype=np.float32) / 255
    canvas += share * (color * np.float32(rng.uniform(0.6, 1.1)) - canvas)
