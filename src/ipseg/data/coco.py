"""COCO: annotations as instances (polygons and run lengths, drawn by pycocotools) or panoptic (PNGs, looked up)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar
from unicodedata import normalize

import numpy as np

from ipseg.data.dataset import DataError, DatasetSplits, Mask
from ipseg.data.file_dataset import FileDataConfig, FileDataset
from ipseg.data.file_tree import Files, LayoutError, normalize_name, require_folders, require_inside, require_names
from ipseg.data.image_io import read_colors
from ipseg.data.saliency_source import SaliencySource
from ipseg.errors import UserError
from ipseg.files import read_plain
from ipseg.parsing import require_text
from ipseg.scenario import BACKGROUND, IGNORE, MAX_CLASSES, is_background

T = TypeVar("T")

Stamp = tuple[int, int]
"""A file's time of change and its size."""

MAX_BYTES = 1 << 32
"""COCO's own largest file has half a gigabyte."""
MAX_PIXELS = 178_956_970  # Pillow reads no larger image
MAX_COORDINATE = 1e6
"""Pixels from the image's corner that a polygon may reach."""


@dataclass(frozen=True, kw_only=True)
class CocoConfig(FileDataConfig):
    """COCO annotations: instances or panoptic. Polygons and run lengths need the extra `coco`."""

    tree: ClassVar[str] = """\
    PATH/
      train2017/, val2017/                     the images (data.train_images, data.val_images)
      annotations/instances_train2017.json     polygons and run lengths (data.train), or panoptic_train2017.json
      annotations/instances_val2017.json       (data.val)
      annotations/panoptic_train2017/          with panoptic JSON: its PNGs, in the folder of the JSON's name
      saliency_map/train2017/                  NAME.png, not zero where something is salient (optional)"""

    name: str = "coco"
    """The data set."""

    train: str = "annotations/instances_train2017.json"
    """Annotations of the training images."""

    val: str = "annotations/instances_val2017.json"
    """Annotations of the validation images."""

    train_images: str = "train2017"
    """Folder of the training images."""

    val_images: str = "val2017"
    """Folder of the validation images."""

    crowd: Literal["label", "ignore"] = "label"
    """Regions marked as crowds. label: of their class, as any other. ignore: neither trained on nor counted."""

    def _open(self) -> DatasetSplits:
        require_folders(self.root)
        train, classes = self._split(self.train, self.train_images)
        val, val_classes = self._split(self.val, self.val_images)
        if classes != val_classes:
            differ = sorted(set(classes) ^ set(val_classes))
            raise UserError(
                f"data.train and data.val of {self.root} have different categories"
                f"{': ' + ', '.join(differ[:5]) if differ else ' (in another order)'}; they must be the same."
            )
        return DatasetSplits(self.name, classes, train, val)

    def _split(self, json_file: str, folder: str) -> tuple[FileDataset, tuple[str, ...]]:
        root, path = self.root, self.root / json_file
        require_inside(path, root)
        annotations = read_annotations(path)
        images = Files.below(root / folder, root)
        if annotations.panoptic:
            masks = Files.below(path.with_suffix(""), root, (".png",))
        else:  # drawn from the JSON: the image's path says which
            paths = {name: images.folder / image.file for name, image in annotations.images.items()}
            masks = Files(images.folder, (), paths)
        dataset = FileDataset(
            require_names(list(annotations.images), path),
            images,
            masks,
            CocoMasks(path, annotations.stamp, masks.folder, self.crowd),
            SaliencySource.choose(self.saliency, root, "saliency_map", folder),
            self.region_maps(folder),
        )
        return dataset, annotations.classes


# ---- the JSON file --------------------------------------------------------------------------------------------------


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
    images: Mapping[str, AnnotatedImage]
    panoptic: bool
    stamp: Stamp
    """Of the file when it was read."""


def read_annotations(path: Path, opened: Stamp | None = None) -> Annotations:
    """Read a file, once a process as long as it stays the same: big ones take many seconds.

    opened: its stamp when the data was opened. In another file the same numbers may stand for something else.
    """
    try:
        found = path.stat()
        stamp = found.st_mtime_ns, found.st_size
        if opened is not None and stamp != opened:
            raise UserError(f"{path} has changed since the data was opened. Start the command again.")
        return _read(path, stamp)
    except UserError:
        raise
    except FileNotFoundError as error:
        raise LayoutError(f"{path} is missing.") from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise UserError(f"{path} is not a readable JSON file ({error}).") from error
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UserError(
            f"{path} is not what COCO calls annotations ({error!r}). It must hold categories (id, name), images "
            "(id, file_name, height, width) and annotations (image_id, category_id, segmentation; or segments_info)."
        ) from error


@lru_cache(maxsize=4)
def _read(path: Path, stamp: Stamp) -> Annotations:
    data = json.loads(read_plain(path, MAX_BYTES))
    values, classes = _read_categories(path, data["categories"])
    by_id: dict[Any, AnnotatedImage] = {}
    images: dict[str, AnnotatedImage] = {}
    for listed in data["images"]:
        image = AnnotatedImage(str(listed["file_name"]), int(listed["height"]), int(listed["width"]))
        if min(image.height, image.width) < 1 or image.height * image.width > MAX_PIXELS:
            raise UserError(f"{path} says that {image.file} has {image.width} x {image.height} pixels.")
        name = normalize_name(image.file)
        if name in images or listed["id"] in by_id:
            raise UserError(f"{path} lists the image {image.file} or its id {listed['id']} twice.")
        images[name] = by_id[listed["id"]] = image
    panoptic = any("segments_info" in one for one in data["annotations"])
    for annotation in data["annotations"]:
        image = _look_up(path, "image_id", annotation["image_id"], by_id)
        for segment in annotation["segments_info"] if panoptic else [annotation]:
            category = segment["category_id"]  # some tools write it in quotes
            value = _look_up(path, "category_id", int(category) if isinstance(category, str) else category, values)
            shape = int(segment["id"]) if panoptic else segment["segmentation"]
            image.regions.append(Region(value, bool(int(segment.get("iscrowd") or 0)), shape))
    return Annotations(classes, images, panoptic, stamp)


def _read_categories(path: Path, listed: list[dict[str, Any]]) -> tuple[dict[int, int], tuple[str, ...]]:
    """Mask values by category number, and the names; in the order of the numbers."""
    for one in listed:
        if not isinstance(one["name"], str) or len(one["name"].strip().splitlines()) != 1:
            raise UserError(f"{path}: category {one['id']} is called {one['name']!r}; a name is one line of text.")
        try:
            require_text(one["name"])
        except UserError as error:
            raise UserError(f"{path}: category {one['id']} cannot be called so: {error}. Rename it.") from error
        if is_background(one["name"].strip()):
            raise UserError(
                f'{path}: category {one["id"]} is called "{one["name"]}". Take it out, with its annotations: '
                f"{BACKGROUND} is what nothing covers, without being named."
            )
    numbers = sorted((int(one["id"]), normalize("NFC", one["name"].strip())) for one in listed)
    values = {number: value for value, (number, _) in enumerate(numbers, start=1)}
    classes = tuple(dict(numbers).values())
    if not 1 <= len(classes) <= MAX_CLASSES or len(set(classes)) != len(listed):
        raise UserError(
            f"{path} must have 1 to {MAX_CLASSES} different categories; it has {len(listed)}. "
            "A mask's byte has no room for more."
        )
    return values, classes


def _look_up(path: Path, key: str, number: Any, known: Mapping[Any, T]) -> T:
    if number not in known:
        raise UserError(f"{path} has an annotation with {key} {number!r}, which is not listed in it.")
    return known[number]


# ---- masks ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CocoMasks:
    """Reads the mask of a panoptic PNG, or of the image: masks of instances have no file of their own."""

    json: Path
    stamp: Stamp
    """Of the JSON, so that what is cached of an older one is not taken for this one's."""
    folder: Path
    """Of the files that the masks are asked for by."""
    crowd: str

    def __call__(self, path: Path) -> Mask:
        annotations = read_annotations(self.json, opened=self.stamp)
        image = annotations.images[normalize_name(os.path.relpath(path, self.folder).replace(os.sep, "/"))]
        return self._panoptic(path, image) if annotations.panoptic else self._instances(image)

    def _instances(self, image: AnnotatedImage) -> Mask:
        try:
            from pycocotools import mask as coding
        except ImportError as error:
            raise UserError(
                "polygons and run lengths need pycocotools: pip install 'ipseg[coco]'. (Panoptic annotations do not.)"
            ) from error
        mask = np.zeros((image.height, image.width), dtype=np.uint8)
        try:
            encoded = [(_encode(coding, region.shape, mask.shape), region) for region in image.regions]
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


def _encode(coding: Any, given: Any, size: tuple[int, ...]) -> Any:
    """A region as pycocotools' run lengths, a few bytes, checked before its C code sees it.

    Polygons: [[x, y, x, y, ...], ...]. Points that are very far away crash it, and it never ends on NaN.
    Run lengths: {counts, size}, as numbers or text. Where they end before the image does, it leaves in the rest of the
    mask what the memory held before.
    """
    if isinstance(given, list):
        for polygon in given:
            points = np.asarray(polygon, dtype=np.float64)
            if len(polygon) % 2:
                raise ValueError("a polygon with half a point")
            if points.ndim != 1 or not (np.abs(points) <= MAX_COORDINATE).all():  # NaN is not
                raise ValueError("a polygon with a point that is nowhere near the image")
        areas = [[float(number) for number in polygon] for polygon in given if len(polygon) >= 6]
        if areas:  # two points enclose nothing
            return coding.merge(coding.frPyObjects(areas, *size))
        counts = [size[0] * size[1]]
    else:
        if tuple(given["size"]) != size:
            raise ValueError(f"its size is {given['size']}, the image's {list(size)}")
        counts = _unpack(given["counts"]) if isinstance(given["counts"], str) else [int(n) for n in given["counts"]]
        if min(counts, default=0) < 0 or sum(counts) != size[0] * size[1]:
            raise ValueError(f"its run lengths make {sum(counts)} pixels, the image has {size[0] * size[1]}")
    return coding.frPyObjects({"size": list(size), "counts": counts}, *size)


def _unpack(text: str) -> list[int]:
    """The numbers in COCO's text: five bits a letter, the sixth says that more follow.

    From the fourth on, a number is the difference to the last but one.

    >>> _unpack("52223")
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
