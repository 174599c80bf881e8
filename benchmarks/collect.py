"""What is small and needed of a sweep, as one JSON line a run, for the repository: tables and figures are made of it.

    python benchmarks/collect.py runs/main --out benchmarks/results/NAME.jsonl
    python benchmarks/collect.py runs/main --grid main.yaml --out benchmarks/results/NAME.jsonl

A line is the run's results.json with the confusion matrix of the last step alone, and beside it
    run          its folder's name in the sweep
    settings     its whole recipe, since defaults change; of paths the last part alone
    training     of every step iterations, images a second and seconds; null for a step that was taken from another run
    parameters   of the network after every step
    paper        the paper's mIoU over all classes, where the setting is the paper's
    commit       what it ran from, and `torch` what with
Runs that are not finished are left out and named on stderr; the sweep may go on meanwhile.

With --grid it is enough that sweep.json and every results.json were kept: the settings are those that the grid has
today, so name the grid that was run. What only the runs' folders knew is null then: training, commit and torch.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ipseg.apps.compare import SEEDS, paper_number
from ipseg.config import Settings, flat, to_dict, to_yaml
from ipseg.errors import WRONG, UserError
from ipseg.evaluation.results import RunResult
from ipseg.files import read_json, write_text
from ipseg.models.network import count_parameters
from ipseg.own_code import code_allowed
from ipseg.report.compare import Run
from ipseg.scenario.split import Scenario
from ipseg.sweep.grid import Grid
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import RUNTIME, Recipe, make_recipe

DIGITS = 6
"""Of fractions: a ten-thousandth of a point of mIoU."""
ALIKE = SEEDS | {"training.compile", "name", "scenario.name"}
"""Runs that differ in these are one row: what is compiled only rounds otherwise, and results name their scenario."""
Line = dict[str, Any]


def collect(sweep: Path, grid: Path | None = None) -> tuple[list[Line], list[str]]:
    """The finished runs, in the order of the grid, and what the others are."""
    recipes = recipes_of(grid) if grid else None
    plan = read_json(sweep / "sweep.json", "the plan of the sweep (is this a folder that `ipseg sweep` made?)", 1)
    lines, left_out = [], []
    networks: dict[str, list[int]] = {}
    for run in plan["runs"]:
        folder = RunFolder(sweep / "runs" / run["name"])
        results = folder.path / "results.json"
        result = RunResult.read(results) if results.is_file() else None
        measured = len(result.steps) if result else 0
        if result is None or measured < run["steps"]:
            left_out.append(f"{run['name']}: {measured} of {run['steps']} steps")
            continue
        try:
            lines.append(line_of(folder, result, networks, recipes))
        except UserError as error:
            raise UserError(f"the run {run['name']}: {error}") from error
    return lines, left_out


def recipes_of(grid: Path) -> dict[str, Settings]:
    """What a grid's runs are made with, whole, by their folders' names."""
    return {run.name: yaml.safe_load(to_yaml(make_recipe(run.settings))) for run in Grid.read(grid).runs()}


def line_of(
    folder: RunFolder,
    result: RunResult,
    networks: dict[str, list[int]],
    recipes: dict[str, Settings] | None = None,
) -> Line:
    """One finished run. `networks` knows the parameters of those before it, `recipes` all that has no folder."""
    name, told = folder.path.name, result.to_json()
    if recipes is not None and name not in recipes:
        raise UserError("the grid does not have it; name the one that was run.")
    values = folder.settings() if recipes is None else recipes[name]
    recipe = make_recipe(values)
    for step in told["steps"][:-1]:
        del step["confusion"]
    made_by = read_json(folder.path / "run.json", "the run's description") if recipes is None else {}
    return {
        "run": name,
        **_rounded(told),
        "settings": settings_of(values),
        "training": training(folder.path / "log.jsonl", recipe.training.batch_size, len(result.steps)),
        "parameters": parameters(recipe, _scenario(folder, recipe), networks),
        "paper": paper_number(values, result),
        "commit": (made_by.get("git") or {}).get("commit"),
        "torch": made_by.get("versions", {}).get("torch"),
    }


def _scenario(folder: RunFolder, recipe: Recipe) -> Scenario:
    if (folder.path / "run.json").is_file():
        return folder.scenario(recipe)  # its data may be gone
    splits = recipe.data.build()
    return recipe.scenario.build(splits.name, splits.classes)


def settings_of(recipe: Settings) -> dict[str, Any]:
    """The recipe as `section.key`, without what may change in a run that goes on."""
    return {key: _place(value) for key, value in flat(recipe).items() if key not in RUNTIME | {"seed"}}


@cache
def _defaults(method: str) -> dict[str, Any]:
    """What a line may say nothing of: earlier ones have their data and what was not the default alone."""
    try:
        recipe = make_recipe({"method": {"name": method}, "scenario": {"name": "1-1"}})
    except UserError:  # a method that is not installed here
        return {}
    return {key: value for key, value in settings_of(to_dict(recipe)).items() if not key.startswith("data.")}


def _place(value: Any) -> Any:
    """Where things lie on a machine is nobody's business, what they are called is."""
    return Path(value).name if isinstance(value, str) and value.startswith(("/", ".", "~")) else value


def training(log: Path, batch_size: int, steps: int) -> list[Line | None]:
    """How fast each step was learned.

    The last line about a step has its mean speed since it was begun, or gone on with after a cut. The seconds are what
    the whole step takes at this speed, so that a night between two halves does not count.
    """
    last: dict[int, Line] = {}
    for text in log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []:
        try:
            entry = json.loads(text)
        except json.JSONDecodeError:
            continue  # cut short by a crash
        if isinstance(entry, dict) and entry.get("event") == "train":
            last[entry["step"]] = entry
    return [_speed(last[step], batch_size) if step in last else None for step in range(steps)]


def _speed(entry: Line, batch_size: int) -> Line:
    speed = entry["images_a_second"]
    seconds = round(entry["of"] * batch_size / speed, 1) if speed else None
    return {"iterations": entry["of"], "images_a_second": speed, "seconds": seconds}


def parameters(recipe: Recipe, scenario: Scenario, known: dict[str, list[int]]) -> list[int]:
    """Counted on a network that is built for it, since weights seldom travel with results; once for all seeds."""
    key = repr((recipe.method, recipe.model, scenario.steps))
    if key not in known:
        method = recipe.method.build(recipe.model, pretrained=False)
        known[key] = []
        for step in scenario.steps:
            method.begin_step(step)
            known[key].append(count_parameters(method.network))
    return known[key]


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return round(value, DIGITS) if isinstance(value, float) else value


def write(lines: list[Line], out: Path) -> None:
    """One line a run. A file that holds more than the sweep does is not overwritten: it may be all that is left."""
    if not lines:
        raise UserError(f"no run of the sweep is finished: there is nothing to collect, and {out} is not written.")
    if not out.parent.is_dir():
        raise UserError(f"--out {out}: the folder {out.parent} is missing.")
    there = out.read_text(encoding="utf-8").splitlines() if out.is_file() else []
    try:
        lost = sorted({json.loads(text)["run"] for text in there} - {line["run"] for line in lines})
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"--out {out} is there already and was not made by collect.py; choose another.") from error
    if lost:
        raise UserError(
            f"--out {out} holds runs that are not finished in this sweep: {', '.join(lost)}. "
            "Choose another file, since tables.py reads several, or remove this one."
        )
    write_text(out, "".join(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n" for line in lines))


def read(files: Sequence[Path]) -> list[Run]:
    """All runs. One that was made in several sweeps, with the same settings and seeds, compiled or not, counts once."""
    entries: dict[str, Run] = {}
    for file in files:
        if not file.is_file():
            raise UserError(f"no file {file}; `python benchmarks/collect.py SWEEP --out {file}` makes one.")
        for number, text in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            try:
                key, entry = _entry(text)
            except (KeyError, TypeError, ValueError) as error:
                why = f"{type(error).__name__}: {error}"
                raise UserError(f"line {number} of {file} is not a run as collect.py writes it ({why}).") from error
            if key in entries:
                print(f"line {number} of {file}: the run was read before, that one counts", file=sys.stderr)
            entries.setdefault(key, entry)
    if not entries:
        raise UserError("there are no results: name files that collect.py wrote.")
    return list(entries.values())


RENAMED = {"rehearsal": "replay_share", "optimiser": "optimizer", "later_optimiser": "later_optimizer"}
"""Settings that kept results call by their names of then."""


def _entry(text: str) -> tuple[str, Run]:
    for old, new in RENAMED.items():
        text = re.sub(rf"\.{old}\b", f".{new}", text)
    line = json.loads(text)
    result = RunResult.from_json(line)
    told = _defaults(result.method) | line["settings"]
    settings = {key: value for key, value in told.items() if key not in ALIKE}
    group = json.dumps([result.method, result.scenario, result.setting, result.oracle, sorted(settings.items())])
    key = json.dumps([group, result.seed, line["settings"].get("data.seed")])
    return key, Run(result=result, group=group, settings=settings, paper=line["paper"])


def main() -> None:
    """Collect a sweep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", type=Path, help="the folder of a sweep, finished or not")
    parser.add_argument("--out", type=Path, required=True, help="the file to write, NAME.jsonl")
    parser.add_argument("--grid", type=Path, help="what was run, where only results.json was kept of every run")
    options = parser.parse_args()
    try:
        with code_allowed(wanted=True):  # the runs are our own
            lines, left_out = collect(options.sweep, options.grid)
        for name in left_out:
            print(f"left out, not finished: {name}", file=sys.stderr)
        write(lines, options.out)
    except UserError as error:
        parser.exit(WRONG, f"collect.py: {error}\n")
    print(f"{options.out}: {len(lines)} runs, {options.out.stat().st_size / 1024:.0f} KiB", file=sys.stderr)


if __name__ == "__main__":
    main()
