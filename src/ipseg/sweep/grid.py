"""A grid of runs as one YAML file: what is compared, on which scenarios, with which seeds and settings.

base: scenes_3-1_ipseg                   the recipe that every run changes
runs:                                    what is compared: the name in tables, and what it changes
  ipseg: {}
  finetune: {method: {name: finetune}}
scenarios: [3-1, 2-1 disjoint]
seeds: [0, 1, 2]
also:                                    further runs; keys that an entry omits are inherited, except `without`
  - {runs: [ipseg], seeds: [0], vary: {memory.size: [0, 25, 50]}}
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from ipseg.config import Settings, flat, read_yaml, to_dict
from ipseg.errors import UserError, unknown
from ipseg.scenario.split import Setting
from ipseg.training.recipe import make_recipe
from ipseg.training.recipe_files import lay_over, with_base

AXES = ("runs", "scenarios", "seeds", "vary", "without")
KEYS = ("base", "set", "seeded", "slurm", "also", *AXES)
SEEDS = {"seed", "data.seed"}
"""Runs that differ in these settings alone are one row of a table."""
MAX_NAME = 255 - len(".yaml")
"""Bytes. Common file systems allow 255 per name, and files are named after a run: recipes/NAME.yaml, logs/NAME.log."""


@dataclass(frozen=True)
class GridRun:
    """One run of the grid."""

    entry: str
    """Its key in `runs`."""
    scenario: str
    varied: Mapping[str, Any]
    seed: int
    settings: Settings
    """The whole recipe, as plain values."""
    changes: Mapping[str, Any]
    """What the entry and `vary` change, by `section.key`."""
    decided: Mapping[str, str]
    """Settings that the grid itself decides, by `section.key`, and where; --set must not change them."""

    @property
    def label(self) -> str:
        """Its name in tables: the same for all seeds and scenarios."""
        return ", ".join([self.entry, *(f"{key}={format_value(value)}" for key, value in self.varied.items())])

    @property
    def name(self) -> str:
        """Its folder's name, which does not depend on the rest of the grid."""
        varied = [f"{key}={slug(format_value(value))}" for key, value in self.varied.items()]
        return "_".join(dict.fromkeys([slug(self.entry), slug(self.scenario), *varied, f"s{self.seed}"]))


@dataclass(frozen=True)
class GridBlock:
    """A product of axes, except the points that match an entry of `without`."""

    where: str
    """Its name in errors."""
    entries: Sequence[str]
    scenarios: Sequence[str | None]
    """None: the recipe's own."""
    seeds: Sequence[int | None]
    vary: Mapping[str, Sequence[Any]]
    without: Sequence[Mapping[str, Sequence[Any]]]

    def points(self) -> Iterator[tuple[str, str | None, dict[str, Any], int | None]]:
        """Every entry, scenario, varied settings and seed; seeds change fastest, so that means are complete early."""
        for entry, scenario, values, seed in itertools.product(
            self.entries, self.scenarios, itertools.product(*self.vary.values()), self.seeds
        ):
            varied = dict(zip(self.vary, values, strict=True))
            point = {"runs": entry, "scenarios": scenario, "seeds": seed, **varied}
            if not any(all(point[key] in excluded[key] for key in excluded) for excluded in self.without):
                yield entry, scenario, varied, seed


class Grid:
    """A grid's file, validated."""

    def __init__(self, values: Settings, file: Path) -> None:
        for key in values:
            if key not in KEYS:
                raise unknown("key in the grid:", key, KEYS)
        self.file, self.base = file, values.get("base")
        self.set: Settings = section(values.get("set"), "set")
        self.slurm: Settings = section(values.get("slurm"), "slurm")
        self.seeded: list[str] = as_list(values.get("seeded", ["seed"]), "seeded", str)
        self.entries = _read_entries(values.get("runs"), self.base)
        self.scenarios = _read_scenarios(values.get("scenarios"))
        whole = GridBlock("the grid", list(self.entries), list(self.scenarios) or [None], [None], {}, [])
        axes = {key: values[key] for key in AXES if key in values and key not in ("runs", "scenarios")}
        main = self._block(axes, whole, "the grid")
        also = as_list(values.get("also", []), "also", dict)
        self.blocks = [main] + [self._block(entry, main, f"also[{index}]") for index, entry in enumerate(also)]

    @classmethod
    def read(cls, file: Path) -> Grid:
        """Read a grid's file."""
        return cls(read_yaml(file, "the grid"), file)

    def runs(self) -> list[GridRun]:
        """Every run once, in the order of the file."""
        found: dict[str, GridRun] = {}
        owners: dict[str, str] = {}
        for block in self.blocks:
            for point in block.points():
                run = self._run(*point)
                if owners.setdefault(slug(run.entry), run.entry) != run.entry:
                    raise UserError(f'the runs "{owners[slug(run.entry)]}" and "{run.entry}" would have one folder.')
                if (length := len(run.name.encode())) > MAX_NAME:
                    raise UserError(
                        f'the run "{run.label}, {run.scenario}" would have a folder with a name of {length} bytes; at '
                        f"most {MAX_NAME} are possible. Give the run or its scenario a shorter name; instead of long "
                        "values in `vary`, write runs with short names."
                    )
                _require_equal(found.setdefault(run.name, run), run)
        if not found:
            raise UserError(f"the grid has no runs: {self.file}. An axis is empty, or `without` leaves nothing.")
        return list(found.values())

    def _run(self, entry: str, scenario: str | None, varied: dict[str, Any], seed: int | None) -> GridRun:
        own = {key: value for key, value in self.entries[entry].items() if key != "base"}
        if "name" in section(own.get("scenario"), f"runs.{entry}.scenario"):
            scenario = None  # an entry that names its own scenario keeps it
        of_scenario = {} if scenario is None else {"scenario": self.scenarios[scenario]}
        seeds = {} if seed is None else dict.fromkeys(self.seeded, seed)

        base = with_base({"base": self.entries[entry].get("base", self.base)}, self.file)
        settings = base
        single = [nested(key, value) for key, value in (varied | seeds).items()]
        for layer in [self.set, of_scenario, own, *single]:
            settings = lay_over(settings, layer)
        settings = _with_dataset_of_base(settings, base)

        chosen = settings.get("scenario", {})
        named = scenario or f"{chosen.get('name', '').rpartition('/')[2]} {chosen.get('setting', 'overlap')}"
        run = GridRun(
            entry=entry,
            scenario=named.removesuffix(" overlap"),
            varied=varied,
            seed=settings.get("seed", 0) if seed is None else seed,
            settings=settings,
            changes=flat(own) | varied,
            decided=dict.fromkeys(flat(of_scenario), "scenarios")
            | dict.fromkeys(flat(own), f"runs.{entry}")
            | {key: f"vary.{name}" for name, value in varied.items() for key in flat(value, name)}
            | dict.fromkeys(seeds, "seeds"),
        )
        return replace(run, settings=settings | {"name": run.label})

    def _block(self, values: Mapping[str, Any], above: GridBlock, where: str) -> GridBlock:
        for key in values:
            if key not in AXES:
                raise unknown(f"key in {where}:", key, AXES)
        block = replace(above, where=where, without=[])
        if "runs" in values:
            names = as_list(values["runs"], f"{where}: runs", str)
            block = replace(block, entries=require_known(names, self.entries, "runs", where))
        if "scenarios" in values:
            names = as_list(values["scenarios"], f"{where}: scenarios", str)
            self.scenarios |= {name: read_scenario(name) for name in names if name not in self.scenarios}
            block = replace(block, scenarios=names)
        if "seeds" in values:
            block = replace(block, seeds=as_list(values["seeds"], f"{where}: seeds", int))
        if "vary" in values:
            vary = section(values["vary"], f"{where}: vary")
            block = replace(block, vary={key: as_list(value, f"{where}: vary.{key}") for key, value in vary.items()})
        _require_no_varied_seed(block, self.seeded)
        without = as_list(values.get("without", []), f"{where}: without", dict)
        return replace(block, without=[_excluded(entry, block) for entry in without])


def _require_equal(first: GridRun, second: GridRun) -> None:
    """Raise if two runs of one name differ. A setting that one states and the other leaves at its default is equal."""
    if first.settings == second.settings:
        return
    one, other = (flat(to_dict(make_recipe(run.settings))) for run in (first, second))
    differ = sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key) and key != "name")
    if differ:
        raise UserError(
            f'the runs "{first.label}, {first.scenario}" and "{second.label}, {second.scenario}" would have one folder '
            f"({first.name}), but differ in {', '.join(differ[:5])}."
        )


def _require_no_varied_seed(block: GridBlock, seeded: Sequence[str]) -> None:
    """Raise if `vary` has a seed, or a setting that the seeds set: they would override it."""
    seeds = () if list(block.seeds) == [None] else seeded
    for name, values in block.vary.items():
        for key in (key for value in values for key in flat(value, name)):
            if key in SEEDS:
                raise UserError(
                    f"{block.where}: vary.{name}: runs that differ in {key} alone are one row of a table. "
                    f"List them under `seeds`; `seeded: [seed, data.seed]` names what a seed sets."
                )
            if key in seeds:
                raise UserError(
                    f"{block.where}: vary.{name}: the seeds set {key} already (`seeded`: {', '.join(seeded)}). "
                    f"Use `seeds` or `vary` for it, or leave {key} out of `seeded`."
                )


def _excluded(entry: Mapping[str, Any], block: GridBlock) -> dict[str, list[Any]]:
    axes: dict[str, Sequence[Any]] = {"runs": block.entries, "scenarios": block.scenarios, "seeds": block.seeds}
    axes |= block.vary
    where, result = f"{block.where}: without", {}
    for key, value in entry.items():
        if key not in axes:
            raise unknown(f"key in {where}:", key, axes)
        result[key] = require_known(value if isinstance(value, list) else [value], axes[key], key, where)
    return result


def _with_dataset_of_base(settings: Settings, base: Settings) -> Settings:
    """Where the base has voc_animals/2-1, a plain 3-1 is voc_animals/3-1: other classes would be another study."""
    names = [section(values.get("scenario"), "scenario").get("name", "") for values in (settings, base)]
    data, slash, _ = str(names[1]).rpartition("/")
    if not slash or "/" in str(names[0]):
        return settings
    return lay_over(settings, {"scenario": {"name": f"{data}/{names[0]}"}})


# ---- parts of the file ----------------------------------------------------------------------------------------------


def _read_entries(values: Any, base: Any) -> dict[str, Settings]:
    """What each entry of `runs` changes. A list names recipes; without `runs` there is the base alone."""
    if values is None:
        values = [] if base is None else {Path(str(base)).stem: {}}
    if isinstance(values, list):
        return _read_recipes(as_list(values, "runs", str))
    entries = _sections(section(values, "runs"), "runs")
    if not entries:
        raise UserError("the grid has no runs: give `base` a recipe and `runs` names with what each changes.")
    for name, changes in entries.items():
        if base is None and "base" not in changes:
            raise UserError(f"runs.{name} has no recipe: give the grid a `base`, or the run one of its own.")
    return entries


def _read_recipes(names: list[str]) -> dict[str, Settings]:
    entries: dict[str, Settings] = {}
    for name in names:
        stem = Path(name).stem
        first = entries.setdefault(stem, {"base": name})["base"]
        if first != name:
            raise UserError(
                f'the recipes {first} and {name} would both be the run "{stem}". Write `runs` with a name for each: '
                f"{{NAME: {{base: {first}}}, OTHER: {{base: {name}}}}}."
            )
    return entries


def _read_scenarios(values: Any) -> dict[str, Settings]:
    """Settings of each scenario by its name: "2-1", "2-1 disjoint", or a custom name with its settings."""
    if isinstance(values, Mapping):
        return _sections(values, "scenarios")
    return {name: read_scenario(name) for name in as_list([] if values is None else values, "scenarios", str)}


def read_scenario(text: str) -> Settings:
    """NAME or NAME SETTING.

    >>> read_scenario("2-1 disjoint")
    {'name': '2-1', 'setting': 'disjoint'}
    """
    name, _, setting = text.partition(" ")
    if setting.strip() not in ("", *get_args(Setting)):
        raise unknown(f'setting in the scenario "{text}":', setting.strip(), get_args(Setting))
    return {"name": name, "setting": setting.strip() or "overlap"}


def require_known(names: list[Any], valid: Any, axis: str, where: str) -> list[Any]:
    """The names, each of which must be valid."""
    for name in names:
        if name not in valid:
            raise unknown(axis.removesuffix("s"), name, map(str, valid), f"It stands in {where}.")
    return names


def _sections(values: Mapping[Any, Any], where: str) -> dict[str, Settings]:
    """Sections by their names. To YAML 1 and "1" are two keys, but they are one name."""
    names = as_list([str(name) for name in values], where)
    return {name: section(one, f"{where}.{name}") for name, one in zip(names, values.values(), strict=True)}


def section(values: Any, where: str) -> Settings:
    """A mapping; None is an empty one."""
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UserError(f"{where} must be a section, got {values!r}.")
    return values


def as_list(values: Any, where: str, kind: type = object) -> list[Any]:
    """A list of distinct values of one type."""
    words = {str: "texts", int: "whole numbers", dict: "sections", object: "values"}
    if not isinstance(values, list) or not all(
        isinstance(value, kind) and not (kind is int and isinstance(value, bool)) for value in values
    ):
        raise UserError(f"{where} must be a list of {words[kind]}, got {values!r}.")
    for index, value in enumerate(values):
        if value in values[:index]:
            raise UserError(f"{where} names {value!r} twice.")
    return values


def slug(text: str) -> str:
    """A part of a folder's name.

    >>> slug("ipseg w/o memory"), slug("2-1 disjoint")
    ('ipseg-w-o-memory', '2-1-disjoint')
    """
    return re.sub(r"[^\w.+-]+", "-", text).strip("-.") or "run"


def nested(key: str, value: Any) -> Settings:
    """The settings for `section.key` and its value.

    >>> nested("memory.size", 50)
    {'memory': {'size': 50}}
    """
    for part in reversed(key.split(".")):
        value = {part: value}
    assert isinstance(value, dict)
    return value


def format_value(value: Any) -> str:
    """A value as YAML writes it.

    >>> format_value(True), format_value(None), format_value(0.5), format_value("part")
    ('true', 'null', '0.5', 'part')
    """
    return value if isinstance(value, str) else json.dumps(value)
