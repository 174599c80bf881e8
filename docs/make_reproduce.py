"""Write docs/reproduce.md from the paper's numbers, benchmarks/paper and our results: `python docs/make_reproduce.py`.

Which command belongs to a row is not listed anywhere: it is the run for which `ipseg compare` shows the row's numbers.
A test compares the page with what this would write.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from ipseg.config import Settings, to_dict
from ipseg.evaluation.metrics import miou_groups
from ipseg.evaluation.results import RunResult
from ipseg.methods.registry import METHODS
from ipseg.report.formats import escaped, table_line
from ipseg.report.paper import Number, likely_backbone, paper_numbers, published, published_for
from ipseg.scenario.catalog import describe
from ipseg.sweep.grid import Grid, GridRun, slug
from ipseg.training.recipe import make_recipe

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reproduce.md"
GRIDS = sorted((ROOT / "benchmarks" / "paper").glob("*.yaml"), key=lambda path: (path.stem != "voc", path))
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.jsonl"))
COSTS = {
    "ipseg": "ipseg cost voc_15-1_ipseg_swin-b",
    "ssul": "ipseg cost voc_15-1_ipseg_swin-b --set 'method={name: ssul_m}'",
}
BASE_NEW_ALL, STEPS = "base / new / all", "after each step"
TABLES = {
    "tab:voc_res": ("Pascal VOC, overlap", BASE_NEW_ALL),
    "tab:ade_res": ("ADE20K, overlap", BASE_NEW_ALL),
    "fig:performance_voc(a)": ("Pascal VOC over scenarios", "all"),
    "fig:performance_voc(b)": ("VOC 2-2 over steps", STEPS),
    "fig:performance_voc(c)": ("VOC 15-1 over steps", STEPS),
    "tab:impact_image-level_pseudo_label": ("Image labels of the posterior", BASE_NEW_ALL),
    "tab:abs_overall": ("Parts of IPSeg", BASE_NEW_ALL),
    "tab:IP_base_acc": ("Image-level accuracy, base classes", STEPS),
    "tab:IP_all_acc": ("Image-level accuracy, all seen classes", STEPS),
    "tab:para_costs": (
        "Costs",
        "parameters after each step, M / training, minutes / GB / inference, images a second / G multiply-adds / GB",
    ),
    "tab:impact_mem": ("Without memory", BASE_NEW_ALL),
    "tab:loss_weight": ("Weights of the losses", "all"),
    "tab:ablation_hyperpara(a)": ("Memory and noise filtering", BASE_NEW_ALL),
    "tab:ablation_hyperpara(b)": ("Background compensation", BASE_NEW_ALL),
    "tab:overall_results_of_KD": ("Decoupling by groups", "background / base, new without background / all"),
    "tab:detailed_results_of_KD": ("Decoupling by classes", "background, the classes in VOC's order, mean"),
    "tab:detailed_results": ("IPSeg by classes", "background, the classes in VOC's order, mean"),
    "text:detailed_results": ("The text beside it", "cow / horse"),
    "tab:voc_res_disjoint": ("Pascal VOC, disjoint", BASE_NEW_ALL),
}
HEAD = """\
# Reproducing the paper

Every row of every table and curve of the paper, with the command that runs it here. **No accuracy is reproduced yet**:
where "ours" is empty, nothing was measured. Numbers are percent; unless a heading says otherwise, mIoU after the last
step.

## Before a run

- **Images.** Pascal VOC 2012 with the masks of SBD in `data/VOC2012`, ADE20K in `data/ADEChallengeData2016`, or where
  `data.path` says. [Data](data.md) shows the trees.
- **Saliency maps** for VOC, in `saliency_map/` of its tree; `ipseg saliency` generates them. The paper's come from an
  off-the-shelf detector. For ADE20K it names none. As in SSUL, everything unannotated is then unknown, which only the
  authors' variant can learn: there IPSeg is `ipseg-official`.
- **ImageNet-1k weights.** timm downloads `swin_base_patch4_window12_384.ms_in1k`, as in the authors' code, and
  `resnet101.tv_in1k`, as in SSUL's. The authors' code has no working ResNet; which weights the paper used is not known.
- **A GPU.** The paper used two RTX 3090, and names time and memory for VOC 15-1 with Swin-B alone:
  {hours} h {minutes} min and {gigabytes} GB.

```sh
ipseg sweep benchmarks/paper/voc.yaml --dry-run                       # all runs of a table, and what each changes
ipseg sweep benchmarks/paper/voc.yaml --only 'ipseg-swin-b_*'         # one row; the same command resumes it
ipseg sweep benchmarks/paper/voc.yaml --only ipseg-swin-b_15-1_s0     # one scenario of it
ipseg sweep benchmarks/paper/voc.yaml --table                         # what has finished, the paper's numbers beside it
ipseg train voc_15-1_ipseg_swin-b --out runs/voc_15-1                 # the main setting as a recipe of its own
ipseg evaluate runs/voc/runs/ipseg-swin-b_15-1_s0 --set evaluation.view=whole
ipseg sweep benchmarks/paper/sequences.yaml                           # the figure of sequences A and B (no numbers)
```

## How the rows are run

- `ipseg` follows the text, `ipseg-official` the authors' code ([IPSeg](methods/ipseg.md)). Which one gave the paper's
  numbers is not known.
- Settings are the paper's: SGD, rate 0.01; on VOC 50 epochs, batches of 16, poly, |M| = 100; on ADE20K 60 epochs,
  batches of 8, poly after a warm-up, |M| = 300. Other systems train as in their own publications. How Joint was trained
  is not known: here it is [fine-tuning](methods/finetune.md) on all classes at once.
- The grids measure center crops, as published code does.
- α_BC and α_NF act at inference alone: their rows measure a finished run again.
- Without decoupling the paper does not say which heads its ablation has: there is a command for large and one for small
  ones. SSUL-M's costs mix both: parameters of large heads (`head: ipseg`), multiply-adds of small ones.
- A backbone in brackets is not named by the paper. Older systems were published with ResNet-101; IPSeg's and CoinSeg's
  numbers are near theirs with Swin-B.

`python docs/make_reproduce.py` makes this page. The paper's numbers are in `report/paper_numbers.csv`, with the labels
of its source that stand in the headings here.
"""
CONTRADICTIONS = """\
## Where the paper contradicts itself

- The curves of `fig:performance_voc(a)` mix backbones.
- MiB's numbers on VOC 15-5 and 15-1 are the same with overlap as disjoint.
- Two places give two numbers for the same thing:
"""


class Run(NamedTuple):
    """A run of a grid: its folder's name and what it is called there."""

    grid: Path
    name: str
    label: str

    @property
    def sweep(self) -> str:
        """The command before `--only`."""
        return f"ipseg sweep {self.grid.relative_to(ROOT).as_posix()}"

    @property
    def folder(self) -> str:
        """Where the sweep puts it."""
        return f"runs/{self.grid.stem}/runs/{self.name}"


def page() -> str:
    """The whole page."""
    (minutes,), (gigabytes,) = (
        [n.value for n in published(method="ipseg", group=group)]
        for group in ("training_minutes", "training_gigabytes")
    )
    head = HEAD.format(hours=int(minutes // 60), minutes=int(minutes % 60), gigabytes=gigabytes)
    ours = Ours(RESULTS)
    tables = [table(where, list(numbers), ours) for where, numbers in groupby(paper_numbers(), lambda n: n.where)]
    return "\n".join([head, *tables, contradicting(), not_adding_up()]).rstrip() + "\n"


def table(where: str, numbers: list[Number], ours: Ours) -> str:
    """A table of the paper: a line a row, and a column a scenario where its rows have several."""
    title, said = TABLES[where]
    rows: dict[tuple[str, ...], list[Number]] = defaultdict(list)
    for number in numbers:
        rows[number.row, number.backbone, number.memory].append(number)
    scenarios = list(dict.fromkeys(number.scenario for number in numbers))
    several = any(len({number.scenario for number in row}) > 1 for row in rows.values())
    papers = [f"{scenario}: {said}" for scenario in scenarios] if several else [said]
    heads = ["row", "backbone", *papers, "ours", "command"]
    lines = [f"## {title}: `{where}`", "", table_line(heads)]
    lines.append(table_line(["---"] * len(heads)))
    for (name, backbone, _), row in rows.items():
        values = [joined(published(row, scenario=one)) for one in scenarios] if several else [joined(row)]
        shown = backbone or f"({likely_backbone(row[0])})"
        lines.append(table_line([escaped(name), shown, *values, ours.beside(row), commands(row)]))
    return "\n".join([*lines, ""])


def joined(numbers: Sequence[Number]) -> str:
    """Numbers of one cell as the paper prints them."""
    digits = {"miou": "{:.1f}", "iou": "{:.1f}", "image_accuracy": "{:.2f}", "cost": "{:g}"}
    return " / ".join(digits[number.measure].format(number.value) for number in numbers)


# ---- the command of a row -------------------------------------------------------------------------------------------


@cache
def grid_runs(grid: Path) -> list[GridRun]:
    """The runs of a grid."""
    return Grid.read(grid).runs()


@cache
def runs_of() -> dict[Number, list[Run]]:
    """The runs beside which `ipseg compare` shows each number."""
    found: dict[Number, list[Run]] = defaultdict(list)
    for grid in GRIDS:
        for planned in grid_runs(grid):
            for number in published_for(to_dict(make_recipe(planned.settings))):
                found[number].append(Run(grid, planned.name, slug(planned.entry)))
    return found


def commands(row: Sequence[Number]) -> str:
    """What trains the runs of a row, or measures them again; from one grid, the main table's where it has them."""
    method = row[0].method
    if method not in METHODS and f"{method}_m" not in METHODS:
        return "not implemented"
    if row[0].measure == "cost":
        return f"`{COSTS[method]}`"
    runs = list(dict.fromkeys(run for number in row for run in runs_of().get(number, [])))
    if not runs:
        return " <br> ".join(f"`{command}`" for command in measured_again(row[0]))
    grid = min((run.grid for run in runs), key=GRIDS.index)
    chosen = [run for run in runs if run.grid == grid]
    labels = dict.fromkeys(run.label for run in chosen)
    return " <br> ".join(f"`{sweep_of([run for run in chosen if run.label == label])}`" for label in labels)


def sweep_of(runs: Sequence[Run]) -> str:
    """The command that trains these runs of one label; by a pattern where it names no others."""
    grid, pattern = runs[0].grid, f"{runs[0].label}_*"
    names = [run.name for run in runs]
    fitting = [planned.name for planned in grid_runs(grid) if fnmatchcase(planned.name, pattern)]
    chosen = [f"'{pattern}'"] if len(names) > 1 and set(names) == set(fitting) else names
    return " ".join([runs[0].sweep, *(f"--only {name}" for name in chosen)])


def measured_again(number: Number) -> list[str]:
    """The commands that measure the run without a number's changes again, with these."""
    changes = number.changes.split()
    assert changes, number
    usual = {replace(one, where="", row="", value=0.0): one for one in runs_of()}
    trained = usual[replace(number, where="", row="", value=0.0, changes="")]
    runs = [run for run in runs_of()[trained] if run.grid == GRIDS[0] and "official" not in run.label]
    return [" ".join([f"ipseg evaluate {run.folder}", *(f"--set {change}" for change in changes)]) for run in runs]


# ---- our numbers ----------------------------------------------------------------------------------------------------


class Ours:
    """What benchmarks/results has beside the paper's numbers: by number and run, a value a seed."""

    def __init__(self, files: Iterable[Path]) -> None:
        self.values: dict[tuple[Number, str], list[float]] = defaultdict(list)
        for file in files:
            for text in file.read_text(encoding="utf-8").splitlines():
                if '"macs"' in text:
                    self._add_costs(json.loads(text))
                elif '"paper": ' in text and '"paper": null' not in text:
                    self._add_run(json.loads(text))

    def _add_run(self, line: dict[str, Any]) -> None:
        """A run as benchmarks/collect.py writes it, which has a number of the paper."""
        result = RunResult.from_json(line)
        for number in published_for(recipe_of(line["settings"], result)):
            value = value_of(result, number)
            if value is not None:
                self.values[number, result.name].append(100 * value)

    def _add_costs(self, line: dict[str, Any]) -> None:
        """What `ipseg cost --json` says, and `method` beside it."""
        method = line["method"]
        name = " ".join([method["name"], *(f"{key}={value}" for key, value in method.items() if key != "name")])
        for number in published(where="tab:para_costs", method=method["name"].removesuffix("_m")):
            if number.group == "parameters_millions" and number.step is not None:
                self.values[number, name].append(line["steps"][number.step]["parameters"] / 1e6)
            elif number.group == "inference_gflops":
                self.values[number, name].append(line["steps"][0]["macs"] / 1e9)

    def beside(self, row: Sequence[Number]) -> str:
        """Our runs beside a row, each scenario's numbers in the paper's order."""
        said = []
        for name in dict.fromkeys(name for number, name in self.values if number in row):
            for scenario, numbers in groupby(row, lambda number: number.scenario):
                means = [self._mean(number, name) for number in numbers]
                said += [f"{name} {scenario}: {' / '.join(means)}"] if set(means) != {"–"} else []
        return " <br> ".join(said)

    def _mean(self, number: Number, name: str) -> str:
        values = self.values.get((number, name))
        return f"{statistics.fmean(values):.1f}" if values else "–"


def recipe_of(flat: dict[str, Any], result: RunResult) -> Settings:
    """The sections of a recipe that the paper's lookup reads."""
    recipe: Settings = {"scenario": {"name": result.scenario, "setting": result.setting}}
    for section in ("data", "method", "memory"):
        recipe[section] = {key.partition(".")[2]: value for key, value in flat.items() if key.startswith(f"{section}.")}
    return recipe | {"model": {"backbone": {"name": flat["model.backbone.name"]}}}


def value_of(result: RunResult, number: Number) -> float | None:
    """What a run has where the paper has a number; joint training is grouped as the number's scenario."""
    if number.measure == "cost":
        return None
    step = result.steps[-1 if number.step is None else number.step]
    if number.measure == "iou":
        return step.iou.get(number.group)
    if number.measure == "image_accuracy":
        classes, reading = number.group.split()
        return (step.image_accuracy or {}).get(classes, {}).get(reading)
    if number.method != "joint":
        return step.miou.get(number.group)
    base, *later = (each.new for each in describe(f"{number.data}/{number.scenario}").steps)
    return miou_groups(step.iou, base, [name for new in later for name in new])[number.group]


# ---- what does not fit ----------------------------------------------------------------------------------------------


def contradictions() -> list[list[Number]]:
    """Numbers that should be one and the same and are not.

    Where a place does not name the backbone, its number must be that of one backbone or another.
    """
    same: dict[tuple[str, ...], list[Number]] = defaultdict(list)
    for number in paper_numbers():
        if number.measure != "cost" and number.last:
            same[_measured(number)].append(number)
    return [clash for numbers in same.values() for clash in _clashes(numbers)]


def _measured(number: Number) -> tuple[str, ...]:
    """What a number is of, the backbone apart."""
    once = number.method == "joint" and number.group == "all"  # learned once, whatever scenario it stands beside
    scenario = "joint" if once else number.scenario
    what = (number.method, number.memory, number.changes, number.measure, number.group)
    return (number.data, scenario, number.setting, *what)


def _clashes(numbers: list[Number]) -> list[list[Number]]:
    named = [number for number in numbers if number.backbone]
    groups = [published(named, backbone=backbone) for backbone in dict.fromkeys(number.backbone for number in named)]
    values = {number.value for number in named}
    strays = [[*named, number] for number in numbers if named and not number.backbone and number.value not in values]
    return [group for group in groups if len({number.value for number in group}) > 1] + strays


def sums_that_fail(tolerance: float = 0.4) -> list[tuple[Number, float]]:
    """Means over all classes that are not what base and new classes make them, and what they would be.

    Numbers are rounded, and those of older methods leave the background out of one mean: hence the tolerance.
    """
    rows: dict[tuple[str, ...], dict[str, Number]] = defaultdict(dict)
    for number in published(measure="miou"):
        rows[(number.where, number.row, number.scenario, number.backbone)][number.group] = number
    found = []
    for row in rows.values():
        if {"base", "new", "all"} <= set(row):
            base, *later = (len(step.new) for step in describe(f"{row['all'].data}/{row['all'].scenario}").steps)
            made = (row["base"].value * (base + 1) + row["new"].value * sum(later)) / (base + 1 + sum(later))
            found += [(row["all"], made)] if abs(made - row["all"].value) > tolerance else []
    return found


def contradicting() -> str:
    """Where the paper gives two numbers for the same thing."""
    lines = [CONTRADICTIONS, "| of | what | numbers |", "|---|---|---|"]
    for clash in contradictions():
        values = sorted({number.value for number in clash})
        places = "; ".join(f"{value}: {listed(n for n in clash if n.value == value)}" for value in values)
        first = clash[0]
        run = f"{first.method}, {first.data}" + ("" if first.method == "joint" else f" {first.scenario}")
        lines.append(table_line([run, f"{first.measure} {first.group}", places.replace("|", "\\|")]))
    return "\n".join([*lines, ""])


def listed(numbers: Iterable[Number]) -> str:
    """The places of numbers and what their rows are called; with the scenario where one run stands beside several."""
    places = (f'`{n.where}` "{n.row}"' + (f" {n.scenario}" if n.method == "joint" else "") for n in numbers)
    return ", ".join(places)


def not_adding_up() -> str:
    """Where the mean over all classes is not made by its parts."""
    lines = [
        "- A mean is more than 0.4 from what base and new classes make:",
        "",
    ]
    lines += ["| row | scenario | backbone | all | would be | place |", "|---|---|---|---:|---:|---|"]
    for number, made in sums_that_fail():
        words = [number.row, f"{number.data}/{number.scenario}", number.backbone]
        lines.append(table_line([*words, f"{number.value:.1f}", f"{made:.1f}", f"`{number.where}`"]))
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
