"""What the tests of packs have in common."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ipseg.apps.pack import apply_pack
from ipseg.errors import UserError

Change = Callable[[dict[str, bytes], dict[str, Any]], None]
"""Of a pack's files and its manifest."""


def refused(path: Path, extended: Path, tmp_path: Path, message: str) -> None:
    """By name, without a trace on the disk, or of a folder that nobody will find there."""
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match=message) as caught:
        apply_pack(path, extended / "base", tmp_path / "out")
    assert ".partial" not in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before
    assert not list(extended.glob(".*"))
