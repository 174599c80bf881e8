"""Tables of the docs from the results of the studies: generated, never typed.

    python benchmarks/tables.py README.md docs/results.md     regenerate every table of the pages (`make results`)
    python benchmarks/tables.py --check README.md             exit with 1 if a table is not up to date

In a page a table stands between `<!-- table KIND FILE... OPTION... -->` and `<!-- end -->`. FILE is relative to
benchmarks/; `scenario=2-1` and `setting=disjoint` choose runs, `run=PATTERN` (again for more) chooses rows and their
order, `hide=COLUMN` (again for more) leaves out columns. Kinds:

main      mIoU groups and forgetting, mean and standard deviation over seeds, share of joint training
classes   IoU of every class after the last step
ablation  mIoU and its difference to `reference=RUN`, paired by seed, with a 95 % interval
varied    mIoU by the value of the one setting that a grid varied
image     share of images whose set of classes is exactly right, by posterior, pixels and both
oracles   mIoU with a part replaced by the ground truth, from oracles.json
cost      parameters and multiply-adds, from costs.json
few       IoU of a class by the number of its images, from few-images/results.jsonl
rows      the lines of `table=NAME` in performance/results.jsonl
paper     the rows of a grid of the paper's runs: the paper's mIoU over all classes, ours where it was measured
          (results.jsonl beside the grid), and what to give `ipseg sweep GRID`
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shlex
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ipseg.apps.compare import MAIN
from ipseg.config import to_dict
from ipseg.report.paper import published_for
from ipseg.sweep.grid import Grid, GridRun, slug
from ipseg.training.recipe import make_recipe

HERE = Path(__file__).parent
MARK = re.compile(r"(<!-- table (.*?)-->\n).*?(<!-- end -->)", re.DOTALL)
COLUMNS = ("base", "new", "all", "harmonic", "average", "forgetting")
STUDENT = {3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571}
"""97.5 % quantiles by the number of pairs."""
PROVENANCE = {"table", "commit", "date", "machine", "command"}
VARIED = re.compile(r"(.*), ([a-z_.]+)=([^,=]+)")
Line = dict[str, Any]
Rows = dict[str, list[Line]]
"""Runs by name, one for each seed."""


# ---- numbers --------------------------------------------------------------------------------------------------------


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of the values that are known."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def numbers(line: Line, base: Sequence[str]) -> dict[str, float | None]:
    """The columns of the main table for one run. Joint training is grouped by the base classes of the others."""
    steps = line["steps"]
    last: dict[str, float | None] = steps[-1]["iou"]
    old = mean(last[name] for name in ("background", *base))
    new = mean(value for name, value in last.items() if name not in ("background", *base))
    found = {"base": old, "new": new, "all": mean(last.values()), "average": None, "forgetting": None}
    found["harmonic"] = 2 * old * new / (old + new) if old and new else None
    if len(steps) > 1:
        found["average"] = mean(mean(step["iou"].values()) for step in steps)
        best = {name: max(step["iou"].get(name) or 0.0 for step in steps[:-1]) for name in steps[-2]["iou"]}
        found["forgetting"] = mean(
            best[name] - value for name, value in last.items() if name in best and value is not None
        )
    return found


def percent(values: Sequence[float | None]) -> str:
    """Mean and, of several, the sample standard deviation, in percent."""
    known = [100 * value for value in values if value is not None]
    if not known:
        return "–"
    spread = f" ± {statistics.stdev(known):.1f}" if len(known) > 1 else ""
    return f"{statistics.fmean(known):.1f}{spread}"


def interval(differences: Sequence[float]) -> str:
    """The mean difference in points and, from three pairs on, its 95 % interval (Student's t)."""
    points = [100 * value for value in differences]
    middle = statistics.fmean(points)
    if len(points) not in STUDENT:
        return f"{middle:+.1f}"
    half = STUDENT[len(points)] * statistics.stdev(points) / math.sqrt(len(points))
    return f"{middle:+.1f} [{middle - half:.1f}, {middle + half:.1f}]"


def is_joint(line: Line) -> bool:
    """Whether the run trained on all classes at once: an upper bound."""
    return len(line["steps"]) == 1


# ---- kinds of tables ------------------------------------------------------------------------------------------------


def main_table(rows: Rows, _reference: str) -> list[list[str]]:
    """A row a method; the best of each column in bold, upper bounds apart."""
    base = next(line["steps"][0]["new"] for runs in rows.values() for line in runs if not is_joint(line))
    values = {name: [numbers(line, base) for line in runs] for name, runs in rows.items()}
    joint = [run for name, runs in rows.items() if is_joint(runs[0]) for run in values[name]]
    bound = mean(run["all"] for run in joint)
    cells = {name: [percent([run[key] for run in runs]) for key in COLUMNS] for name, runs in values.items()}
    rivals = [cells[name] for name, runs in rows.items() if not is_joint(runs[0])]
    for at, key in enumerate(COLUMNS):
        shown = [float(row[at].split()[0]) for row in rivals if row[at] != "–"]
        best = (min if key == "forgetting" else max)(shown, default=None)
        for row in rivals:
            if len(rivals) > 1 and row[at] != "–" and float(row[at].split()[0]) == best:
                row[at] = f"**{row[at]}**"
    table = [["method", *COLUMNS, *(["of joint"] if bound else []), "n"]]
    for name, runs in rows.items():
        share = mean(run["all"] for run in values[name])
        of_joint = [f"{100 * share / bound:.1f} %"] if bound and share is not None else []
        table.append([name + " †" * is_joint(runs[0]), *cells[name], *of_joint, str(len(runs))])
    return table


def class_table(rows: Rows, _reference: str) -> list[list[str]]:
    """A column a class."""
    names = list(next(iter(rows.values()))[0]["steps"][-1]["iou"])
    table = [["method", *names, "n"]]
    for name, runs in rows.items():
        cells = [percent([run["steps"][-1]["iou"][one] for run in runs]) for one in names]
        table.append([name + " †" * is_joint(runs[0]), *cells, str(len(runs))])
    return table


def ablation_table(rows: Rows, reference: str) -> list[list[str]]:
    """Differences between runs of the same seed."""
    found = {
        name: {line["seed"]: mean(line["steps"][-1]["iou"].values()) for line in runs} for name, runs in rows.items()
    }
    own = found[reference]
    table = [["run", "all", f"difference to {reference}", "n"]]
    for name, seeds in found.items():
        pairs = [value - own[seed] for seed, value in seeds.items() if seed in own]
        difference = "–" if name == reference or not pairs else interval(pairs)
        table.append([name, percent(list(seeds.values())), difference, str(len(seeds))])
    return table


def varied_table(rows: Rows, _reference: str) -> list[list[str]]:
    """A column a value, the best of a row in bold; base and new classes in brackets."""
    found: dict[str, dict[str, Line]] = {}
    for name, (line, *_) in rows.items():
        if parts := VARIED.fullmatch(name):
            found.setdefault(parts[1], {})[parts[3]] = line
    columns = sorted({value for tried in found.values() for value in tried}, key=float)
    table = [["method", *columns]]
    for name, tried in found.items():
        groups = {value: numbers(line, line["steps"][0]["new"][:2]) for value, line in tried.items()}
        best = max(percent([group["all"]]) for group in groups.values())
        row = [name]
        for value in columns:
            group = groups.get(value)
            cell = percent([group["all"]]) if group else "–"
            cell = f"**{cell}**" if cell == best else cell
            row.append(f"{cell} ({percent([group['base']])}, {percent([group['new']])})" if group else cell)
        table.append(row)
    return table


def image_table(rows: Rows, _reference: str) -> list[list[str]]:
    """Image-level accuracy over all classes after the last step."""
    readings = ("posterior", "pixel", "both")
    table = [["method", *readings, "n"]]
    for name, runs in rows.items():
        found = [run["steps"][-1]["image_accuracy"]["all"] for run in runs]
        cells = [percent([accuracy[reading] for accuracy in found]) for reading in readings]
        table.append([name + " †" * is_joint(runs[0]), *cells, str(len(runs))])
    return table


def oracle_table(measured: list[Line]) -> list[list[str]]:
    """A column an oracle."""
    ways = list(dict.fromkeys(way for run in measured for way in run["miou"]))
    names = dict.fromkeys(run["name"] for run in measured)
    table = [["method", *ways, "n"]]
    for name in names:
        runs = [run["miou"] for run in measured if run["name"] == name]
        cells = [percent([run[way]["all"] for run in runs if way in run]) for way in ways]
        table.append([name, *cells, str(len(runs))])
    return table


def rows_table(lines: list[Line], name: str) -> list[list[str]]:
    """What was measured, without its provenance."""
    fitting = [line for line in lines if line["table"] == name]
    columns = [key for key in fitting[0] if key not in PROVENANCE]
    return [columns, *([f"{line[key]}" if line[key] is not None else "" for key in columns] for line in fitting)]


def cost_table(measured: list[Line]) -> list[list[str]]:
    """Sizes after the first and after the last step; methods of equal cost share a row."""
    table = [["method", "parameters, M", "trained, M", "multiply-adds, G"]]
    alike: dict[tuple[str, ...], list[str]] = {}
    for run in measured:
        ends = run["steps"][:1] + run["steps"][1:][-1:]
        sizes = (("parameters", 1e6), ("trainable", 1e6), ("macs", 1e9))
        cells = tuple(" – ".join(f"{step[key] / unit:.1f}" for step in ends) for key, unit in sizes)
        alike.setdefault(cells, []).append(run["name"])
    return table + [[", ".join(names), *cells] for cells, names in alike.items()]


def paper_table(grid: Path) -> list[list[str]]:
    """A row an entry of the grid and a column a scenario; entries that vary a setting have a row a value."""
    results = grid.with_name("results.jsonl")
    lines = read([results]) if results.is_file() else []
    measured = {line["run"]: mean(line["steps"][-1]["iou"].values()) for line in lines}
    rows: dict[str, list[GridRun]] = {}
    for run in Grid.read(grid).runs():
        values = [f"{key.removeprefix('method.')}={value}" for key, value in run.varied.items()]
        rows.setdefault(", ".join(values) or run.entry, []).append(run)
    scenarios = list(dict.fromkeys(run.scenario for runs in rows.values() for run in runs))
    table = [["row", *scenarios, "ours", "command"]]
    for name, runs in rows.items():
        published = {run.scenario: printed_miou(run) for run in runs}
        if not any(published.values()):
            continue
        ours = [f"{run.scenario}: {percent([measured[run.name]])}" for run in runs if run.name in measured]
        only = runs[0].name if len(runs) == 1 else f"'{slug(name)}_*'"
        cells = [published.get(scenario) or "" for scenario in scenarios]
        table.append([name, *cells, ", ".join(ours) or "–", f"`--only {only}`"])
    return table


def printed_miou(run: GridRun) -> str | None:
    """The paper's mIoU over all classes for a run; its main tables win where it has two numbers."""
    numbers = published_for(to_dict(make_recipe(run.settings)))
    found = [number for number in numbers if (number.measure, number.group) == ("miou", "all") and number.last]
    chosen = [number for number in found if number.where in MAIN] or found
    return f"{chosen[0].value:.1f}" if chosen else None


def few_table(lines: list[Line]) -> list[list[str]]:
    """A row a number of images: the mean over draws, and how the posterior limits it."""
    measured = [line for line in lines if line["on"] == "validation"]
    names = list(dict.fromkeys(line["class"] for line in measured))
    table = [["images", *names, "mean", "true posterior", "uncorrected", "all photographs", "old classes", "n"]]
    for count in sorted({line["images"] for line in measured}):
        rows = [line for line in measured if line["images"] == count]

        def new(key: str = "iou", name: str | None = None, rows: list[Line] = rows) -> str:
            values = [line[key][line["class"]] for line in rows if name in (None, line["class"])]
            return f"{100 * statistics.fmean(values):.1f}"

        old = [key for key, value in rows[0]["before"].items() if value is not None and key != "background"]
        changes = [line["iou"][key] - line["before"][key] for line in rows for key in old]
        ways = ("iou_with_true_posterior", "iou_without_correction", "iou_on_all")
        cells = [*(new(name=name) for name in names), f"**{new()}**", *map(new, ways)]
        table.append([str(count), *cells, f"{100 * statistics.fmean(changes):+.1f}", str(len(rows))])
    return table


OF_RUNS: dict[str, Callable[[Rows, str], list[list[str]]]] = {
    "main": main_table,
    "classes": class_table,
    "ablation": ablation_table,
    "varied": varied_table,
    "image": image_table,
}
OF_MEASUREMENTS: dict[str, Callable[[list[Line]], list[list[str]]]] = {"oracles": oracle_table, "cost": cost_table}
KINDS = (*OF_RUNS, *OF_MEASUREMENTS, "rows", "paper")


# ---- files and pages ------------------------------------------------------------------------------------------------


def read(files: Iterable[str | Path]) -> list[Line]:
    """The runs of results.jsonl files, relative to benchmarks/."""
    texts = [(HERE / file).read_text(encoding="utf-8") for file in files]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def chosen(lines: list[Line], patterns: Sequence[str], scenario: str | None, setting: str = "overlap") -> Rows:
    """Rows in the order of the patterns; joint training belongs to every scenario."""
    rows: Rows = {}
    for pattern in patterns or ["*"]:
        fitting = [line for line in lines if pattern == line["name"] or fnmatchcase(line["name"], pattern)]
        if not fitting:
            raise SystemExit(
                f"no run {pattern!r}; there are {', '.join(dict.fromkeys(line['name'] for line in lines))}"
            )
        for line in fitting:
            own = line["scenario"].rpartition("/")[2]
            same = (scenario is None or own == scenario) and line["setting"] == setting
            if (same or is_joint(line)) and line not in rows.get(line["name"], []):
                rows.setdefault(line["name"], []).append(line)
    return rows


def table(mark: str) -> str:
    """The table that a mark asks for, as Markdown."""
    kind, *words = shlex.split(mark)
    options = [word.split("=", 1) for word in words if "=" in word]
    files = [word for word in words if "=" not in word]
    single = {key: value for key, value in options if key not in ("run", "hide")}
    if unknown := set(single) - {"scenario", "setting", "reference", "table"}:
        raise SystemExit(f"<!-- table {mark}-->: unknown option {', '.join(unknown)}")
    if kind in OF_RUNS:
        reference = single.pop("reference", "")
        patterns = [value for key, value in options if key == "run"]
        found = OF_RUNS[kind](chosen(read(files), patterns, single.pop("scenario", None), **single), reference)
    elif kind == "rows":
        found = rows_table(read(files), single["table"])
    elif kind == "paper":
        found = paper_table(HERE / files[0])
    elif kind == "few":
        found = few_table(read(files))
    elif kind in OF_MEASUREMENTS:
        found = OF_MEASUREMENTS[kind]([run for file in files for run in json.loads((HERE / file).read_text())["runs"]])
    else:
        raise SystemExit(f"<!-- table {mark}-->: no kind {kind}; there are {', '.join(KINDS)}")
    kept = [at for at, name in enumerate(found[0]) if ["hide", name] not in options]
    head, *rows = [[row[at] if "`" in row[at] else row[at].replace("_", "\\_") for at in kept] for row in found]
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def filled(text: str) -> str:
    """A page with its tables regenerated."""
    return MARK.sub(lambda mark: f"{mark[1]}\n{table(mark[2])}\n\n{mark[3]}", text)


def main(words: Sequence[str] | None = None) -> int:
    """Regenerate the tables of pages, or check them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", type=Path, nargs="+", metavar="PAGE")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a table is not up to date")
    options = parser.parse_args(words)
    stale = []
    for page in options.pages:
        text = page.read_text(encoding="utf-8")
        if (new := filled(text)) != text:
            stale.append(page)
            if not options.check:
                page.write_text(new, encoding="utf-8")
    if options.check and stale:
        print(f"not up to date: {', '.join(map(str, stale))}; run `make results`", file=sys.stderr)
    return int(options.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
