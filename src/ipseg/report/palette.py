"""One colour for each class, the same in every picture, plot and page: black background, light grey for ignored."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ipseg.errors import UserError

IGNORE = 255
"""The label of pixels that count for nothing."""

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]

_SAFE = ("56b4e9", "e69f00", "009e73", "f0e442", "cc79a7", "d55e00", "0072b2")  # Okabe and Ito's safe set
_FITTING = ("882255", "b5ec8a", "7b5cff", "8a6a3a", "ff3b6b", "3b2c9a")  # fit to it by hand, same measure as below
_IGNORED = "d2d2d2"
_WEIGHTS = np.array([[0.5], [1], [1]])

# How linear RGB looks without the medium and without the long cones (Machado, Oliveira and Fernandes, 2009).
_DEUTERANOPIA = ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881))
_PROTANOPIA = ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998))
_XYZ_D65 = ((0.433953, 0.376219, 0.189828), (0.212671, 0.715160, 0.072169), (0.017758, 0.109477, 0.872765))


def colours(n: int) -> Bytes:
    """The colours of labels 0 to n - 1 as (n, 3): a class keeps its colour however many others there are.

    >>> colours(2).tolist()
    [[0, 0, 0], [86, 180, 233]]
    """
    if not 0 <= n <= 256:
        raise UserError(f"a palette holds 0 to 256 colours, not {n}.")
    return _palette()[:n].copy()


def as_hex(colour: Bytes) -> str:
    """A colour as CSS writes it.

    >>> as_hex(colours(2)[1])
    '#56b4e9'
    """
    return "#" + bytes(colour).hex()


def as_labels(labels: NDArray[np.integer]) -> Bytes:
    """The label map as bytes; an error where it is none."""
    if labels.ndim != 2 or not np.issubdtype(labels.dtype, np.integer):
        raise UserError(f"a label map is (height, width) whole numbers, not {labels.shape} of {labels.dtype}.")
    if labels.size and not (labels.min() >= 0 and labels.max() <= 255):
        raise UserError(f"labels run from 0 to 255; this map holds {labels.min()} to {labels.max()}.")
    return labels.astype(np.uint8)


def indexed_image(labels: NDArray[np.integer]) -> Image.Image:
    """The label map as a picture: a viewer shows colours, a program reads the labels back."""
    picture = Image.fromarray(as_labels(labels))
    picture.putpalette(_palette().tobytes())
    return picture


@cache
def _palette() -> Bytes:
    """All 256 colours. After the first ones, always the candidate that is farthest from all chosen before."""
    chosen = [bytes.fromhex(colour) for colour in ("000000", _IGNORED, *_SAFE, *_FITTING)]
    candidates = _candidates()
    views = _views(candidates)
    nearest = np.full(len(candidates), np.inf)
    for colour in chosen:
        nearest = np.minimum(nearest, _distance(views, _views(np.frombuffer(colour, np.uint8)[None])))
    while len(chosen) < 256:
        best = int(np.argmax(nearest.round(3)))  # rounded: the same choice on every machine
        chosen.append(candidates[best].tobytes())
        nearest = np.minimum(nearest, _distance(views, views[:, best : best + 1]))
    background, ignored, *classes = chosen
    return np.frombuffer(b"".join([background, *classes, ignored]), np.uint8).reshape(256, 3)


def _candidates() -> Bytes:
    """A grid over RGB without what is too dark, too pale or too grey to be seen on a photograph."""
    levels = np.linspace(0, 255, 18).round().astype(np.uint8)
    grid = np.stack(np.meshgrid(levels, levels, levels, indexing="ij"), axis=-1).reshape(-1, 3)
    lightness, *ab = _lab(_linear(grid)).T
    seen: Bytes = grid[(lightness > 30) & (lightness < 92) & (np.hypot(*ab) > 22)]
    return seen


def _views(rgb: Bytes) -> Floats:
    """(3, n, 3): the colours in Lab as most people see them, then with the two common colour blindnesses."""
    linear = _linear(rgb)
    blind = [np.clip(linear @ np.array(matrix).T, 0, 1) for matrix in (_DEUTERANOPIA, _PROTANOPIA)]
    return np.stack([_lab(view) for view in (linear, *blind)])


def _distance(views: Floats, other: Floats) -> Floats:
    """How far each colour is from the other one, for the viewer who has it hardest.

    Most people's view counts half: in equal parts, the narrow range of the colour-blind would crowd out all hues.
    """
    apart: Floats = (np.linalg.norm(views - other, axis=-1) * _WEIGHTS).min(axis=0)
    return apart


def _linear(rgb: Bytes) -> Floats:
    value = rgb / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def _lab(linear: Floats) -> Floats:
    xyz = linear @ np.array(_XYZ_D65).T  # relative to white, so white is (1, 1, 1)
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116).T
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1)
