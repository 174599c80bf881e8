"""COCO's annotations as masks: instances are drawn from polygons and run lengths, panoptic PNGs are looked up."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipseg.data.coco_json import AnnotatedPicture, Region, Stamp, read_annotations
from ipseg.data.filed import as_name
from ipseg.data.pictures import read_colours
from ipseg.data.source import DataError, Mask
from ipseg.errors import UserError
from ipseg.scenario.split import IGNORE

FARTHEST = 1e6
"""Pixels from the picture's corner that a polygon may reach."""
_ONE_AT_A_TIME = threading.Lock()
"""Warnings are switched off and on again for all threads, and several may read masks."""


@dataclass(frozen=True)
class _JsonMasks:
    json: Path
    stamp: Stamp
    """Of the JSON: what was kept of an older one is not taken for this one's, nor is this one's for a later one's."""
    folder: Path
    """Of the files that the masks are asked for by."""
    crowd: str

    def _picture(self, path: Path) -> AnnotatedPicture:
        name = as_name(os.path.relpath(path, self.folder).replace(os.sep, "/"))
        return read_annotations(self.json, opened=self.stamp).pictures[name]

    def _value(self, region: Region) -> int:
        return IGNORE if region.crowd and self.crowd == "ignore" else region.value


@dataclass(frozen=True)
class InstanceMasks(_JsonMasks):
    """Drawn from polygons and run lengths. `path` is the picture's: such masks have no file of their own."""

    def __call__(self, path: Path) -> Mask:
        picture = self._picture(path)
        mask = np.zeros((picture.height, picture.width), dtype=np.uint8)
        with _naming(picture, self.json):
            packed = [(_packed(region.shape, mask.shape), region) for region in picture.regions]
            # Smaller over larger: what is held or worn lies before the one who holds it more often than behind.
            for shape, region in sorted(packed, key=lambda pair: -_area(pair[0])):
                mask[_decoded(shape)] = self._value(region)  # one at a time: aerial pictures have thousands
        return mask


@dataclass(frozen=True)
class PanopticMasks(_JsonMasks):
    """PNGs whose colours are the numbers of segments: red + 256 green + 65536 blue. 0 is no segment."""

    def __call__(self, path: Path) -> Mask:
        numbers = read_colours(path).astype(np.int64) @ np.array([1, 1 << 8, 1 << 16])
        values = {0: 0} | {region.shape: self._value(region) for region in self._picture(path).regions}
        found, inverse = np.unique(numbers, return_inverse=True)
        for number in found:
            if int(number) not in values:
                raise DataError(
                    "unknown_values",
                    f"{path} holds the segment {number}, which {self.json} does not list for it. "
                    "Do the two belong together?",
                )
        return np.array([values[int(number)] for number in found], dtype=np.uint8)[inverse].reshape(numbers.shape)


@contextmanager
def _naming(picture: AnnotatedPicture, json: Path) -> Iterator[None]:
    """Say of which picture a region is that cannot be drawn."""
    try:
        yield
    except UserError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
        raise UserError(f"{json} has a region of {picture.file} that cannot be drawn ({error!r}).") from error


def _packed(given: Any, size: tuple[int, ...]) -> Any:
    """The region as pycocotools packs it, a few bytes.

    Polygons: [[x, y, x, y, ...], ...]. Run lengths: {counts, size}, packed as text or not.
    """
    coding = _pycocotools()
    if not isinstance(given, list):
        return coding.frPyObjects({"size": list(size), "counts": _run_lengths(given, size)}, *size)
    areas = [polygon for polygon in map(_polygon, given) if len(polygon) >= 6]  # two points enclose nothing
    if not areas:
        return coding.frPyObjects({"size": list(size), "counts": [size[0] * size[1]]}, *size)
    return coding.merge(coding.frPyObjects(areas, *size))


def _area(packed: Any) -> int:
    """Its pixels."""
    return int(_pycocotools().area(packed))


def _decoded(packed: Any) -> NDArray[np.bool_]:
    """Where the region is."""
    with _ONE_AT_A_TIME, warnings.catch_warnings():  # pycocotools 2.0.11 meets numpy 2 in a way that will go
        warnings.simplefilter("ignore", DeprecationWarning)
        return np.asarray(_pycocotools().decode(packed), dtype=bool)


def _polygon(given: list[float]) -> list[float]:
    """Checked: pycocotools crashes on points that are very far away, and never ends on ones that are no numbers."""
    if len(given) % 2:
        raise ValueError("a polygon with half a point")
    points = np.asarray(given, dtype=np.float64)
    if points.ndim != 1 or not (np.abs(points) <= FARTHEST).all():  # NaN is not
        raise ValueError("a polygon with a point that is nowhere near the picture")
    return [float(point) for point in points]


def _run_lengths(given: dict[str, Any], size: tuple[int, ...]) -> list[int]:
    """Checked: where they end before the picture does, pycocotools leaves in the rest what the memory held before."""
    if tuple(given["size"]) != size:
        raise ValueError(f"its size is {given['size']}, the picture's {list(size)}")
    counts = _unpacked(given["counts"]) if isinstance(given["counts"], str) else [int(n) for n in given["counts"]]
    if min(counts, default=0) < 0 or sum(counts) != size[0] * size[1]:
        raise ValueError(f"its run lengths make {sum(counts)} pixels, the picture has {size[0] * size[1]}")
    return counts


def _unpacked(text: str) -> list[int]:
    """The numbers in COCO's text: five bits a letter, the sixth says that more follow.

    From the fourth on, a number is the difference to the last but one.

    >>> _unpacked("52223")
    [5, 2, 2, 4, 5]
    """
    counts: list[int] = []
    number = shift = 0
    for letter in text:
        bits = ord(letter) - 48
        number |= (bits & 0x1F) << shift
        shift += 5
        if bits & 0x20:
            continue
        if bits & 0x10:
            number -= 1 << shift  # the highest bit is the sign
        counts.append(number + (counts[-2] if len(counts) > 2 else 0))
        number = shift = 0
    return counts


def _pycocotools() -> Any:
    try:
        from pycocotools import mask
    except ImportError as error:
        raise UserError(
            "polygons and run lengths need pycocotools: pip install 'ipseg[coco]'. (Panoptic annotations do not.)"
        ) from error
    return mask
