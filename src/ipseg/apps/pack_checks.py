"""What must be true of a pack before a single file of it is written: strangers make packs too."""

from __future__ import annotations

import hashlib
import re
import stat
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from ipseg.data.dataset import EmptyDataset
from ipseg.data.image_io import read_labels
from ipseg.data.memory import load_memory
from ipseg.errors import UserError
from ipseg.files import require_version
from ipseg.parsing import parse_json

VERSION = 1
MANIFEST = "manifest.json"
MANIFEST_BYTES = 16 << 20
PACK_BYTES = 8 << 30
"""No honest pack comes near: a step of the largest network of the paper takes some hundred megabytes."""
LONGEST = 255
"""Bytes of a file's name, as most systems have it."""
KNOWN = re.compile(
    r"weights\.safetensors|step\.json|memory/manifest\.json|memory/(saliency|images|labels)/.+\.png", re.DOTALL
)


@contextmanager
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """The archive; what is none is refused by name."""
    if not path.is_file():
        raise UserError(f"the pack is missing: {path}. `ipseg pack RUN --step K` makes one.")
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (zipfile.BadZipFile, NotImplementedError, EOFError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is no pack, or a damaged one ({error}). Get a whole copy.") from error


def read_manifest(archive: zipfile.ZipFile, path: Path) -> dict[str, Any]:
    """The manifest of a pack whose members are all harmless, all named there, and unchanged since it was written."""
    _require_harmless(archive, path)
    try:
        manifest = parse_json(archive.read(MANIFEST))
    except UserError as error:
        raise UserError(f"{path}: its {MANIFEST} is damaged: {error}.") from error
    if not isinstance(manifest, dict) or manifest.get("format") != "ipseg pack":
        raise UserError(f"{path} is a zip file, but no pack: {MANIFEST} does not say so.")
    require_version(manifest.get("version"), VERSION, "the pack", path)
    try:
        listed = {str(name): (int(facts["bytes"]), str(facts["sha256"])) for name, facts in manifest["files"].items()}
        if not isinstance(manifest["step"], int) or manifest["step"] != len(manifest["base"]["classes"]):
            raise TypeError(f"step {manifest['step']!r}")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UserError(f"{path}: its {MANIFEST} is damaged ({error!r}).") from error
    _require_listed(archive, listed, path)
    return manifest


def require_inside(name: str, where: str) -> None:
    """Raise unless a member's name is one of a pack's, and stays in its folder on every system."""
    path, windows = PurePosixPath(name), PureWindowsPath(name)
    leaves = path.is_absolute() or windows.drive or windows.root or ".." in windows.parts or "\0" in name
    if leaves or str(path) != name or "\\" in name:
        raise UserError(f'{where} names "{name}", which leaves its folder. Nothing was written.')
    if not KNOWN.fullmatch(name) or max(len(part.encode()) for part in path.parts) > LONGEST:
        raise UserError(f'{where} holds "{name}", which belongs to no pack. Nothing was written.')


def _require_harmless(archive: zipfile.ZipFile, path: Path) -> None:
    """By the archive's own list: names, kinds and sizes. Nothing is compressed, so that nothing can swell."""
    members = archive.infolist()
    names = [info.filename for info in members]
    if MANIFEST not in names:
        raise UserError(f"{path} is a zip file, but no pack: it has no {MANIFEST}.")
    for info in members:
        if info.filename != MANIFEST:
            require_inside(info.orig_filename, f"the pack {path}")
        if info.header_offset < 0:
            raise UserError(f'{path} is damaged: "{info.filename}" begins before the file does. Get a whole copy.')
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG):
            raise UserError(f'{path}: "{info.filename}" is a link or no plain file. Nothing was written.')
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 or info.compress_size != info.file_size:
            raise UserError(f'{path}: "{info.filename}" is compressed or encrypted; in a pack nothing is.')
    if len(set(names)) < len(names):
        raise UserError(f"{path} holds a file twice. Nothing was written.")
    total = sum(info.file_size for info in members)
    if archive.getinfo(MANIFEST).file_size > MANIFEST_BYTES or total > min(PACK_BYTES, path.stat().st_size):
        raise UserError(f"{path} is too large, or says it is larger than the file: {total} bytes. Nothing was written.")


def _require_listed(archive: zipfile.ZipFile, listed: dict[str, tuple[int, str]], path: Path) -> None:
    """By the manifest: no file more, none less, each of the size and the hash it was packed with."""
    there = set(archive.namelist()) - {MANIFEST}
    if there != set(listed) or not {"weights.safetensors", "step.json"} <= there:
        odd = sorted(there ^ set(listed))[:3] or ["weights.safetensors or step.json"]
        raise UserError(f"{path}: files and {MANIFEST} disagree about {', '.join(odd)}. Nothing was written.")
    for name, (size, expected) in listed.items():
        if archive.getinfo(name).file_size != size:
            raise UserError(f'{path}: "{name}" is not of the size that the {MANIFEST} says. Nothing was written.')
        with archive.open(name) as member:
            found = hashlib.sha256()
            while piece := member.read(1 << 20):
                found.update(piece)
        if found.hexdigest() != expected:
            raise UserError(f'{path}: "{name}" is damaged: its SHA-256 is another. Get a whole copy.')


def require_memory(folder: Path, seen: Sequence[str]) -> None:
    """Raise unless the next step can replay it: labels of the classes seen, no image twice, every file readable."""
    memory = load_memory(folder, EmptyDataset())
    if memory.order != tuple(seen):
        raise UserError(f"its memory is of the classes {truncate(', '.join(memory.order))}, not {', '.join(seen)}.")
    names = [exemplar.name for exemplar in memory.exemplars]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise UserError(f"its memory names {', '.join(twice)} more than once.")
    elsewhere = memory.without_copy()
    for index, name in enumerate(names):
        saliency, labels = (folder / kind / f"{name}.png" for kind in ("saliency", "labels"))
        if not saliency.is_file():
            raise UserError(f"the saliency map of {name} is not in its memory.")
        try:
            for path in (saliency, *([labels] if labels.is_file() else [])):
                read_labels(path)
            if name not in elsewhere:
                memory.sample(index)
        except UserError as error:
            message = str(error).replace(str(folder), "memory")  # the folder is about to go
            raise UserError(f"{name} in its memory cannot be used: {message}") from error


def truncate(value: object) -> str:
    """A text of others, at most 120 characters of it."""
    text = str(value)
    return text if len(text) <= 120 else f"{text[:120]}..."
