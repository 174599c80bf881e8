"""The data set `scenes`: images that the package draws itself, kept in memory once drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ipseg.data.dataset import DatasetSplits, Image, Mask, Regions, Saliency, present_classes
from ipseg.data.parallel import parallel_map
from ipseg.data.scenes.objects import class_names
from ipseg.data.scenes.scene import Scene, draw
from ipseg.errors import require_at_least, require_between
from ipseg.saliency.regions import propose_regions

FIRST_VALIDATION = 1_000_000
"""Number of the first validation image, so at most so many are for training: no image is in both."""
LARGEST = 4096
"""Pixels of a side."""


@dataclass(frozen=True, kw_only=True)
class ScenesConfig:
    """Drawn scenes: look-alike pairs of classes on cluttered backgrounds."""

    name: str = "scenes"
    """The data set."""

    classes: int = 12
    """Foreground classes, 2 to 20; the second half are the look-alikes of the first."""

    size: tuple[int, int] = (128, 128)
    """Height and width of an image."""

    train: int = 600
    """Training images."""

    val: int = 120
    """Validation images."""

    seed: int = 0
    """Other seeds draw other images."""

    def __post_init__(self) -> None:
        require_between("data.classes", self.classes, 2, 20)
        for side in self.size:
            require_between("data.size", side, 32, LARGEST)
        require_between("data.train", self.train, 1, FIRST_VALIDATION)
        require_between("data.val", self.val, 1, FIRST_VALIDATION)
        require_at_least("data.seed", self.seed, 0)

    def build(self) -> DatasetSplits:
        """Nothing is drawn before it is asked for."""
        train, val = SceneDataset(self, 0, self.train), SceneDataset(self, FIRST_VALIDATION, self.val)
        return DatasetSplits("scenes", class_names(self.classes), train, val)


class SceneDataset:
    """A range of drawn images. All of them fit in memory: 80 kB each at 128 pixels."""

    def __init__(self, config: ScenesConfig, first: int, count: int) -> None:
        self.names: Sequence[str] = [f"{index:06d}" for index in range(count)]
        self._config, self._first = config, first
        self._scenes: dict[int, Scene] = {}
        self._regions: dict[int, Regions] = {}

    def image(self, index: int) -> Image:
        return self._scene(index).image

    def mask(self, index: int) -> Mask:
        return self._scene(index).mask

    def saliency(self, index: int) -> Saliency:
        """As an imperfect detector finds it."""
        return self._scene(index).saliency

    def regions(self, index: int) -> Regions:
        if index not in self._regions:
            self._regions[index] = propose_regions(self.image(index))
        return self._regions[index]

    def class_presence(self) -> list[frozenset[int]]:
        """Draws all images, on all cores."""
        missing = [index for index in range(len(self.names)) if index not in self._scenes]
        self._scenes |= zip(missing, parallel_map(self._draw, missing, "drawing scenes"), strict=True)
        return [present_classes(self.mask(index)) for index in range(len(self.names))]

    def _scene(self, index: int) -> Scene:
        if index not in self._scenes:
            self._scenes[index] = self._draw(index)
        return self._scenes[index]

    def _draw(self, index: int) -> Scene:
        config = self._config
        return draw(config.seed, self._first + index, config.size, config.classes)
