"""A grid of runs as one YAML file: what is compared, on which scenarios, with which seeds and settings.

base: scenes_3-1_ipseg                   the recipe that every run changes
runs:                                    what is compared, by the name that tables give it, and what it changes
  ipseg: {}
  finetune: {method: {name: finetune}}
scenarios: [3-1, 2-1 disjoint]
seeds: [0, 1, 2]
also:                                    further runs; what an entry does not say is as above, but for `without`
  - {runs: [ipseg], seeds: [0], vary: {memory.size: [0, 25, 50]}}
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ipseg.apps.compare import SEEDS
from ipseg.apps.sweep_read import (
    known,
    listed,
    nested,
    read_runs,
    read_scenario,
    read_scenarios,
    require_short,
    say,
    section,
    slug,
)
from ipseg.config import Settings, flat, read_yaml, to_dict
from ipseg.engine.recipe import make_recipe
from ipseg.engine.recipe_files import lay_over, with_base
from ipseg.errors import UserError, unknown

AXES = ("runs", "scenarios", "seeds", "vary", "without")
KEYS = ("base", "set", "seeded", "slurm", "also", *AXES)


@dataclass(frozen=True)
class Cell:
    """One run of the grid."""

    run: str
    scenario: str
    varied: Mapping[str, Any]
    seed: int
    settings: Settings
    """The whole recipe, as plain values."""
    changes: Mapping[str, Any]
    """What the run itself and the varied settings change, as `section.key`."""
    decided: Mapping[str, str]
    """Where the grid says what makes this run another than the rest, by `section.key`."""

    @property
    def label(self) -> str:
        """What tables call it: the same for all seeds and scenarios."""
        return ", ".join([self.run, *(f"{key}={say(value)}" for key, value in self.varied.items())])

    @property
    def name(self) -> str:
        """Its folder, the same whatever else is in the grid."""
        varied = [f"{key}={slug(say(value))}" for key, value in self.varied.items()]
        parts = [slug(self.run), slug(self.scenario), *varied, f"s{self.seed}"]
        return "_".join(dict.fromkeys(parts))


@dataclass(frozen=True)
class Block:
    """A product of axes, less what `without` names."""

    where: str
    """How errors call it."""
    runs: Sequence[str]
    scenarios: Sequence[str | None]
    """None: the recipe's own."""
    seeds: Sequence[int | None]
    vary: Mapping[str, Sequence[Any]]
    without: Sequence[Mapping[str, Sequence[Any]]]

    def points(self) -> Iterator[tuple[str, str | None, dict[str, Any], int | None]]:
        """Every run, scenario, varied settings and seed; seeds change fastest, so that a mean is there early."""
        for run, scenario, values, seed in itertools.product(
            self.runs, self.scenarios, itertools.product(*self.vary.values()), self.seeds
        ):
            varied = dict(zip(self.vary, values, strict=True))
            point = {"runs": run, "scenarios": scenario, "seeds": seed, **varied}
            if not any(all(point[key] in left_out[key] for key in left_out) for left_out in self.without):
                yield run, scenario, varied, seed


class Grid:
    """A grid's file, read and checked."""

    def __init__(self, values: Settings, file: Path) -> None:
        for key in values:
            if key not in KEYS:
                raise unknown("key in the grid:", key, KEYS)
        self.file, self.base = file, values.get("base")
        self.set: Settings = section(values.get("set"), "set")
        self.slurm: Settings = section(values.get("slurm"), "slurm")
        self.seeded: list[str] = listed(values.get("seeded", ["seed"]), "seeded", str)
        self.runs = read_runs(values.get("runs"), self.base)
        self.scenarios = read_scenarios(values.get("scenarios"))
        first = Block("the grid", list(self.runs), list(self.scenarios) or [None], [None], {}, [])
        axes = {key: values[key] for key in AXES if key in values and key not in ("runs", "scenarios")}
        main = self._block(axes, first, "the grid")
        also = listed(values.get("also", []), "also", dict)
        self.blocks = [main] + [self._block(entry, main, f"also[{index}]") for index, entry in enumerate(also)]

    @classmethod
    def read(cls, file: Path) -> Grid:
        """A grid by its file."""
        return cls(read_yaml(file, "the grid"), file)

    def cells(self) -> list[Cell]:
        """Every run once, in the order of the file."""
        found: dict[str, Cell] = {}
        owners: dict[str, str] = {}
        for block in self.blocks:
            for point in block.points():
                cell = self._cell(*point)
                if owners.setdefault(slug(cell.run), cell.run) != cell.run:
                    raise UserError(f'the runs "{owners[slug(cell.run)]}" and "{cell.run}" would have one folder.')
                require_short(cell.name, f"{cell.label}, {cell.scenario}")
                _require_alike(found.setdefault(cell.name, cell), cell)
        if not found:
            raise UserError(f"the grid has no runs: {self.file}. An axis is empty, or `without` leaves nothing.")
        return list(found.values())

    def _cell(self, run: str, scenario: str | None, varied: dict[str, Any], seed: int | None) -> Cell:
        own = {key: value for key, value in self.runs[run].items() if key != "base"}
        if "name" in section(own.get("scenario"), f"runs.{run}.scenario"):
            scenario = None  # a run that names its own keeps it
        seeds = {} if seed is None else dict.fromkeys(self.seeded, seed)
        settings = self._settings(run, scenario, own, varied | seeds)
        chosen = settings.get("scenario", {})
        named = scenario or f"{chosen.get('name', '').rpartition('/')[2]} {chosen.get('setting', 'overlap')}"
        cell = Cell(
            run=run,
            scenario=named.removesuffix(" overlap"),
            varied=varied,
            seed=settings.get("seed", 0) if seed is None else seed,
            settings=settings,
            changes=flat(own) | varied,
            decided=dict.fromkeys(flat(self._scenario(scenario)), "scenarios")
            | dict.fromkeys(flat(own), f"runs.{run}")
            | {key: f"vary.{name}" for name, value in varied.items() for key in flat(value, name)}
            | dict.fromkeys(seeds, "seeds"),
        )
        return replace(cell, settings=settings | {"name": cell.label})

    def _settings(self, run: str, scenario: str | None, own: Settings, assigned: Mapping[str, Any]) -> Settings:
        """The base, and over it what holds for all, the scenario, the run's own changes and single settings."""
        base = with_base({"base": self.runs[run].get("base", self.base)}, self.file)
        layers = [self.set, self._scenario(scenario), own]
        settings = base
        for layer in [*layers, *(nested(key, value) for key, value in assigned.items())]:
            settings = lay_over(settings, layer)
        return _of_the_same_classes(settings, base)

    def _scenario(self, scenario: str | None) -> Settings:
        return {} if scenario is None else {"scenario": self.scenarios[scenario]}

    def _block(self, values: Mapping[str, Any], above: Block, where: str) -> Block:
        for key in values:
            if key not in AXES:
                raise unknown(f"key in {where}:", key, AXES, "`set`, `base` and `seeded` hold for the whole grid.")
        block = replace(above, where=where)
        if "runs" in values:
            block = replace(block, runs=known(listed(values["runs"], f"{where}: runs", str), self.runs, "run", where))
        if "scenarios" in values:
            names = listed(values["scenarios"], f"{where}: scenarios", str)
            self.scenarios |= {name: read_scenario(name) for name in names if name not in self.scenarios}
            block = replace(block, scenarios=names)
        if "seeds" in values:
            block = replace(block, seeds=listed(values["seeds"], f"{where}: seeds", int))
        if "vary" in values:
            vary = section(values["vary"], f"{where}: vary")
            block = replace(block, vary={key: listed(value, f"{where}: vary.{key}") for key, value in vary.items()})
        _require_apart(block, self.seeded)
        entries = listed(values.get("without", []), f"{where}: without", dict)
        return replace(block, without=[_left_out(entry, block) for entry in entries])


def _require_alike(first: Cell, second: Cell) -> None:
    """Raise if two cells of one folder are different runs. What one says and the other leaves as it is, is alike."""
    if first.settings == second.settings:
        return
    one, other = (flat(to_dict(make_recipe(cell.settings))) for cell in (first, second))
    differ = sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key) and key != "name")
    if differ:
        raise UserError(
            f'the runs "{first.label}, {first.scenario}" and "{second.label}, {second.scenario}" would have one folder '
            f"({first.name}), but differ in {', '.join(differ[:5])}."
        )


def _require_apart(block: Block, seeded: Sequence[str]) -> None:
    """Raise if a seed is varied, or what the seeds set: they go over it, and labels would tell the varied value."""
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


def _left_out(entry: Mapping[str, Any], block: Block) -> dict[str, list[Any]]:
    axes: dict[str, Sequence[Any]] = {"runs": block.runs, "scenarios": block.scenarios, "seeds": block.seeds}
    axes |= block.vary
    result = {}
    for key, value in entry.items():
        if key not in axes:
            raise unknown(f"key in {block.where}: without:", key, axes)
        result[key] = known(value if isinstance(value, list) else [value], axes[key], key, f"{block.where}: without")
    return result


def _of_the_same_classes(settings: Settings, base: Settings) -> Settings:
    """Where the base says voc_animals/2-1, a plain 3-1 is voc_animals/3-1: other classes would be another study."""
    names = [section(values.get("scenario"), "scenario").get("name", "") for values in (settings, base)]
    data, slash, _ = str(names[1]).rpartition("/")
    if not slash or "/" in str(names[0]):
        return settings
    return lay_over(settings, {"scenario": {"name": f"{data}/{names[0]}"}})
