"""What tells recipes apart: settings that all of them have and that differ, and settings of one method alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Differences:
    """Between the recipes of several runs, in their order."""

    shared: tuple[tuple[str, tuple[str, ...]], ...]
    """A setting that all have, and its value in each."""
    own: tuple[tuple[str, ...], ...]
    """For each run, `key=value` of what not all of them have."""


def differences(recipes: Sequence[Mapping[str, Any]]) -> Differences:
    """Compare recipes as `section.key` -> value.

    >>> differences([{"memory.size": 10, "method.gate": "none"}, {"memory.size": 0}])
    Differences(shared=(('memory.size', ('10', '0')),), own=(('method.gate=none',), ()))
    """
    keys = list(dict.fromkeys(key for recipe in recipes for key in recipe))
    everywhere = [key for key in keys if all(key in recipe for recipe in recipes)]
    rows = [(key, tuple(_say(recipe[key]) for recipe in recipes)) for key in everywhere]
    own = [
        tuple(f"{key}={_say(recipe[key])}" for key in keys if key in recipe and key not in everywhere)
        for recipe in recipes
    ]
    return Differences(tuple(row for row in rows if len(set(row[1])) > 1), tuple(own))


def _say(value: Any) -> str:
    """As YAML writes it."""
    return value if isinstance(value, str) else json.dumps(value)
