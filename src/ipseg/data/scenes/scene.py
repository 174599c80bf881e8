"""One drawn scene: a background, clutter, objects of the classes, a camera, and a saliency detector that errs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter

from ipseg.data.scenes.backgrounds import background
from ipseg.data.scenes.clutter import HANGING, STANDING
from ipseg.data.scenes.objects import KINDS, PAIRS, kinds_of
from ipseg.data.scenes.rendering import Palette, Size, Sprite, cast_shadow, choose, photograph, render, smooth_noise
from ipseg.data.scenes.shapes import posed

Place = tuple[slice, slice]
"""Rows and columns."""

HOW_MANY_KINDS = (0.637, 0.273, 0.073, 0.013, 0.004)
"""Probabilities of one to five classes in an image: those of Pascal VOC's 10,582 training photographs."""
HOW_MANY_MORE = (0.7, 0.17, 0.08, 0.05)
"""Probabilities of none to three further objects of the same classes: cows stand beside cows."""
EXTENTS = ((0.4, 0.8), (0.32, 0.66), (0.28, 0.56), (0.25, 0.48), (0.22, 0.44))
"""Smallest and largest extent of one to five objects, of the shorter side: a single object is taken close up."""
VISIBLE = 0.35
"""Every object keeps at least this share of itself in sight,"""
INSIDE = 0.80
"""and starts with at least this share within the image."""
MISSED = 0.15
"""The share of objects that the saliency detector misses."""
MISLED = 0.25
"""The share of images in which it takes clutter for an object."""


class Scene(NamedTuple):
    """An image and its annotation."""

    image: npt.NDArray[np.uint8]
    mask: npt.NDArray[np.uint8]
    """0 is background, i + 1 is class i."""
    saliency: npt.NDArray[np.bool_]
    """Foreground, as an imperfect detector finds it."""


def draw(seed: int, index: int, size: Size, classes: int) -> Scene:
    """Draw image number `index` of the data set `seed`, (height, width) large. Same arguments, same pixels."""
    rng = np.random.default_rng([seed, index, *size, classes])
    stage = Stage(rng, size)
    stage.scatter_clutter()
    stage.place_objects(classes)
    mask = np.zeros(size, np.uint8)
    for owner, kind in stage.objects.items():
        mask[stage.owner == owner] = kind + 1 if kind < classes else 0
    saliency = _detect(stage.owner, list(stage.objects), stage.clutter, rng)
    return Scene(photograph(stage.canvas, rng), mask, saliency)


class Stage:
    """A scene in the making: the canvas, and the owner of each of its pixels."""

    def __init__(self, rng: np.random.Generator, size: Size) -> None:
        self.rng, self.size, self.short = rng, size, min(size)
        self.palette = Palette(rng)
        self.light = float(rng.uniform(-0.85, -0.15) * np.pi)  # from above, from either side
        self.canvas, self.horizon = background(rng, size, self.palette)
        self.owner = np.zeros(size, np.int16)  # 0 is nobody
        self.clutter: list[int] = []
        self.objects: dict[int, int] = {}  # owner -> kind
        self.areas: dict[int, int] = {}

    def scatter_clutter(self) -> None:
        """Put two to seven things of no class anywhere, the nearer ones over the farther ones."""
        count = int(self.rng.integers(2, 8))
        for bottom in np.sort(self.rng.uniform(0.05, 1.1, count)) * self.size[0]:
            standing = bottom > self.horizon
            family = STANDING if standing else HANGING
            shape = posed(family[self.rng.integers(len(family))](self.rng), self.rng, tilt=30.0 if standing else 6.0)
            extent = self.short * self.rng.uniform(0.08, 0.28)
            sprite = render(shape, extent, self.palette, self.light, self.rng)
            left = self.rng.uniform(-0.3, 0.9) * self.size[1]
            self.clutter.append(self._put(sprite, round(bottom) - sprite.alpha.shape[0], round(left), standing))

    def place_objects(self, classes: int) -> None:
        """Put one to five objects, at least one of a class, the nearer ones over the farther ones."""
        kinds = kinds_of(classes)
        cast = self._cast(classes, len(kinds))
        for number, height in zip(cast, np.sort(self.rng.uniform(0.0, 1.0, len(cast))), strict=True):
            shape = posed(kinds[number](self.rng), self.rng)
            extent = self.short * self.rng.uniform(*EXTENTS[len(cast) - 1])
            palette = self.palette.of_pair(KINDS.index(kinds[number]) % PAIRS, self.rng)
            sprite = render(shape, extent, palette, self.light, self.rng)
            place = self._find_place(sprite, float(height))
            if place is not None:
                owner = self._put(sprite, *place, standing=True)
                self.objects[owner] = number
                self.areas[owner] = int(sprite.solid.sum())

    def _cast(self, classes: int, kinds: int) -> list[int]:
        """The kinds of objects to place: one of a class, perhaps others, and more of the same."""
        first = int(self.rng.integers(classes))
        others = [kind for kind in self.rng.permutation(kinds).tolist() if kind != first]
        shown = [first, *others][: choose(self.rng, range(1, len(EXTENTS) + 1), HOW_MANY_KINDS)]
        more = self.rng.choice(shown, choose(self.rng, range(4), HOW_MANY_MORE))
        cast: list[int] = self.rng.permutation([*shown, *more][: len(EXTENTS)]).tolist()
        return cast

    def _find_place(self, sprite: Sprite, height: float) -> tuple[int, int] | None:
        """A corner (top, left) where the sprite is inside enough and hides no earlier object too much, or None."""
        tall, wide = sprite.alpha.shape
        for _ in range(12):
            slack = self.rng.uniform(-0.18, 0.18, 2)  # of the sprite's own size, over the image's edge
            top = round(height * (self.size[0] - tall) + slack[0] * tall)
            left = round(self.rng.uniform() * (self.size[1] - wide) + slack[1] * wide)
            if self._fits(sprite, top, left):
                return top, left
            height = self.rng.uniform()
        return None

    def _fits(self, sprite: Sprite, top: int, left: int) -> bool:
        window, part = _overlap((top, left), sprite.solid.shape, self.size)
        solid = sprite.solid[part]
        if solid.sum() < INSIDE * sprite.solid.sum():
            return False
        hidden = np.bincount(self.owner[window][solid], minlength=int(self.owner.max()) + 1)
        return all((self.owner == one).sum() - hidden[one] >= VISIBLE * area for one, area in self.areas.items())

    def _put(self, sprite: Sprite, top: int, left: int, standing: bool) -> int:
        """Paint the sprite and its shadow; returns its number, which owns its pixels."""
        tall, wide = sprite.alpha.shape
        if standing:
            cast_shadow(self.canvas, top + tall - 1.0, left + wide / 2, wide * 0.5, self.light)
        window, part = _overlap((top, left), (tall, wide), self.size)
        patch = self.canvas[:, *window]
        patch += sprite.alpha[part] * (sprite.color[:, *part] - patch)
        number = len(self.clutter) + len(self.objects) + 1
        self.owner[window][sprite.solid[part]] = number
        return number


def _overlap(corner: tuple[int, int], sprite: Size, canvas: Size) -> tuple[Place, Place]:
    """The part of the canvas that a sprite at a corner (top, left), perhaps outside, covers; and that of the sprite."""
    (top, left), (height, width) = corner, canvas
    first, last = (min(max(row, 0), height) for row in (top, top + sprite[0]))
    start, end = (min(max(column, 0), width) for column in (left, left + sprite[1]))
    return np.s_[first:last, start:end], np.s_[first - top : last - top, start - left : end - left]


def _detect(
    owner: npt.NDArray[np.int16], objects: Sequence[int], clutter: Sequence[int], rng: np.random.Generator
) -> npt.NDArray[np.bool_]:
    """Saliency: objects may be missed, clutter taken for one; corners are soft, and edges wander."""
    noticed = [one for one in objects if rng.uniform() >= MISSED]
    if clutter and rng.uniform() < MISLED:
        noticed += rng.permutation(np.asarray(clutter))[: int(rng.integers(1, 3))].tolist()
    reach = min(owner.shape) / 128  # errors grow with the image, as those of a detector with a fixed input size do
    found = Image.fromarray(np.isin(owner, noticed).astype(np.uint8) * 255)
    blurred = found.filter(ImageFilter.GaussianBlur(rng.uniform(0.9, 2.0) * reach))
    edge = 0.5 + rng.uniform(-0.3, 0.12) + 0.14 * smooth_noise(rng, owner.shape, max(9 * reach, 2.0))
    return np.asarray(np.asarray(blurred, dtype=np.float32) / 255 > np.clip(edge, 0.08, 0.92))
