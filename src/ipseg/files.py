"""Writes that are whole or not there: a crash, a kill or a full disk never leaves half a file."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ipseg.errors import UserError

TEMPORARIES = ".ipseg-*.tmp"
"""What files are called that have not got their names yet. A kill leaves them behind."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; it takes the name `path` only when the block ends well."""
    if path.exists() and not path.is_file():  # a device, a pipe or a folder's link would be gone for good
        raise UserError(f"{path} exists and is not a plain file, so it is not replaced. Choose another name.")
    with explaining_full_disk(path):
        before, after = TEMPORARIES.split("*")  # nothing of the own name, which may be as long as names can be
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=before, suffix=after)
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            with temporary.open("rb+") as written:
                os.fsync(written.fileno())
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def explaining_full_disk(path: Path) -> Iterator[None]:
    """Say what a full disk means, and what to do, instead of only that it is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise UserError(
            f"the disk is full: {path} could not be written. What was written before it is whole; "
            "free some space and start again with --resume."
        ) from error


def write_text(path: Path, text: str) -> None:
    """Write text atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically, readable by a person. NaN is refused: it is no JSON."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path, what: str, version: int | None = None) -> Any:
    """Read JSON that ipseg wrote; say what is wrong with it otherwise. `version` is the newest one understood."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{what} is missing: {path}.") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"{what} is damaged: {path} is not JSON ({error}).") from error
    if version is not None:
        require_version(value.get("version") if isinstance(value, dict) else None, version, what, path)
    return value


def require_version(got: Any, newest: int, what: str, path: Path) -> None:
    """Raise unless `got` is a version that this release reads."""
    if not isinstance(got, int) or isinstance(got, bool) or got < 1:
        raise UserError(f"{what} is damaged: {path} gives its version as {got!r}; valid: 1 to {newest}.")
    if got > newest:
        raise UserError(f"{what} is of format {got}, this ipseg reads up to {newest}: {path}. Update ipseg to read it.")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
