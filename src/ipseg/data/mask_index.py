"""Which classes are in which mask: read once on all cores, then kept outside the data until a mask changes."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import ipseg
from ipseg.data.dataset import Mask, present_classes
from ipseg.data.parallel import parallel_map
from ipseg.errors import UserError
from ipseg.files import write_text

VERSION = 1
CLASSES = frozenset(range(1, 255))
"""Values of classes; 0 is background, 255 is not labeled."""
Reader = Callable[[Path], Mask]
"""Raises UserError for a mask that it cannot read. Its repr, or its name, says all that its answers depend on."""


@dataclass(frozen=True)
class MaskInfo:
    """What is known of a mask once it was read."""

    values: frozenset[int]
    """The classes in it."""
    size: tuple[int, int]
    """Height and width."""


def class_presence_of(paths: Sequence[Path], read: Reader) -> list[frozenset[int]]:
    """The class values in each mask, in the order of the paths."""
    found = []
    for facts in scan_masks(paths, read):
        if isinstance(facts, UserError):
            raise facts
        found.append(facts.values)
    return found


def scan_masks(paths: Sequence[Path], read: Reader) -> list[MaskInfo | UserError]:
    """What is in each mask, or why it could not be read. Only masks that are new or have changed are read."""
    if not paths:
        return []
    whole = [path.absolute() for path in paths]
    names = [str(path) for path in whole]
    stamps = dict(zip(names, map(_stamp, whole), strict=True))  # before the masks are read: a change then is seen later
    cache = _Cache.of(whole, read)
    known = cache.load() if cache else {}
    facts: dict[str, MaskInfo | UserError] = {
        name: known[name][1] for name in stamps if name in known and known[name][0] == stamps[name]
    }
    new = [name for name in stamps if name not in facts]
    facts |= zip(new, parallel_map(partial(_look, read), new, "looking at masks"), strict=True)
    if cache and new:
        kept = {name: entry for name, entry in known.items() if name not in stamps and Path(name).exists()}
        read_now = {name: (stamps[name], one) for name, one in facts.items() if isinstance(one, MaskInfo)}
        cache.save(kept | read_now)
    return [facts[name] for name in names]


def cache_folder() -> Path:
    """Where ipseg keeps what it can make again: $IPSEG_CACHE, or `ipseg` in the user's folder for such things."""
    chosen = os.environ.get("IPSEG_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "ipseg"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "ipseg" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ipseg"


def describe_reader(read: Reader) -> str | None:
    """What tells a reader from others, the same in every process. None if nothing does, as for a lambda.

    >>> from ipseg.data.image_io import read_labels
    >>> describe_reader(read_labels)
    'ipseg.data.image_io.read_labels'
    """
    name = read.__qualname__ if inspect.isfunction(read) else repr(read)
    text = f"{read.__module__}.{name}"
    unclear = ("<lambda>", "<locals>", " at 0x", "__main__.")
    return None if any(mark in text for mark in unclear) else text


def _look(read: Reader, name: str) -> MaskInfo | UserError:
    try:
        mask = read(Path(name))
    except UserError as error:
        return error
    return MaskInfo(present_classes(mask), (mask.shape[0], mask.shape[1]))


Stamp = tuple[int, int]
"""A file's size and time of change: another file under the same name has another."""
Entries = dict[str, tuple[Stamp, MaskInfo]]


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError:
        return -1, -1  # reading it will say why, or need no file, as where JSON says what to draw
    return found.st_size, found.st_mtime_ns


@dataclass(frozen=True)
class _Cache:
    """One file of what was found below one folder with one reader."""

    path: Path
    root: str
    reader: str

    @classmethod
    def of(cls, paths: Sequence[Path], read: Reader) -> _Cache | None:
        reader = describe_reader(read)
        if reader is None:
            return None
        try:
            root = os.path.commonpath({str(path.parent) for path in paths})
            folder = cache_folder()
        except (ValueError, RuntimeError):  # on several drives; a user without a home
            return None
        told_apart_by = "\n".join([str(VERSION), ipseg.__version__, reader, root])
        digest = hashlib.sha256(told_apart_by.encode(errors="surrogateescape")).hexdigest()
        return cls(folder / f"masks-{digest[:24]}.json", root, reader)

    def load(self) -> Entries:
        """All that is kept; nothing if there is no such file or it is damaged."""
        try:
            kept = json.loads(self.path.read_bytes())
            if (kept["version"], kept["reader"], kept["root"]) != (VERSION, self.reader, self.root):
                return {}
            return {self.root + name: _entry(*values) for name, values in kept["masks"].items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return {}

    def save(self, entries: Entries) -> None:
        """Keep them, if the folder may be written and there is room."""
        masks = {
            name.removeprefix(self.root): [*stamp, *facts.size, *sorted(facts.values)]
            for name, (stamp, facts) in entries.items()
        }
        kept = {"version": VERSION, "reader": self.reader, "root": self.root, "masks": masks}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_text(self.path, json.dumps(kept, separators=(",", ":")))
        except (OSError, UserError, UnicodeError):
            return  # read again next time


def _entry(size: int, changed: int, height: int, width: int, *values: int) -> tuple[Stamp, MaskInfo]:
    if not all(isinstance(one, int) for one in (size, changed, height, width, *values)) or not set(values) <= CLASSES:
        raise ValueError("not what `save` writes")
    return (size, changed), MaskInfo(frozenset(values), (height, width))
