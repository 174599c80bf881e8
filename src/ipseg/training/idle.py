"""Settings that were changed and change nothing: nobody should wait for their effect."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from ipseg.training.recipe import Recipe


def idle(recipe: Recipe) -> list[str]:
    """A sentence for each setting that is not its default and has no effect, with what it would need."""
    said = [*_told("method", recipe.method, recipe.method.needs())]
    said += _told("training", recipe.training, recipe.training.needs())
    if not recipe.method.replays:
        needs = dict.fromkeys(("size", "store"), (recipe.memory.size == 0, "a method that replays"))
        said += _told("memory", recipe.memory, needs)
    return said


def _told(section: str, config: Any, needs: Mapping[str, tuple[bool, str]]) -> Iterator[str]:
    for field in dataclasses.fields(config):
        in_force, needed = needs.get(field.name, (True, ""))
        value = getattr(config, field.name)
        if not in_force and value != field.default:
            yield f"{section}.{field.name} is {value} and changes nothing: it needs {needed}."
