"""One drawn scene: an empty place, clutter, objects of the classes, and the camera that sees them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ipseg.data.scenes.background import background
from ipseg.data.scenes.classes import world
from ipseg.data.scenes.clutter import HANGING, STANDING
from ipseg.data.scenes.figure import posed
from ipseg.data.scenes.paint import Sprite, Window, cast_shadow, develop, paint, put
from ipseg.data.scenes.saliency import saliency
from ipseg.data.scenes.texture import Palette, choose
from ipseg.errors import require_at_least

SMALLEST = 32
HOW_MANY_KINDS = (0.637, 0.273, 0.073, 0.013, 0.004)
"""Chances of one to five classes in a picture: those of Pascal VOC's 10,582 training photographs."""
HOW_MANY_MORE = (0.7, 0.17, 0.08, 0.05)
"""Chances of none to three further objects of the same classes: cows stand beside cows."""
MOST = 5
EXTENTS = {1: (0.4, 0.8), 2: (0.32, 0.66), 3: (0.28, 0.56), 4: (0.25, 0.48), 5: (0.22, 0.44)}
"""Number of objects -> smallest and largest extent, of the shorter side: what stands alone is taken close up."""
VISIBLE = 0.35  # every object keeps at least this share of itself in sight
INSIDE = 0.80  # and starts with at least this share within the picture


@dataclass(frozen=True)
class Scene:
    """A picture and what is known about it."""

    image: npt.NDArray[np.uint8]
    """(height, width, 3)."""
    mask: npt.NDArray[np.uint8]
    """(height, width): 0 is background, i + 1 is class i."""
    saliency: npt.NDArray[np.bool_]
    """(height, width): what an imperfect detector takes for foreground."""


def draw(seed: int, index: int, size: tuple[int, int], classes: int) -> Scene:
    """Draw picture number `index` of the data set `seed`, (height, width) large. Same arguments, same picture."""
    require_at_least("data.seed", seed, 0)
    require_at_least("data.size", min(size), SMALLEST)
    rng = np.random.default_rng([seed, index, *size, classes])
    stage = Stage(rng, size)
    stage.scatter_clutter()
    stage.place_objects(classes)
    mask = np.zeros(size, np.uint8)
    for owner, kind in stage.objects.items():
        mask[stage.owner == owner] = kind + 1 if kind < classes else 0
    seen = saliency(stage.owner, list(stage.objects), stage.clutter, rng)
    return Scene(develop(stage.canvas, rng), mask, seen)


class Stage:
    """A picture in the making: the canvas, and who owns each of its pixels."""

    def __init__(self, rng: np.random.Generator, size: tuple[int, int]) -> None:
        self.rng, self.size, self.short = rng, size, min(size)
        self.palette = Palette(rng)
        self.light = float(rng.uniform(-0.85, -0.15) * np.pi)  # from above, from either side
        self.canvas, self.horizon = background(rng, size, self.palette)
        self.owner = np.zeros(size, np.int16)  # 0 is nobody
        self.clutter: list[int] = []
        self.objects: dict[int, int] = {}
        self.areas: dict[int, int] = {}

    def scatter_clutter(self) -> None:
        """Put some things of no class anywhere, the nearer ones over the farther ones."""
        count = int(self.rng.integers(2, 8))
        for bottom in np.sort(self.rng.uniform(0.05, 1.1, count)) * self.size[0]:
            standing = bottom > self.horizon
            family = STANDING if standing else HANGING
            figure = posed(family[self.rng.integers(len(family))](self.rng), self.rng, tilt=30.0 if standing else 6.0)
            extent = self.short * self.rng.uniform(0.08, 0.28)
            sprite = paint(figure, extent, self.palette, self.light, self.rng)
            left = self.rng.uniform(-0.3, 0.9) * self.size[1]
            self.clutter.append(self._lay(sprite, round(bottom) - sprite.alpha.shape[0], round(left), standing))

    def place_objects(self, classes: int) -> None:
        """Put one to five objects, at least one of a class, the nearer ones over the farther ones."""
        kinds = world(classes)
        cast = self._cast(classes, len(kinds))
        for number, height in zip(cast, np.sort(self.rng.uniform(0.0, 1.0, len(cast))), strict=True):
            figure = posed(kinds[number].sketch(self.rng), self.rng)
            extent = self.short * self.rng.uniform(*EXTENTS[len(cast)])
            palette = self.palette.of_pair(kinds[number].pair, self.rng)
            sprite = paint(figure, extent, palette, self.light, self.rng)
            place = self._find_place(sprite, float(height))
            if place is not None:
                owner = self._lay(sprite, *place, standing=True)
                self.objects[owner] = number
                self.areas[owner] = int(sprite.solid.sum())

    def _cast(self, classes: int, kinds: int) -> list[int]:
        """Who is in the picture, in any order: one of a class, perhaps others of the world and more of the same."""
        first = int(self.rng.integers(classes))
        others = [kind for kind in self.rng.permutation(kinds).tolist() if kind != first]
        shown = [first, *others][: choose(self.rng, range(1, MOST + 1), HOW_MANY_KINDS)]
        more = self.rng.choice(shown, choose(self.rng, range(4), HOW_MANY_MORE))
        cast: list[int] = self.rng.permutation([*shown, *more][:MOST]).tolist()
        return cast

    def _find_place(self, sprite: Sprite, height: float) -> tuple[int, int] | None:
        """A corner (top, left) where the sprite is inside enough and hides no earlier object too much, or None."""
        tall, wide = sprite.alpha.shape
        for _ in range(12):
            slack = self.rng.uniform(-0.18, 0.18, 2)  # of the sprite's own size, over the picture's edge
            top = round(height * (self.size[0] - tall) + slack[0] * tall)
            left = round(self.rng.uniform() * (self.size[1] - wide) + slack[1] * wide)
            if self._fits(sprite, top, left):
                return top, left
            height = self.rng.uniform()
        return None

    def _fits(self, sprite: Sprite, top: int, left: int) -> bool:
        window = Window.at(top, left, sprite.alpha.shape, self.size)
        solid = sprite.solid
        if solid[window.sprite].sum() < INSIDE * solid.sum():
            return False
        hidden = np.bincount(self.owner[window.canvas][solid[window.sprite]], minlength=int(self.owner.max()) + 1)
        return all(
            np.count_nonzero(self.owner == one) - hidden[one] >= VISIBLE * self.areas[one] for one in self.objects
        )

    def _lay(self, sprite: Sprite, top: int, left: int, standing: bool) -> int:
        """Paint the sprite and its shadow, and give it its pixels; returns its number."""
        window = Window.at(top, left, sprite.alpha.shape, self.size)
        tall, wide = sprite.alpha.shape
        if standing:
            cast_shadow(self.canvas, top + tall - 1.0, left + wide / 2, wide * 0.5, self.light)
        put(self.canvas, sprite, window)
        number = len(self.clutter) + len(self.objects) + 1
        self.owner[window.canvas][sprite.solid[window.sprite]] = number
        return number
