"""A grid of runs as one YAML file: methods, scenarios, seeds and settings.

base: scenes_3-1_ipseg                   the recipe that every run changes
runs:                                    the name of each row in tables, and its changes
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
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from ipseg.config import Settings, flat, read_yaml, to_dict
from ipseg.errors import UserError, unknown
from ipseg.scenario import Setting
from ipseg.training.recipe import make_recipe
from ipseg.training.recipe_files import merge_settings, with_base, with_overrides

AXES = ("runs", "scenarios", "seeds", "vary", "without")
KEYS = ("base", "set", "seeded", "slurm", "also", *AXES)
Point = dict[str, Any]
"""A value of each axis: runs, scenarios, seeds, and the settings that vary."""
KINDS: dict[str, Any] = {
    "texts": str,
    "names": (str, NoneType),
    "whole numbers": (int, NoneType),
    "sections": dict,
    "values": object,
}
"""Of lists. An axis that the file does not name has the one value None: the recipe's own."""
SEEDS = {"seed", "data.seed"}
"""Runs that differ in these settings alone are one row of a table."""
MAX_RUNS = 1000
"""Of one grid, before `without`: a few lines of YAML can ask for millions."""
MAX_NAME = 255 - len(".base_step.exit")
"""Bytes. Common file systems allow 255 per name, and files are named after a run: logs/NAME.log, for example."""


@dataclass(frozen=True)
class GridRun:
    entry: str
    """Its key in `runs`."""
    scenario: str
    varied: Mapping[str, Any]
    seed: int
    settings: Settings
    """The whole recipe, as plain values."""
    changes: Mapping[str, Any]
    """What the entry and `vary` change, by `section.key`."""

    @property
    def label(self) -> str:
        """Its name in tables: the same for all seeds and scenarios."""
        return ", ".join([self.entry, *(f"{key}={format_value(value)}" for key, value in self.varied.items())])

    @property
    def name(self) -> str:
        """Its folder's name, which does not depend on the rest of the grid."""
        varied = [f"{key}={slug(format_value(value))}" for key, value in self.varied.items()]
        return "_".join(dict.fromkeys([slug(self.entry), slug(self.scenario), *varied, f"s{self.seed}"]))


class Grid:
    def __init__(self, values: Settings, file: Path) -> None:
        _require_known(values, KEYS, "key in the grid:")
        self.file, self.base = file, values.get("base")
        self.set = _section(values.get("set"), "set")
        self.slurm = _section(values.get("slurm"), "slurm")
        self.seeded: list[str] = _list(values.get("seeded", ["seed"]), "seeded", "texts")
        self.entries = _read_entries(values.get("runs"), self.base)
        self.scenarios = _read_scenarios(values.get("scenarios"))
        main: Settings = {"runs": list(self.entries), "scenarios": list(self.scenarios) or [None], "seeds": [None]}
        main |= {key: values[key] for key in ("seeds", "vary", "without") if key in values}
        self._count = 0
        self.points = list(self._points(main, "the grid"))
        for index, changes in enumerate(_list(values.get("also", []), "also", "sections")):
            self.points += self._points(main | {"without": []} | changes, f"also[{index}]")

    @classmethod
    def read(cls, file: Path) -> Grid:
        return cls(read_yaml(file, "the grid"), file)

    def runs(self, assignments: Sequence[str] = ()) -> list[GridRun]:
        """Every run once, in the order of the file. assignments: of --set, for settings that the grid does not set."""
        found: dict[str, GridRun] = {}
        for point in self.points:
            run = self._run(point, assignments)
            if len(run.name.encode()) > MAX_NAME:
                raise UserError(
                    f'the run "{run.label}, {run.scenario}" would have files with too long a name; at most {MAX_NAME} '
                    "bytes are possible. Give the run or its scenario a shorter name; instead of long values in "
                    "`vary`, write runs with short names."
                )
            _require_equal(found.setdefault(run.name, run), run)
        if not found:
            raise UserError(f"the grid has no runs: {self.file}. An axis is empty, or `without` leaves nothing.")
        return list(found.values())

    def _points(self, block: Settings, where: str) -> Iterator[Point]:
        """The product of a block's axes, except the points that match an entry of its `without`."""
        _require_known(block, AXES, f"key in {where}:")
        scenarios = _list(block["scenarios"], f"{where}: scenarios", "names")
        self.scenarios |= {name: read_scenario(name) for name in scenarios if name and name not in self.scenarios}
        vary = _section(block.get("vary"), f"{where}: vary")
        axes = {
            "runs": _list(block["runs"], f"{where}: runs", "texts"),
            "scenarios": scenarios,
            **{key: _list(values, f"{where}: vary.{key}") for key, values in vary.items()},
            "seeds": _list(block["seeds"], f"{where}: seeds", "whole numbers"),  # fastest: means are complete early
        }
        _require_known(axes["runs"], self.entries, "run", f"See {where}.")
        for name, values in vary.items():
            if name in AXES:
                raise UserError(f"{where}: vary.{name} is no setting; `{name}` goes beside `vary`.")
            if fixed := SEEDS.union(self.seeded) & {key for value in values for key in flat(value, name)}:
                raise UserError(
                    f"{where}: vary.{name}: {', '.join(sorted(fixed))} is for `seeds` to set. Runs that differ in "
                    "seeds alone are one row of a table; `seeded: [seed, data.seed]` names the settings of a seed."
                )
        without = []
        for entry in _list(block.get("without", []), f"{where}: without", "sections"):
            _require_known(entry, axes, f"key in {where}: without:")
            without.append({key: value if isinstance(value, list) else [value] for key, value in entry.items()})
            for key, values in without[-1].items():
                _require_known(values, axes[key], key.removesuffix("s"), f"See {where}: without.")
        self._count += math.prod(map(len, axes.values()))
        if self._count > MAX_RUNS:
            raise UserError(
                f"{where} makes {self._count:,} runs; at most {MAX_RUNS:,} are planned at once. Give fewer values, or "
                "write several grids."
            )
        for chosen in itertools.product(*axes.values()):
            point = dict(zip(axes, chosen, strict=True))
            if not any(all(point[key] in excluded[key] for key in excluded) for excluded in without):
                yield point

    def _run(self, point: Point, assignments: Sequence[str]) -> GridRun:
        entry, scenario, seed = (point[axis] for axis in ("runs", "scenarios", "seeds"))
        varied = {key: value for key, value in point.items() if key not in AXES}
        own = {key: value for key, value in self.entries[entry].items() if key != "base"}
        if "name" in _section(own.get("scenario"), f"runs.{entry}.scenario"):
            scenario = None  # an entry that names its own scenario keeps it
        of_scenario = {} if scenario is None else {"scenario": self.scenarios[scenario]}
        seeds = {} if seed is None else dict.fromkeys(self.seeded, seed)

        base = with_base({"base": self.entries[entry].get("base", self.base)}, self.file)
        layers = [of_scenario, own, *(nested(key, value) for key, value in (varied | seeds).items())]
        common, *layers = (_with_dataset_of(base, layer) for layer in (self.set, *layers))
        settings = with_overrides(reduce(merge_settings, layers, merge_settings(base, common)), assignments)
        chosen = _section(settings.get("scenario"), "scenario")
        named = scenario or f"{str(chosen.get('name', '')).rpartition('/')[2]} {chosen.get('setting', 'overlap')}"
        run = GridRun(
            entry=entry,
            scenario=named.removesuffix(" overlap"),
            varied=varied,
            seed=settings.get("seed", 0) if seed is None else seed,
            settings=settings,
            changes=flat(own) | varied,
        )
        _require_kept(run, reduce(merge_settings, layers, settings))
        return replace(run, settings=settings | {"name": run.label})


def _require_kept(run: GridRun, kept: Settings) -> None:
    """Raise if --set changes a value of the grid: the run's name would not tell it."""
    before, after = flat(kept), flat(run.settings)
    if changed := [key for key in before if before[key] != after.get(key)]:
        raise UserError(
            f"the grid's run {run.name}: --set would change {changed[0]}, which the grid sets and names its runs by. "
            "Change it in the grid; --set is for what neither a run, a scenario, `vary` nor a seed sets."
        )


def _require_equal(first: GridRun, second: GridRun) -> None:
    """Raise if two runs of one name differ. A setting that one states and the other leaves at its default is equal."""
    if first.settings == second.settings:
        return
    one, other = (flat(to_dict(make_recipe(run.settings))) for run in (first, second))
    differ = sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))
    if differ:
        raise UserError(
            f'the runs "{first.label}, {first.scenario}" and "{second.label}, {second.scenario}" would have one folder '
            f"({first.name}), but differ in {', '.join(differ[:5])}."
        )


def _with_dataset_of(base: Settings, layer: Settings) -> Settings:
    """Where the base has voc_animals/2-1, a plain 3-1 is voc_animals/3-1: other classes would be another study."""
    dataset, slash, _ = str(_section(base.get("scenario"), "scenario").get("name", "")).rpartition("/")
    name = str(_section(layer.get("scenario"), "scenario").get("name", "/"))
    return layer if "/" in name else merge_settings(layer, {"scenario": {"name": f"{dataset}{slash}{name}"}})


# ---- parts of the file ----------------------------------------------------------------------------------------------


def _read_entries(values: Any, base: Any) -> dict[str, Settings]:
    """The changes of each entry of `runs`. A list names recipes; without `runs` the base alone."""
    if values is None:
        values = {} if base is None else {Path(str(base)).stem: {}}
    if isinstance(values, list):
        names = _list(values, "runs", "texts")
        values = {Path(name).stem: {"base": name} for name in names}
        if len(values) < len(names):
            raise UserError("two recipes in `runs` have one name. Write {NAME: {base: FILE}, OTHER: {base: FILE}}.")
    entries = _sections(values, "runs")
    if not entries:
        raise UserError("the grid has no runs: give `base` a recipe and `runs` names with the changes of each.")
    for name, changes in entries.items():
        if base is None and "base" not in changes:
            raise UserError(f"runs.{name} has no recipe: give the grid a `base`, or the run one of its own.")
    return entries


def _read_scenarios(values: Any) -> dict[str, Settings]:
    """Settings of each scenario by its name: "2-1", "2-1 disjoint", or a custom name with its settings."""
    if isinstance(values, Mapping):
        return _sections(values, "scenarios")
    return {name: read_scenario(name) for name in _list([] if values is None else values, "scenarios", "texts")}


def read_scenario(text: str) -> Settings:
    """NAME or NAME SETTING.

    >>> read_scenario("2-1 disjoint")
    {'name': '2-1', 'setting': 'disjoint'}
    """
    name, _, setting = text.partition(" ")
    if setting.strip() not in ("", *get_args(Setting)):
        raise unknown(f'setting in the scenario "{text}":', setting.strip(), get_args(Setting))
    return {"name": name, "setting": setting.strip() or "overlap"}


def _require_known(names: Iterable[Any], valid: Iterable[Any], kind: str, hint: str = "") -> None:
    for name in names:
        if name not in valid:
            raise unknown(kind, name, map(str, valid), hint)


def _sections(values: Any, where: str) -> dict[str, Settings]:
    for name in _section(values, where):
        if not isinstance(name, str):
            raise UserError(f'{where}: the name {name!r} is not text; write "{name}".')
    return {name: _section(value, f"{where}.{name}") for name, value in values.items()}


def _section(values: Any, where: str) -> Settings:
    if not isinstance(values, (dict, NoneType)):
        raise UserError(f"{where} must be a section, got {values!r}.")
    return values or {}


def _list(values: Any, where: str, kind: str = "values") -> list[Any]:
    valid = isinstance(values, list) and all(isinstance(value, KINDS[kind]) for value in values)
    if not valid or (kind == "whole numbers" and any(isinstance(value, bool) for value in values)):
        raise UserError(f"{where} must be a list of {kind}, got {values!r}.")
    return list(values)


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
    return reduce(lambda inner, part: {part: inner}, reversed(key.split(".")), value)


def format_value(value: Any) -> str:
    """A value as YAML writes it.

    >>> format_value(True), format_value(None), format_value(0.5), format_value("part")
    ('true', 'null', '0.5', 'part')
    """
    return value if isinstance(value, str) else json.dumps(value)
