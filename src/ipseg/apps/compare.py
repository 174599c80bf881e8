"""`ipseg compare`: find results, read runs, list joint training as a bound, look up the paper's numbers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ipseg.config import Settings, flat, read_yaml, to_dict
from ipseg.data.registry import DATA_SETS
from ipseg.errors import UserError
from ipseg.evaluation.metrics import miou_groups
from ipseg.evaluation.results import RunResult
from ipseg.files import read_plain
from ipseg.methods.registry import METHODS
from ipseg.parsing import MAX_JSON_BYTES, parse_json
from ipseg.report.compare import ComparedRun, ResultTable, Setup, make_tables
from ipseg.report.paper import published_for
from ipseg.sweep.grid import SEEDS
from ipseg.training.recipe import RUNTIME, make_recipe

SHIPPED, DEFAULT = {"data": DATA_SETS, "method": METHODS}, {"data": "scenes", "method": "ipseg"}
MAIN = ("tab:voc_res", "tab:ade_res", "tab:voc_res_disjoint")
"""The paper's main tables: they win where it has two numbers."""
WANTED = "Give a run's folder, its results.json, or a sweep's folder; `ipseg train` and `ipseg sweep` make them."


def compare(paths: Sequence[Path]) -> list[ResultTable]:
    """The runs of these folders, results.json files and sweeps, in a table for every setup."""
    files = list(dict.fromkeys(file.resolve() for path in paths for file in find_results(path)))
    return make_tables(with_bounds(separate_repeats([read_run(file) for file in files])))


def find_results(path: Path) -> list[Path]:
    """The results.json files of a path: a file, a run's folder, or a folder of runs such as a sweep's."""
    if path.is_file() and path.suffix.lower() != ".json":
        raise UserError(f"{path} is no results.json. {WANTED}")
    if path.is_file():
        return [path]
    if (path / "results.json").is_file():
        return [path / "results.json"]
    if (path / "run.json").is_file():
        raise UserError(f"{path} is a run that has not finished a step: there is nothing to compare yet.")
    try:
        names = [run["name"] for run in parse_json(read_plain(path / "sweep.json", MAX_JSON_BYTES))["runs"]]
    except (OSError, ValueError, KeyError, TypeError):
        names = []  # no sweep, or one that cannot be read: sorted by name
    order = {name: place for place, name in enumerate(names)}  # as the grid lists them
    places = ("*/results.json", "runs/*/results.json", "*/runs/*/results.json")  # runs, of a sweep, of several
    found = (file for place in places for file in path.glob(place))
    files = sorted(found, key=lambda file: (order.get(file.parent.name, len(order)), str(file)))
    if not files:
        raise UserError(f"no results in {path}. {WANTED}")
    return files


def read_run(file: Path) -> ComparedRun:
    """A results.json and the recipe beside it, if there is one."""
    try:
        result = RunResult.read(file)
    except (KeyError, TypeError) as error:
        raise UserError(f"{file} is not the results.json of a run ({type(error).__name__}: {error}).") from error
    recipe = file.with_name("recipe.yaml")
    values = _complete(read_yaml(recipe, "the run's recipe")) if recipe.is_file() else {}
    settings = {key: value for key, value in flat(values).items() if key not in RUNTIME | SEEDS}
    known = settings or {str(key): value for key, value in result.info.items()}  # a lone file knows little more
    try:
        paper = paper_number(values, result) if values else None
    except (KeyError, TypeError, AttributeError):  # its recipe lacks sections, or has values in their places
        paper = None
    alike = [result.method, result.scenario, result.setting, result.oracle, "" if settings else result.name]
    return ComparedRun(
        result=result,
        group=json.dumps([alike, sorted(known.items())], default=str),
        settings=known,
        data_seed=flat(values).get("data.seed"),
        paper=paper,
        folder=file.parent if (file.parent / "run.json").is_file() else None,
    )


def separate_repeats(runs: Sequence[ComparedRun]) -> list[ComparedRun]:
    """A finished run with the settings and seeds of another, such as a copy, is no further seed of its row."""
    often: Counter[tuple[str, int, str]] = Counter()
    separate = []
    for run in runs:
        key = (run.group, run.result.seed, str(run.data_seed))
        again = often[key] if run.result.complete else 0
        often[key] += run.result.complete
        if again:
            name = f"{run.result.name} (again{f' {again}' if again > 1 else ''})"
            run = replace(run, group=f"{run.group} {name}", result=replace(run.result, name=name))  # noqa: PLW2901
        separate.append(run)
    return separate


def _complete(recipe: Settings) -> Settings:
    """With the defaults of settings that are newer than the run, so that it shares a row with newer ones.

    Only for classes of this package: reading results imports nothing that a run's folder names.
    """
    own = {
        key: given
        for key, given in recipe.items()
        if key not in SHIPPED or (isinstance(given, dict) and str(given.get("name", DEFAULT[key])) in SHIPPED[key])
    }
    try:
        completed: Settings = to_dict(make_recipe(own))
    except UserError:  # of an ipseg that knows more or less
        return recipe
    return completed | {key: recipe[key] for key in recipe.keys() - own.keys()}


def paper_number(recipe: Settings, result: RunResult) -> float | None:
    """The paper's mIoU over all classes, if data, scenario, setting, method, backbone and memory are the paper's."""
    data, _, name = result.scenario.rpartition("/")
    scenario = recipe["scenario"]
    if data != recipe["data"]["name"] or any(scenario.get(key) for key in ("order", "classes", "steps")):
        return None  # some of the classes, or in another order
    if recipe.get("evaluation", {}).get("held_out"):
        return None  # measured on other images
    numbers = published_for(recipe | {"scenario": scenario | {"name": name}})
    found = [number for number in numbers if (number.measure, number.group) == ("miou", "all") and number.last]
    main = [number for number in found if number.where in MAIN] or found
    return main[0].value if main else None


def with_bounds(runs: Sequence[ComparedRun]) -> list[ComparedRun]:
    """List joint training in the table of every setup with the same classes of the same data, grouped as that one.

    Not in those of extended runs: they are measured on other images.
    """
    joint = [run for run in runs if run.result.complete and run.result.scenario.endswith("/joint") and run.result.steps]
    rest = [run for run in runs if run not in joint]
    setups: dict[Setup, ComparedRun] = {}
    for run in rest:
        if run.result.complete and run.result.steps and not run.result.extended:
            setups.setdefault(run.setup, run)
    bounds = []
    for run in joint:
        last, data = run.result.steps[-1], run.result.scenario.rpartition("/")[0]
        listed = []
        for setup, other in setups.items():
            same_images = (data, run.setup.held_out) == (setup.scenario.rpartition("/")[0], setup.held_out)
            if same_images and set(last.iou) == set(other.result.steps[-1].iou):
                new = [name for step in setup.steps[1:] for name in step]
                regrouped = replace(last, miou=miou_groups(last.iou, setup.steps[0], new))
                result = replace(run.result, scenario=setup.scenario, setting=setup.setting, steps=(regrouped,))
                listed.append(replace(run, result=result, bound=True, compared_in=setup.steps))
        bounds += listed or [run]
    return rest + bounds
