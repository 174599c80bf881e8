"""No stored case stands there without a test."""

from __future__ import annotations

import re

from given_network import VECTORS


def test_every_stored_case_is_globbed_by_a_test():
    tests = "".join(path.read_text() for path in VECTORS.parent.glob("test_*.py"))
    prefixes = tuple(set(re.findall(r'\bnames\("(\w+)"\)', tests)))
    assert prefixes
    left = [path.stem for path in sorted(VECTORS.glob("*.npz")) if not path.stem.startswith(prefixes)]
    assert not left


def test_every_prefix_finds_a_case():
    for path in VECTORS.parent.glob("test_*.py"):
        for prefix in re.findall(r'\bnames\("(\w+)"\)', path.read_text()):
            assert list(VECTORS.glob(f"{prefix}*.npz")), f"{path.name}: {prefix}"
