"""Which classes are in which picture: read from the masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ipseg.data.source import Mask, present


def masks_present(paths: Sequence[Path], read: Callable[[Path], Mask]) -> list[frozenset[int]]:
    """The class values in each mask, in the order of the paths."""
    return [present(read(path)) for path in paths]
