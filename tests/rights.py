"""A user whom files can be closed to."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

NOBODY = 65534


@contextlib.contextmanager
def where_rights_count(folder: Path) -> Iterator[None]:
    """In a folder, as somebody whom rights bind: they do not bind root. Paths are to be relative to it."""
    folder.chmod(0o777)
    root = os.geteuid() == 0
    with contextlib.chdir(folder):
        if root:
            os.seteuid(NOBODY)
        try:
            yield
        finally:
            if root:
                os.seteuid(0)
