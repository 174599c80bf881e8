"""What tells recipes apart: settings whose values differ, and settings that only some methods have."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MISSING = "–"


@dataclass(frozen=True)
class Differences:
    """Between the recipes of several runs, in their order."""

    differing: tuple[tuple[str, tuple[str, ...]], ...]
    """A setting, and its value in each; some may not have it."""
    partial: tuple[tuple[tuple[int, ...], tuple[str, ...]], ...]
    """Some of the runs, and `key=value` of what these alone have and agree on."""


def differences(recipes: Sequence[Mapping[str, Any]]) -> Differences:
    """Compare recipes as `section.key` -> value.

    >>> differences([{"memory.size": 10, "method.gate": "none"}, {"memory.size": 0}])
    Differences(differing=(('memory.size', ('10', '0')),), partial=(((0,), ('method.gate=none',)),))
    """
    differing: list[tuple[str, tuple[str, ...]]] = []
    partial: dict[tuple[int, ...], list[str]] = {}
    for key in dict.fromkeys(key for recipe in recipes for key in recipe):
        having = tuple(place for place, recipe in enumerate(recipes) if key in recipe)
        values = {_say(recipes[place][key]) for place in having}
        if len(values) > 1:
            differing.append((key, tuple(_say(recipe[key]) if key in recipe else MISSING for recipe in recipes)))
        elif len(having) < len(recipes):
            partial.setdefault(having, []).append(f"{key}={values.pop()}")
    return Differences(tuple(differing), tuple((having, tuple(said)) for having, said in partial.items()))


def _say(value: Any) -> str:
    """As YAML writes it."""
    return value if isinstance(value, str) else json.dumps(value)
