"""Runs side by side: where their results are, which of them differ in seeds alone, and what the paper says."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ipseg.config import Settings, flat, read_yaml, to_dict
from ipseg.data.registry import DATA_SETS
from ipseg.engine.folder import FREE
from ipseg.engine.recipe import make_recipe
from ipseg.errors import UserError
from ipseg.evaluation.metrics import miou_groups
from ipseg.evaluation.results import RunResult
from ipseg.files import read_plain
from ipseg.methods.registry import METHODS
from ipseg.parsing import MOST_JSON, parse_json
from ipseg.report.compare import Entry, Section, sections
from ipseg.report.paper import published_for
from ipseg.report.places import Place

SEEDS = {"seed", "data.seed"}
OURS = {"data": DATA_SETS, "method": METHODS}
MAIN = ("tab:voc_res", "tab:ade_res", "tab:voc_res_disjoint")
"""The paper's tables of results, where it says a number twice."""
WANTED = "Give a run's folder, its results.json, or a sweep's folder; `ipseg train` and `ipseg sweep` make them."


def compare(paths: Sequence[Path]) -> list[Section]:
    """The runs of these folders, results.json files and sweeps, a section for every scenario."""
    files = list(dict.fromkeys(file.resolve() for path in paths for file in find_results(path)))
    return sections(with_bounds(repeats_apart([read_entry(file) for file in files])))


def find_results(path: Path) -> list[Path]:
    """The results that a path stands for: a file, a run's folder, or a folder of runs such as a sweep's."""
    if path.is_file() and path.suffix.lower() != ".json":
        raise UserError(f"{path} is no results.json. {WANTED}")
    if path.is_file():
        return [path]
    if (path / "results.json").is_file():
        return [path / "results.json"]
    if (path / "run.json").is_file():
        raise UserError(f"{path} is a run that has not finished a step: there is nothing to compare yet.")
    places = ("*/results.json", "runs/*/results.json", "*/runs/*/results.json")  # runs, of a sweep, of several
    found = sorted((file for place in places for file in path.glob(place)), key=_in_the_order_of(path))
    if not found:
        raise UserError(f"no results in {path}. {WANTED}")
    return found


def _in_the_order_of(sweep: Path) -> Any:
    """As a sweep's grid lists them; others by name."""
    try:
        names = [run["name"] for run in parse_json(read_plain(sweep / "sweep.json", MOST_JSON))["runs"]]
    except (OSError, ValueError, KeyError, TypeError):
        names = []  # no sweep, or one that cannot be read: by name will do
    places = {name: place for place, name in enumerate(names)}
    return lambda file: (places.get(file.parent.name, len(places)), str(file))


def repeats_apart(entries: Sequence[Entry]) -> list[Entry]:
    """A finished run with the settings and seeds of another, a copy or a second try, is no further seed of its row."""
    often: Counter[tuple[str, ...]] = Counter()
    apart = []
    for entry in entries:
        key = (entry.group, str(entry.result.seed), str(entry.data_seed))
        again, often[key] = often[key], often[key] + entry.result.complete
        apart.append(_repeat(entry, again) if again and entry.result.complete else entry)
    return apart


def _repeat(entry: Entry, again: int) -> Entry:
    name = f"{entry.result.name} (again{f' {again}' if again > 1 else ''})"
    return replace(entry, group=f"{entry.group} {name}", result=replace(entry.result, name=name))


def read_entry(file: Path) -> Entry:
    """A run by its results; its recipe stands beside them in its folder."""
    try:
        result = RunResult.read(file)
    except (KeyError, TypeError) as error:
        raise UserError(f"{file} is not the results.json of a run ({type(error).__name__}: {error}).") from error
    recipe = file.with_name("recipe.yaml")
    values = _complete(read_yaml(recipe, "the run's recipe")) if recipe.is_file() else {}
    settings = {key: value for key, value in flat(values).items() if key not in FREE | SEEDS}
    told = settings or {str(key): value for key, value in result.info.items()}  # a lone file knows little more
    try:
        paper = paper_number(values, result) if values else None
    except (KeyError, TypeError, AttributeError):  # its recipe lacks sections, or has values in their places
        paper = None
    alike = [result.method, result.scenario, result.setting, result.oracle, "" if settings else result.name]
    return Entry(
        result=result,
        group=json.dumps([alike, sorted(told.items())], default=str),
        settings=told,
        data_seed=flat(values).get("data.seed"),
        paper=paper,
        folder=file.parent if (file.parent / "run.json").is_file() else None,
    )


def _complete(recipe: Settings) -> Settings:
    """With the defaults of settings that came after the run: it is no other row for that.

    Only of classes that are ours. To read results imports nothing that a run's folder names.
    """
    others = {section: given for section in OURS if (given := recipe.get(section)) and not _is_ours(section, given)}
    try:
        completed: Settings = to_dict(make_recipe({key: recipe[key] for key in recipe.keys() - others.keys()}))
    except UserError:  # of an ipseg that knows more or less
        return recipe
    return completed | others


def _is_ours(section: str, given: Any) -> bool:
    return isinstance(given, dict) and ("name" not in given or str(given["name"]) in OURS[section])


def paper_number(recipe: Settings, result: RunResult) -> float | None:
    """The paper's mIoU over all classes, if data, scenario, setting, method, backbone and memory are the paper's."""
    data, _, name = result.scenario.rpartition("/")
    scenario = recipe["scenario"]
    if data != recipe["data"]["name"] or any(scenario.get(key) for key in ("order", "classes", "steps")):
        return None  # some of the classes, or in another order
    if recipe.get("evaluation", {}).get("held_out"):
        return None  # measured on other pictures
    numbers = published_for(recipe | {"scenario": scenario | {"name": name}})
    found = [number for number in numbers if (number.measure, number.group) == ("miou", "all") and number.last]
    main = [number for number in found if number.where in MAIN] or found
    return main[0].value if main else None


def with_bounds(entries: Sequence[Entry]) -> list[Entry]:
    """Joint training stands in the table of every scenario that ends with the same classes, grouped as that one.

    Not beside runs that were measured on other pictures, as grown ones are.
    """
    rivals = [entry for entry in entries if not _joint(entry)]
    places: dict[Place, Entry] = {}
    for run in (entry for entry in rivals if entry.result.complete and entry.result.steps):
        if not run.result.grown:
            places.setdefault(run.place, run)
    bounds = []
    for joint in filter(_joint, entries):
        fitting = [run for run in places.values() if _comparable(joint, run)]
        bounds += [_as_bound(joint, run) for run in fitting] or [joint]
    return rivals + bounds


def _as_bound(joint: Entry, run: Entry) -> Entry:
    last, rival = joint.result.steps[-1], run.result
    base, new = rival.steps[0].new, [name for step in rival.steps[1:] for name in step.new]
    regrouped = replace(last, miou=miou_groups(last.iou, base, new))
    result = replace(joint.result, scenario=rival.scenario, setting=rival.setting, steps=(regrouped,))
    return replace(joint, result=result, bound=True, compared_in=run.place.learned)


def _joint(entry: Entry) -> bool:
    return entry.result.complete and bool(entry.result.steps) and entry.result.scenario.endswith("/joint")


def _comparable(joint: Entry, run: Entry) -> bool:
    """Whether both ended with the same classes of the same data, measured on the same pictures."""
    one, other = ((entry.result.scenario.rpartition("/")[0], entry.held_out) for entry in (joint, run))
    return one == other and set(joint.result.steps[-1].iou) == set(run.result.steps[-1].iou)
