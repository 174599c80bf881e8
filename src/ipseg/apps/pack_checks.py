"""Checks of a pack before any of its files is written: it may be a stranger's."""

from __future__ import annotations

import hashlib
import re
import stat
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from ipseg.data.dataset import EmptyDataset
from ipseg.data.image_io import read_labels, read_regions
from ipseg.data.memory import load_memory
from ipseg.errors import UserError
from ipseg.files import require_version
from ipseg.parsing import parse_json

VERSION = 1
MANIFEST = "manifest.json"
MANIFEST_BYTES = 16 << 20
PACK_BYTES = 8 << 30
"""No honest pack comes near: a step of the largest network of the paper takes some hundred megabytes."""
NAME_BYTES = 255
"""Of a file's name, as most systems have it."""
MEMBER = re.compile(
    r"weights\.safetensors|step\.json|memory/(manifest\.json|(saliency|regions|images|labels)/.+\.png)", re.DOTALL
)


def refused(path: Path, problem: str) -> UserError:
    return UserError(f"{path} {problem}. Nothing was written.")


@contextmanager
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """The archive, by name refused where it is none."""
    if not path.is_file():
        raise UserError(f"the pack is missing: {path}. `ipseg pack RUN --step K` makes one.")
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (zipfile.BadZipFile, NotImplementedError, EOFError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is no pack, or a damaged one ({error}). Get a whole copy.") from error


def read_manifest(archive: zipfile.ZipFile, path: Path) -> dict[str, Any]:
    """The manifest of a pack whose members are all harmless, all named there, and unchanged since it was written."""
    _check_members(archive, path)
    try:
        manifest = parse_json(archive.read(MANIFEST))
    except UserError as error:
        raise UserError(f"{path}: its {MANIFEST} is damaged: {error}.") from error
    if not isinstance(manifest, dict) or manifest.get("format") != "ipseg pack":
        raise UserError(f"{path} is a zip file, but no pack: its {MANIFEST} is another program's.")
    require_version(manifest.get("version"), VERSION, "the pack", path)
    try:
        files = {str(name): (int(facts["bytes"]), str(facts["sha256"])) for name, facts in manifest["files"].items()}
        if not isinstance(manifest["step"], int) or manifest["step"] != len(manifest["base"]["classes"]):
            raise TypeError(f"step {manifest['step']!r}")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UserError(f"{path}: its {MANIFEST} is damaged ({error!r}).") from error
    _check_contents(archive, files, path)
    return manifest


def require_member(name: str, where: object) -> None:
    """Raise unless a name is that of a pack's file, which stays in its folder on every system."""
    parts = PurePosixPath(name).parts
    inside = "/".join(parts) == name and ".." not in parts and "\\" not in name and "\0" not in name
    if not inside or not MEMBER.fullmatch(name) or max(len(part.encode()) for part in parts) > NAME_BYTES:
        raise UserError(f'{where} holds "{name}", which leaves its folder or belongs to no pack. Nothing was written.')


def _check_members(archive: zipfile.ZipFile, path: Path) -> None:
    """By the archive's own list: names, kinds and sizes. Nothing is compressed, so nothing can swell."""
    members = archive.infolist()
    names = [info.filename for info in members]
    if MANIFEST not in names:
        raise UserError(f"{path} is a zip file, but no pack: it has no {MANIFEST}.")
    if len(set(names)) < len(names):
        raise refused(path, "holds a file twice")
    for info in members:
        if info.filename != MANIFEST:
            require_member(info.orig_filename, path)
        if info.header_offset < 0:
            raise UserError(f'{path} is damaged: "{info.filename}" begins before the file does. Get a whole copy.')
        if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
            raise refused(path, f'holds "{info.filename}", which is a link or no plain file')
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 or info.compress_size != info.file_size:
            raise refused(path, f'holds "{info.filename}", which is compressed or encrypted; in a pack nothing is')
    total = sum(info.file_size for info in members)
    if archive.getinfo(MANIFEST).file_size > MANIFEST_BYTES or total > min(PACK_BYTES, path.stat().st_size):
        raise refused(path, f"is too large, or lists more bytes than the file has: {total} bytes")


def _check_contents(archive: zipfile.ZipFile, files: dict[str, tuple[int, str]], path: Path) -> None:
    """By the manifest: no file more, none less, each of the size and the hash it was packed with."""
    members = set(archive.namelist()) - {MANIFEST}
    if members != set(files) or not {"weights.safetensors", "step.json"} <= members:
        odd = sorted(members ^ set(files))[:3] or ["weights.safetensors or step.json"]
        raise refused(path, f"and its {MANIFEST} disagree about {', '.join(odd)}")
    for name, (size, expected) in files.items():
        if archive.getinfo(name).file_size != size:
            raise refused(path, f'holds "{name}", which is not of the size in the {MANIFEST}')
        with archive.open(name) as member:
            if hashlib.file_digest(member, "sha256").hexdigest() != expected:  # type: ignore[arg-type]
                raise UserError(f'{path}: "{name}" is damaged: its SHA-256 is another. Get a whole copy.')


def require_memory(folder: Path, seen: Sequence[str]) -> None:
    """Raise unless the next step can replay it: labels of the classes seen, no image twice, every file readable."""
    memory = load_memory(folder, EmptyDataset())
    if memory.order != tuple(seen):
        raise UserError(f"its memory is of the classes {truncate(', '.join(memory.order))}, not {', '.join(seen)}.")
    names = [exemplar.name for exemplar in memory.exemplars]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise UserError(f"its memory names {', '.join(twice)} more than once.")
    for index, exemplar in enumerate(memory.exemplars):
        saliency, labels, regions = (
            folder / kind / f"{exemplar.name}.png" for kind in ("saliency", "labels", "regions")
        )
        if not saliency.is_file():
            raise UserError(f"the saliency map of {exemplar.name} is not in its memory.")
        try:
            for path in (saliency, *([labels] if labels.is_file() else [])):
                read_labels(path)
            if regions.is_file():
                read_regions(regions)
            if exemplar.has_copy():
                memory.sample(index)
        except UserError as error:
            message = str(error).replace(str(folder), "memory")  # the folder may be temporary
            raise UserError(f"{exemplar.name} in its memory cannot be used: {message}") from error


def truncate(value: object) -> str:
    """At most 120 characters of a text from a file."""
    text = str(value)
    return text if len(text) <= 120 else f"{text[:120]}..."
