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


def read_runs(values: Any, base: Any) -> dict[str, Settings]:
    """What each run changes. A list names recipes that are run as they are; nothing is the base as it is."""
    if values is None:
        values = [] if base is None else {Path(str(base)).stem: {}}
    if isinstance(values, list):
        return {Path(name).stem: {"base": name} for name in listed(values, "runs", str)}
    runs = {str(name): section(changes, f"runs.{name}") for name, changes in section(values, "runs").items()}
    if not runs:
        raise UserError("the grid has no runs: give `base` a recipe and `runs` names with what each changes.")
    for name, changes in runs.items():
        if base is None and "base" not in changes:
            raise UserError(f"runs.{name} has no recipe: give the grid a `base`, or the run one of its own.")
    return runs


def read_scenarios(values: Any) -> dict[str, Settings]:
    """Settings of each scenario by its name: "2-1", "2-1 disjoint", or a name of one's own with its settings."""
    if isinstance(values, Mapping):
        return {str(name): section(one, f"scenarios.{name}") for name, one in values.items()}
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
