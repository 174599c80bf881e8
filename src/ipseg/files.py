"""Writes that are whole or not there: a crash, a kill or a full disk never leaves half a file."""

from __future__ import annotations

import difflib
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from ipseg.errors import FULL, UserError, full_disk
from ipseg.parsing import MAX_JSON_BYTES, parse_json, require_size, require_text

TEMPORARIES = ".ipseg-*.tmp"
"""Names of unfinished files. A kill leaves them behind."""
HEAD = 2000
"""Bytes at the beginning of a file that identify it."""


def require_path(path: Path) -> None:
    """Raise unless a path is UTF-8, with the folders it lies in: not every library can open another."""
    try:
        require_text(str(path.absolute()))
    except UserError as error:
        raise UserError(f"{str(path)!a} cannot be used: {error}. Choose another name, or folder.") from error


def require_no_link(path: Path) -> None:
    """Raise if the path is a link: what is written there would end up elsewhere, as a stranger's folder may want it."""
    if path.is_symlink():
        raise UserError(
            f"{path} is a link, and nothing is written through links. Remove it, or put {path.readlink()} itself there."
        )


def require_no_links(folder: Path) -> None:
    """The same for everything in a folder; the folder itself may well be a link."""
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            require_no_link(Path(parent, name))


def require_single(path: Path, status: os.stat_result | None = None) -> None:
    """Raise unless data appended to a file stays there: no link, no pipe, no second name in another folder."""
    require_no_link(path)
    try:
        status = status or path.stat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode):
        raise UserError(f"{path} is no plain file, and nothing is added to it. Remove it.")
    if status.st_nlink > 1:
        raise UserError(
            f"{path} is a hard link: the same file has {status.st_nlink} names, and all would change. Put a copy in "
            "its place."
        )


def appending(path: Path) -> IO[bytes]:
    """Open a file for appending if it has a single name, following no link."""
    require_single(path)
    guards = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # a pipe without a reader would block
    file = open(path, "ab", opener=lambda name, flags: os.open(name, flags | guards, 0o666))  # noqa: SIM115 - the caller closes it
    try:
        require_single(path, os.fstat(file.fileno()))
    except UserError:
        file.close()
        raise
    return file


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; it takes the name `path` only when the block ends well.

    A link is replaced by the file; its target is not touched.
    """
    if path.exists() and not path.is_file():  # a device, a pipe or a folder's link would be gone for good
        raise UserError(f"{path} exists and is not a plain file, so it is not replaced. Choose another name.")
    with explaining_full_disk(path):
        before, after = TEMPORARIES.split("*")  # nothing of the own name, which may be as long as names can be
        temporary = path.parent / f"{before}{secrets.token_hex(8)}{after}"
        try:
            with temporary.open("xb") as file:  # with the rights that new files have here
                lock(file)  # no other process takes it for abandoned
                yield temporary
            with temporary.open("rb+") as written:
                os.fsync(written.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def remove_abandoned(folder: Path, is_ours: Callable[[bytes], bool]) -> None:
    """Remove temporary files of killed processes: not locked, and empty or with a beginning that `is_ours` knows."""
    for path in folder.glob(TEMPORARIES):
        if not re.fullmatch(r"\.ipseg-[0-9a-f]{16}\.tmp", path.name) or path.is_symlink() or not path.is_file():
            continue
        with suppress(OSError), path.open("rb") as file:
            if lock(file) and (not (head := file.read(HEAD)) or is_ours(head)):
                path.unlink()


def lock(file: IO[bytes]) -> bool:
    """Mark a file as in use until it is closed; false if another process does, or the system has no such locks."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


@contextmanager
def explaining_full_disk(path: Path) -> Iterator[None]:
    """Explain a full disk; name the file in other errors of writing, which name none or a temporary file."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise UserError(full_disk(path)) from error
        named = error.filename is not None and not Path(os.fsdecode(error.filename)).match(TEMPORARIES)
        if error.errno is None or named:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def require_output(out: Path, endings: Sequence[str], mark: bytes) -> None:
    """Raise unless a file may be written here: its ending is right, and only an earlier one of ours is replaced.

    mark: among the first bytes of every such file of ours. To be called before the work, which may take long.
    """
    if out.is_dir():
        raise UserError(f"--out {out} is a folder; name a file, for example {out / f'name{endings[0]}'}.")
    if out.suffix.lower() not in endings:
        raise UserError(f"--out {out}: let the name end with {' or '.join(endings)}.")
    if not out.is_file():
        return
    with out.open("rb") as file:
        head = file.read(HEAD)
    if head and mark not in head:
        raise UserError(
            f"--out {out} exists and is not an earlier output of this command, so it is not replaced. "
            "Choose another name."
        )


def write_text(path: Path, text: str) -> None:
    """Write text atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically, readable by a person. NaN is refused: it is no JSON."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def missing(what: str, path: Path) -> UserError:
    """An error for a file or folder that is not there, with the nearest name beside it."""
    try:
        beside = [other.name for other in path.parent.iterdir()]
    except OSError:
        return UserError(f"{what} is missing: {path}. There is no folder {path.parent}.")
    near = difflib.get_close_matches(path.name, beside, n=1)
    return UserError(f"{what} is missing: {path}." + (f" Did you mean {path.parent / near[0]}?" if near else ""))


def read_plain(path: Path, most: int) -> bytes:
    """The content of a file, unless it is too large. No device and no pipe, which may have no end."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode) and not path.is_dir():
        raise UserError(f"{path} is no plain file")
    require_size(found.st_size, most)
    return path.read_bytes()


def read_json(path: Path, what: str, version: int | None = None) -> Any:
    """Read JSON that ipseg wrote, checked. `version` is the newest one understood."""
    try:
        value = parse_json(read_plain(path, MAX_JSON_BYTES))
    except FileNotFoundError as error:
        raise missing(what, path) from error
    except UserError as error:
        raise UserError(f"{what} is damaged: {path} ({error}).") from error
    if version is not None:
        require_version(value.get("version") if isinstance(value, dict) else None, version, what, path)
    return value


def require_version(got: Any, newest: int, what: str, path: Path) -> None:
    """Raise unless `got` is a version that this release reads."""
    if not isinstance(got, int) or isinstance(got, bool) or got < 1:
        raise UserError(f"{what} is damaged: {path} gives its version as {got!r}; valid: 1 to {newest}.")
    if got > newest:
        raise UserError(f"{what} is of format {got}, this ipseg reads up to {newest}: {path}. Update ipseg to read it.")


def copy_folder(folder: Path, target: Path, left_out: Sequence[str] = ()) -> None:
    """Copy a folder with the permissions that new files have here: a copy of a read-only one is writable."""
    target.mkdir()
    for path in folder.iterdir():
        if any(path.match(pattern) for pattern in left_out):
            continue
        require_no_link(path)  # a copy of its target might be handed on
        if path.is_dir():
            copy_folder(path, target / path.name, left_out)
        else:
            shutil.copyfile(path, target / path.name, follow_symlinks=False)  # it may have become a link since


@contextmanager
def whole_or_nothing(out: Path) -> Iterator[Path]:
    """Yield a folder beside `out`; it takes that name, of nothing or an empty folder, only when the block ends well."""
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.parent / f".{out.name}.partial"
    require_no_link(partial)
    if partial.exists():
        shutil.rmtree(partial)  # left by a kill; raises if it cannot be removed
    try:
        yield partial
        if out.is_dir():
            out.rmdir()
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
