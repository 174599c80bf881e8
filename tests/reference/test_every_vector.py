"""No stored case stands there without a test."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from given_network import GLOBBED, VECTORS


def test_every_stored_case_is_globbed_by_a_test():
    for path in Path(__file__).parent.glob("test_*.py"):
        import_module(path.stem)  # its parameters are the cases
    assert {path.stem for path in VECTORS.glob("*.npz")} == GLOBBED
