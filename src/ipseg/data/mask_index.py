"""The classes in each mask: read once on all cores, then cached outside the data until a mask changes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import ipseg
from ipseg.data.dataset import Mask, present_classes
from ipseg.data.parallel import parallel_map
from ipseg.errors import UserError
from ipseg.files import write_text

Reader = Callable[[Path], Mask]
"""Raises UserError for a mask that it cannot read. Its repr, as a dataclass has, names all its results depend on."""
Stamp = tuple[int, int]
"""A file's size and time of change."""


@dataclass(frozen=True)
class MaskInfo:
    """What the index knows of a mask."""

    classes: frozenset[int]
    size: tuple[int, int]
    """Height and width."""


def class_presence_of(paths: Sequence[Path], read: Reader) -> list[frozenset[int]]:
    """The class values in each mask, in the order of the paths."""
    presence = []
    for info in scan_masks(paths, read):
        if isinstance(info, UserError):
            raise info
        presence.append(info.classes)
    return presence


def scan_masks(paths: Sequence[Path], read: Reader) -> list[MaskInfo | UserError]:
    """Each mask's classes and size, or why it could not be read. Only new and changed masks are read."""
    names = [str(path.absolute()) for path in paths]
    stamps = {name: _stamp(name) for name in names}  # before the masks are read: a later change is noticed
    cache = _cache_file(names, read)
    cached = _load(cache)
    infos: dict[str, MaskInfo | UserError] = {
        name: cached[name][1] for name in stamps if name in cached and cached[name][0] == stamps[name]
    }
    new = [name for name in stamps if name not in infos]
    infos |= zip(new, parallel_map(partial(_scan, read), new, "reading masks"), strict=True)
    if cache and new:
        others = {name: entry for name, entry in cached.items() if name not in stamps and Path(name).exists()}
        _save(cache, others | {name: (stamps[name], one) for name, one in infos.items() if isinstance(one, MaskInfo)})
    return [infos[name] for name in names]


def cache_folder() -> Path:
    """$IPSEG_CACHE, or `ipseg` among the user's caches."""
    chosen = os.environ.get("IPSEG_CACHE")
    return Path(chosen or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/ipseg").expanduser()


def _scan(read: Reader, name: str) -> MaskInfo | UserError:
    try:
        mask = read(Path(name))
    except UserError as error:
        return error
    return MaskInfo(present_classes(mask), (mask.shape[0], mask.shape[1]))


def _stamp(name: str) -> Stamp:
    try:
        found = Path(name).stat()
    except OSError:
        return -1, -1  # reading it says why, or needs no file, as where COCO's JSON says what to draw
    return found.st_size, found.st_mtime_ns


def _cache_file(names: Sequence[str], read: Reader) -> Path | None:
    """One for each way of reading the masks below a folder; none for a way that cannot be told from others."""
    reader = f"{type(read).__module__}.{read!r}"
    if not names or any(mark in reader for mark in (" at 0x", "<locals>", "__main__.")):  # functions, and the like
        return None
    try:
        root = os.path.commonpath({str(Path(name).parent) for name in names})
        folder = cache_folder()
    except (ValueError, RuntimeError):  # on several drives; a user without a home
        return None
    key = "\n".join([ipseg.__version__, reader, root]).encode(errors="surrogateescape")
    return folder / f"masks-{hashlib.sha256(key).hexdigest()[:24]}.json"


def _load(cache: Path | None) -> dict[str, tuple[Stamp, MaskInfo]]:
    """All that is cached; nothing if there is no such file or it is damaged."""
    try:
        entries = json.loads(cache.read_bytes()) if cache else {}
        return {
            name: ((int(size), int(changed)), MaskInfo(frozenset(bytes(classes)) - {0, 255}, (int(height), int(width))))
            for name, (size, changed, height, width, *classes) in entries.items()
        }
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _save(cache: Path, entries: dict[str, tuple[Stamp, MaskInfo]]) -> None:
    """Write the cache, if the folder may be written and there is room; otherwise masks are read again next time."""
    values = {name: [*stamp, *info.size, *sorted(info.classes)] for name, (stamp, info) in entries.items()}
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        write_text(cache, json.dumps(values, separators=(",", ":")))
    except (OSError, UserError, UnicodeError):
        return
