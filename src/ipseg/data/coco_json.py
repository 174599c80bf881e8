"""COCO's JSON files, checked: categories, pictures, and what is annotated in each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar
from unicodedata import normalize

from ipseg.data.filed import as_name
from ipseg.errors import UserError
from ipseg.files import read_plain
from ipseg.scenario.split import BACKGROUND, MAX_CLASSES, is_background

T = TypeVar("T")

Stamp = tuple[int, int]
"""Another file under the same name has another: its time of change and its size."""

MOST_BYTES = 1 << 32
"""COCO's own largest file has half a gigabyte."""
MOST_PIXELS = 178_956_970  # Pillow reads no larger picture


@dataclass(frozen=True)
class Region:
    """One annotated thing."""

    value: int
    """Its class's mask value."""
    crowd: bool
    shape: Any
    """Instances: polygons or run lengths. Panoptic: the number of its colour."""


@dataclass(frozen=True)
class AnnotatedPicture:
    """A picture and what is in it."""

    file: str
    height: int
    width: int
    regions: list[Region] = field(default_factory=list)


@dataclass(frozen=True)
class Annotations:
    """All of a file."""

    classes: tuple[str, ...]
    """In the order of their numbers; the first has mask value 1."""
    pictures: Mapping[str, AnnotatedPicture]
    panoptic: bool
    stamp: Stamp
    """Of the file when it was read."""


def read_annotations(path: Path, tree: str = "", opened: Stamp | None = None) -> Annotations:
    """Read a file, once a process as long as it stays the same: big ones take many seconds.

    opened: its stamp when the data was opened. What its numbers stand for may be something else in another file.
    """
    try:
        stamp = _stamp(path)
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


def _stamp(path: Path) -> Stamp:
    found = path.stat()
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=4)
def _read(path: Path, stamp: Stamp) -> Annotations:
    data = json.loads(read_plain(path, MOST_BYTES))
    values, classes = _categories(path, data["categories"])
    by_id: dict[Any, AnnotatedPicture] = {}
    pictures: dict[str, AnnotatedPicture] = {}
    for image in data["images"]:
        picture = AnnotatedPicture(str(image["file_name"]), int(image["height"]), int(image["width"]))
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
