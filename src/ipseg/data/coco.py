"""COCO: annotations as instances (polygons and run lengths) or panoptic, any pictures that are annotated that way."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar
from unicodedata import normalize

import numpy as np

from ipseg.config import scoped
from ipseg.data.dataset import DataError, DatasetSplits, Mask
from ipseg.data.file_dataset import (
    FileDataset,
    Files,
    as_name,
    checked_names,
    require_complete,
    require_exists,
    require_inside,
)
from ipseg.data.image_io import read_colors
from ipseg.data.saliency_source import SaliencySetting, SaliencySource
from ipseg.errors import UserError
from ipseg.files import read_plain
from ipseg.scenario.split import BACKGROUND, IGNORE, MAX_CLASSES, is_background

TREE = """\
    PATH/
      train2017/, val2017/                     the pictures (data.train_images, data.val_images)
      annotations/instances_train2017.json     polygons and run lengths (data.train), or panoptic_train2017.json
      annotations/instances_val2017.json       (data.val)
      annotations/panoptic_train2017/          with panoptic JSON: its PNGs, in the folder of the JSON's name
      saliency_map/train2017/                  NAME.png, not zero where something stands out (optional)"""


@dataclass(frozen=True, kw_only=True)
class CocoConfig(SaliencySetting):
    """COCO annotations: instances or panoptic. Polygons and run lengths need the extra `coco`."""

    path: str = scoped(MISSING, "place")
    """The folder that the others are in."""

    name: str = "coco"
    """The data set."""

    train: str = "annotations/instances_train2017.json"
    """Annotations of the training pictures."""

    val: str = "annotations/instances_val2017.json"
    """Annotations of the validation pictures."""

    train_images: str = "train2017"
    """Folder of the training pictures."""

    val_images: str = "val2017"
    """Folder of the validation pictures."""

    crowd: Literal["label", "ignore"] = "label"
    """Regions marked as crowds. label: of their class, as any other. ignore: neither trained on nor counted."""

    def build(self) -> DatasetSplits:
        """The data set, every file in its place. Pixels are read when they are needed."""
        return require_complete(self.open(), TREE)

    def open(self) -> DatasetSplits:
        """The same with pictures missing: annotations alone tell which classes are where."""
        root = Path(self.path).expanduser()
        require_exists(root, f" Expected:\n{TREE}")
        train, classes = self._split(root, self.train, self.train_images)
        val, others = self._split(root, self.val, self.val_images)
        if classes != others:
            differ = sorted(set(classes) ^ set(others))
            raise UserError(
                f"data.train and data.val of {root} have different categories"
                f"{': ' + ', '.join(differ[:5]) if differ else ' (in another order)'}; they must be the same."
            )
        return DatasetSplits(self.name, classes, train, val)

    def _split(self, root: Path, json: str, folder: str) -> tuple[FileDataset, tuple[str, ...]]:
        path = root / json
        require_inside(path, root)
        annotations = read_annotations(path, TREE)
        names = checked_names(list(annotations.pictures), str(path), TREE)
        images, maps = (
            Files.below(root / folder, root),
            SaliencySource.chosen(self.saliency, root, "saliency_map", folder),
        )
        if annotations.panoptic:
            masks = Files.below(path.with_suffix(""), root, (".png",))
        else:  # drawn from the JSON: the image's path says which
            paths = {name: images.folder / image.file for name, image in annotations.pictures.items()}
            masks = Files(images.folder, (), paths)
        reader = CocoMasks(path, annotations.stamp, masks.folder, self.crowd)
        split = FileDataset(
            names, annotations.classes, images=images, masks=masks, read_mask=reader, saliency_source=maps
        )
        return split, annotations.classes


T = TypeVar("T")

Stamp = tuple[int, int]
"""Another file under the same name has another: its time of change and its size."""

MOST_BYTES = 1 << 32
"""COCO's own largest file has half a gigabyte."""
MOST_PIXELS = 178_956_970  # Pillow reads no larger image
FARTHEST = 1e6
"""Pixels from the image's corner that a polygon may reach."""


@dataclass(frozen=True)
class Region:
    """One annotated instance or segment."""

    value: int
    """Its class's mask value."""
    crowd: bool
    shape: Any
    """Instances: polygons or run lengths. Panoptic: the number of its color."""


@dataclass(frozen=True)
class AnnotatedImage:
    """An image and its regions."""

    file: str
    height: int
    width: int
    regions: list[Region] = field(default_factory=list)


@dataclass(frozen=True)
class Annotations:
    """All of a file."""

    classes: tuple[str, ...]
    """In the order of their numbers; the first has mask value 1."""
    pictures: Mapping[str, AnnotatedImage]
    panoptic: bool
    stamp: Stamp
    """Of the file when it was read."""


def read_annotations(path: Path, tree: str = "", opened: Stamp | None = None) -> Annotations:
    """Read a file, once a process as long as it stays the same: big ones take many seconds.

    opened: its stamp when the data was opened. What its numbers stand for may be something else in another file.
    """
    try:
        found = path.stat()
        stamp = found.st_mtime_ns, found.st_size
        if opened is not None and stamp != opened:
            raise UserError(f"{path} has changed since the data was opened. Start the command again.")
        return _read(path, stamp)
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing. Expected:\n{tree}") from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise UserError(f"{path} is not a readable JSON file ({error}).") from error
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"{path} is not what COCO calls annotations ({error!r}). It must hold categories (id, name), images "
            "(id, file_name, height, width) and annotations (image_id, category_id, segmentation; or segments_info)."
        ) from error


@lru_cache(maxsize=4)
def _read(path: Path, stamp: Stamp) -> Annotations:
    data = json.loads(read_plain(path, MOST_BYTES))
    values, classes = _categories(path, data["categories"])
    by_id: dict[Any, AnnotatedImage] = {}
    pictures: dict[str, AnnotatedImage] = {}
    for image in data["images"]:
        picture = AnnotatedImage(str(image["file_name"]), int(image["height"]), int(image["width"]))
        if min(picture.height, picture.width) < 1 or picture.height * picture.width > MOST_PIXELS:
            raise UserError(f"{path} says that {picture.file} has {picture.width} x {picture.height} pixels.")
        name = as_name(picture.file)
        if name in pictures or image["id"] in by_id:
            raise UserError(f"{path} lists the picture {picture.file} or its id {image['id']} twice.")
        pictures[name] = by_id[image["id"]] = picture
    panoptic = any("segments_info" in one for one in data["annotations"])
    for one in data["annotations"]:
        picture = _look_up(path, "image_id", one["image_id"], by_id)
        for part in one["segments_info"] if panoptic else [one]:
            value = _look_up(path, "category_id", _number(part["category_id"]), values)
            shape = int(part["id"]) if panoptic else part["segmentation"]
            picture.regions.append(Region(value, bool(int(part.get("iscrowd") or 0)), shape))
    return Annotations(classes, pictures, panoptic, stamp)


def _categories(path: Path, listed: list[dict[str, Any]]) -> tuple[dict[int, int], tuple[str, ...]]:
    """Mask values by category number, and the names; in the order of the numbers."""
    for one in listed:
        if not isinstance(one["name"], str) or len(one["name"].strip().splitlines()) != 1:
            raise UserError(f"{path}: category {one['id']} is called {one['name']!r}; a name is one line of text.")
        if is_background(one["name"].strip()):
            raise UserError(
                f'{path}: category {one["id"]} is called "{one["name"]}". Take it out, with its annotations: '
                f"{BACKGROUND} is what nothing covers, without being named."
            )
    ordered = sorted(listed, key=lambda one: int(one["id"]))
    names = {int(one["id"]): normalize("NFC", one["name"].strip()) for one in ordered}
    classes = tuple(names.values())
    if not 1 <= len(classes) <= MAX_CLASSES or len(set(classes)) != len(listed):
        raise UserError(
            f"{path} must have 1 to {MAX_CLASSES} different categories, none called {BACKGROUND}; "
            f"it has {len(listed)}. A mask's byte has no room for more."
        )
    return {number: value for value, number in enumerate(names, start=1)}, classes


def _number(given: Any) -> Any:
    """Of a category; some tools write it in quotes, in one place or in both."""
    return int(given) if isinstance(given, str) else given


def _look_up(path: Path, key: str, number: Any, known: Mapping[Any, T]) -> T:
    if number not in known:
        raise UserError(f"{path} has an annotation with {key} {number!r}, which is not listed in it.")
    return known[number]


@dataclass(frozen=True)
class CocoMasks:
    """Reads masks: `path` is a panoptic PNG, or of instances, whose masks have no file of their own, the image."""

    json: Path
    stamp: Stamp
    """Of the JSON: what was kept of an older one is not taken for this one's, nor is this one's for a later one's."""
    folder: Path
    """Of the files that the masks are asked for by."""
    crowd: str

    def __call__(self, path: Path) -> Mask:
        annotations = read_annotations(self.json, opened=self.stamp)
        image = annotations.pictures[as_name(os.path.relpath(path, self.folder).replace(os.sep, "/"))]
        return self._panoptic(path, image) if annotations.panoptic else self._instances(image)

    def _instances(self, image: AnnotatedImage) -> Mask:
        mask, coding = np.zeros((image.height, image.width), dtype=np.uint8), _pycocotools()
        try:
            encoded = [(_encoded(coding, region.shape, mask.shape), region) for region in image.regions]
            # Smaller over larger: what is held or worn lies before the one who holds it more often than behind.
            for shape, region in sorted(encoded, key=lambda pair: -int(coding.area(pair[0]))):
                # decoded one at a time: aerial images have thousands
                mask[np.asarray(coding.decode(shape), dtype=bool)] = self._value(region)
        except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
            raise UserError(f"{self.json} has a region of {image.file} that cannot be drawn ({error!r}).") from error
        return mask

    def _panoptic(self, path: Path, image: AnnotatedImage) -> Mask:
        """Colors are the numbers of segments: red + 256 green + 65536 blue. 0 is no segment."""
        numbers = read_colors(path).astype(np.int64) @ np.array([1, 1 << 8, 1 << 16])
        values = {0: 0} | {region.shape: self._value(region) for region in image.regions}
        found, inverse = np.unique(numbers, return_inverse=True)
        for number in found.tolist():
            if number not in values:
                raise DataError(
                    "unknown_values",
                    f"{path} holds the segment {number}, which {self.json} does not list for it. "
                    "Do the two belong together?",
                )
        return np.array([values[number] for number in found.tolist()], dtype=np.uint8)[inverse].reshape(numbers.shape)

    def _value(self, region: Region) -> int:
        return IGNORE if region.crowd and self.crowd == "ignore" else region.value


def _encoded(coding: Any, given: Any, size: tuple[int, ...]) -> Any:
    """The region as pycocotools' run lengths, a few bytes, checked before its C code sees it.

    Polygons: [[x, y, x, y, ...], ...]. Points that are very far away crash it, and it never ends on ones that are no
    numbers. Run lengths: {counts, size}, as numbers or text. Where they end before the image does, it leaves in the
    rest of the mask what the memory held before.
    """
    if isinstance(given, list):
        for polygon in given:
            points = np.asarray(polygon, dtype=np.float64)
            if len(polygon) % 2:
                raise ValueError("a polygon with half a point")
            if points.ndim != 1 or not (np.abs(points) <= FARTHEST).all():  # NaN is not
                raise ValueError("a polygon with a point that is nowhere near the picture")
        areas = [[float(number) for number in polygon] for polygon in given if len(polygon) >= 6]
        if areas:  # two points enclose nothing
            return coding.merge(coding.frPyObjects(areas, *size))
        counts = [size[0] * size[1]]
    else:
        if tuple(given["size"]) != size:
            raise ValueError(f"its size is {given['size']}, the picture's {list(size)}")
        counts = _unpacked(given["counts"]) if isinstance(given["counts"], str) else [int(n) for n in given["counts"]]
        if min(counts, default=0) < 0 or sum(counts) != size[0] * size[1]:
            raise ValueError(f"its run lengths make {sum(counts)} pixels, the picture has {size[0] * size[1]}")
    return coding.frPyObjects({"size": list(size), "counts": counts}, *size)


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
