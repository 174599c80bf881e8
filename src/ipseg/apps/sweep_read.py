"""Reading a grid: each part checked and named where it is wrong, and the words that folders and tables are made of."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from ipseg.config import Settings
from ipseg.errors import UserError, unknown
from ipseg.scenario.split import Setting

LONGEST_NAME = 255
"""Bytes. Common file systems take no longer name of a file or folder."""
LONGEST_ENDING = ".yaml"
"""Of the files that are named after a run: recipes/NAME.yaml, logs/NAME.log, slurm/NAME.job."""


def read_runs(values: Any, base: Any) -> dict[str, Settings]:
    """What each run changes. A list names recipes that are run as they are; nothing is the base as it is."""
    if values is None:
        values = [] if base is None else {Path(str(base)).stem: {}}
    if isinstance(values, list):
        return _read_recipes(listed(values, "runs", str))
    runs = _sections(section(values, "runs"), "runs")
    if not runs:
        raise UserError("the grid has no runs: give `base` a recipe and `runs` names with what each changes.")
    for name, changes in runs.items():
        if base is None and "base" not in changes:
            raise UserError(f"runs.{name} has no recipe: give the grid a `base`, or the run one of its own.")
    return runs


def _read_recipes(names: list[str]) -> dict[str, Settings]:
    runs: dict[str, Settings] = {}
    for name in names:
        stem = Path(name).stem
        first = runs.setdefault(stem, {"base": name})["base"]
        if first != name:
            raise UserError(
                f'the recipes {first} and {name} would both be the run "{stem}". Write `runs` with a name for each: '
                f"{{NAME: {{base: {first}}}, OTHER: {{base: {name}}}}}."
            )
    return runs


def read_scenarios(values: Any) -> dict[str, Settings]:
    """Settings of each scenario by its name: "2-1", "2-1 disjoint", or a name of one's own with its settings."""
    if isinstance(values, Mapping):
        return _sections(values, "scenarios")
    return {name: read_scenario(name) for name in listed([] if values is None else values, "scenarios", str)}


def read_scenario(text: str) -> Settings:
    """NAME or NAME SETTING.

    >>> read_scenario("2-1 disjoint")
    {'name': '2-1', 'setting': 'disjoint'}
    """
    name, _, setting = text.partition(" ")
    if setting.strip() not in ("", *get_args(Setting)):
        raise unknown(f'setting in the scenario "{text}":', setting.strip(), get_args(Setting))
    return {"name": name, "setting": setting.strip() or "overlap"}


def known(names: list[Any], valid: Any, kind: str, where: str) -> list[Any]:
    """The names, each a valid one."""
    for name in names:
        if name not in valid:
            raise unknown(kind.removesuffix("s"), name, map(str, valid), f"It stands in {where}.")
    return names


def _sections(values: Mapping[Any, Any], where: str) -> dict[str, Settings]:
    """Sections by their names. To YAML 1 and "1" are two keys, but they are one name."""
    names = listed([str(name) for name in values], where)
    return {name: section(one, f"{where}.{name}") for name, one in zip(names, values.values(), strict=True)}


def section(values: Any, where: str) -> Settings:
    """A mapping; nothing is an empty one."""
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UserError(f"{where} must be a section, got {values!r}.")
    return values


def listed(values: Any, where: str, kind: type = object) -> list[Any]:
    """A list of different values of a kind."""
    words = {str: "texts", int: "whole numbers", dict: "sections", object: "values"}
    right = isinstance(values, list) and all(
        isinstance(value, kind) and not (kind is int and isinstance(value, bool)) for value in values
    )
    if not right:
        raise UserError(f"{where} must be a list of {words[kind]}, got {values!r}.")
    twice = [value for index, value in enumerate(values) if value in values[:index]]
    if twice:
        raise UserError(f"{where} names {twice[0]!r} twice.")
    result: list[Any] = values
    return result


def slug(text: str) -> str:
    """A part of a folder's name.

    >>> slug("ipseg w/o memory"), slug("2-1 disjoint")
    ('ipseg-w-o-memory', '2-1-disjoint')
    """
    return re.sub(r"[^\w.+-]+", "-", text).strip("-.") or "run"


def require_short(name: str, run: str) -> None:
    """Raise if a run's files could not have its name."""
    most, length = LONGEST_NAME - len(LONGEST_ENDING), len(name.encode())
    if length > most:
        raise UserError(
            f'the run "{run}" would have a folder with a name of {length} bytes; it must have at most {most}, for file '
            f"systems take {LONGEST_NAME} with {LONGEST_ENDING} at the end. Give the run or its scenario a shorter "
            "name; instead of long values in `vary`, write runs with short names."
        )


def nested(key: str, value: Any) -> Settings:
    """The settings that `section.key` and its value stand for.

    >>> nested("memory.size", 50)
    {'memory': {'size': 50}}
    """
    for part in reversed(key.split(".")):
        value = {part: value}
    assert isinstance(value, dict)
    return value


def say(value: Any) -> str:
    """A value as YAML writes it.

    >>> say(True), say(None), say(0.5), say("part")
    ('true', 'null', '0.5', 'part')
    """
    return value if isinstance(value, str) else json.dumps(value)
