"""Write docs/reproduce.md from the recipes and the paper's numbers: `python docs/make_reproduce.py`.

A test compares the page with what this would write.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ipseg.config import to_dict
from ipseg.engine.recipe import Recipe, load_recipe
from ipseg.engine.recipe_files import shipped_recipes
from ipseg.report.paper import BACKBONES, MEMORY, Number, contradictions, published, published_for, sums_that_fail
from ipseg.scenario.names import NAMED

PAGE = Path(__file__).parent / "reproduce.md"
MAIN = ("tab:voc_res", "tab:ade_res", "tab:voc_res_disjoint")
FIRST = "voc_15-1_ipseg_swin-b"
HEAD = """\
# Reproducing the paper

Every row of IPSeg and Joint in the paper's tables is one command. **None is verified yet**: no number below has been
reached with this code so far, and until then none should be quoted as a result of it. Numbers are mIoU in percent after
the last step, as the paper prints them.

This page is made by `python docs/make_reproduce.py` from the recipes and from `report/paper_numbers.csv`, which holds
every number of the paper's tables of results and of its curves with the place where it stands.

## What a run needs

- **Pictures.** Pascal VOC 2012 with the masks of SBD in `data/VOC2012`, ADE20K in `data/ADEChallengeData2016`, or where
  `data.path` says. The trees stand in [data](data.md).
- **Saliency maps** for VOC, in `saliency_map/` of its tree: `ipseg saliency` writes them. The paper's come from an
  off-the-shelf detector, as SSUL's. On ADE20K the paper does not say; the recipes do as SSUL does there, which needs no
  maps: all that is not annotated is unknown, and joins the background at inference.
- **ImageNet-1k weights.** `weights: imagenet` lets timm download the tag that the recipe names:
  `swin_base_patch4_window12_384.ms_in1k`, as in the authors' code, and `resnet101.tv_in1k`, torchvision's first, as in
  SSUL's. The authors' code has no working ResNet; which ones the paper's had is not known.
- **A GPU.** The paper used two RTX 3090. It gives time and memory for one row alone, VOC 15-1 with Swin-B:
  {hours} h {minutes} min and {gigabytes} GB.

```sh
ipseg train voc_15-1_ipseg_swin-b --dry-run                       # every setting, and the pictures of each step
ipseg train voc_15-1_ipseg_swin-b --out runs/voc_15-1             # go on after a stop: --resume
ipseg evaluate runs/voc_15-1 --set evaluation.view=centre_crop    # as published code measures
ipseg train voc_15-1_ipseg-as-coded_swin-b --out runs/as_coded    # the authors' code, where the paper says otherwise
```

Settings are the paper's: SGD, rate 0.01; on VOC 50 epochs, batches of 16, poly, |M| = 100; on ADE20K 60 epochs, batches
of 8, poly after a warm-up, |M| = 300. What the paper leaves open is chosen as [IPSeg](methods/ipseg.md) says. The
recipes stand on each other by `base:`, as [recipes](recipes.md#a-recipe-on-another) explains, so that each shows only
what it changes.
"""
CONTRADICTIONS = """\
## Where the paper contradicts itself

All numbers are kept, each with the label of its place in the paper's source.

- The curves of `fig:performance_voc(a)` mix backbones: IPSeg and CoinSeg-M have the table's numbers with Swin-B,
  MicroSeg-M and SSUL-M those with ResNet-101.
- The numbers of MiB on VOC 15-5 and 15-1 are the same with overlap (`tab:voc_res`) as disjoint.
- Where two places give two numbers for the same thing:
"""
NOTES = {
    "VOC, disjoint": "The paper's table names no backbone. Its numbers of IPSeg are near those of Swin-B with overlap.",
    "Joint training": (
        "All classes in one step. The paper shows the run beside every scenario, its classes grouped as there. `all`\n"
        "is what the run's `results.json` has; the groups follow from `iou` there. The paper does not say how it\n"
        "trained Joint: here it is [fine-tuning](methods/finetune.md) with nothing to forget."
    ),
}


def page() -> str:
    """The whole page."""
    (minutes,), (gigabytes,) = (
        [n.value for n in published(method="ipseg", group=group)]
        for group in ("training_minutes", "training_gigabytes")
    )
    head = HEAD.format(hours=int(minutes // 60), minutes=int(minutes % 60), gigabytes=gigabytes)
    tables = [table(title, recipes) for title, recipes in sections().items()]
    return "\n".join([head, *tables, contradicting(), not_adding_up()]).rstrip() + "\n"


def sections() -> dict[str, list[Recipe]]:
    """The paper's recipes, sorted into tables."""
    paths = [path for path in shipped_recipes() if path.parent.name == "paper" or path.stem == FIRST]
    found: dict[str, list[Recipe]] = {
        "VOC, overlap": [],
        "VOC, disjoint": [],
        "ADE20K, overlap": [],
        "Joint training": [],
    }
    for recipe in sorted(map(load_recipe, paths), key=order):
        data = "VOC" if recipe.data.name == "voc" else "ADE20K"
        joint = recipe.scenario.name.endswith("joint")
        found["Joint training" if joint else f"{data}, {recipe.scenario.setting}"].append(recipe)
    return found


def order(recipe: Recipe) -> tuple[int, str, bool]:
    """By scenario as the paper's tables, then by backbone, those without memory first."""
    data, _, split = recipe.scenario.name.partition("/")
    listed = {"voc": ("15-5", "15-1", "10-1", "2-2", "joint"), "ade": ("100-5", "100-10", "100-50", "50-50", "joint")}
    assert set(listed[data]) <= set(NAMED[data])
    return list(listed).index(data) * 10 + listed[data].index(split), recipe.model.backbone.name, recipe.memory.size > 0


def table(title: str, recipes: list[Recipe]) -> str:
    """One command a row, with the paper's numbers beside it."""
    lines = [f"## {title}", "", *([NOTES[title], ""] if title in NOTES else [])]
    lines += ["| command | scenario | backbone | memory | base | new | all | here | state |"]
    lines += ["|---|---|---|---|---:|---:|---:|---|---|"]
    for recipe in recipes:
        numbers = [number for number in published_for(to_dict(recipe)) if number.where in MAIN]
        for scenario in dict.fromkeys(number.scenario for number in numbers):
            lines.append(row(recipe, published(numbers, scenario=scenario)))
    return "\n".join([*lines, ""])


def row(recipe: Recipe, numbers: list[Number]) -> str:
    """A recipe and its numbers in one scenario."""
    folder = "" if recipe.name == FIRST else "paper/"
    command = f"[`ipseg train {recipe.name}`](../recipes/{folder}{recipe.name}.yaml)"
    backbone = next(paper for timm, paper in BACKBONES.items() if recipe.model.backbone.name.startswith(timm))
    assert recipe.memory.size in (0, MEMORY[recipe.data.name])
    values = {number.group: f"{number.value:.1f}" for number in numbers}
    cells = [command, numbers[0].scenario, backbone, str(recipe.memory.size or "none")]
    return line([*cells, values["base"], values["new"], values["all"], "", "not verified"])


def contradicting() -> str:
    """Where the paper gives two numbers for the same thing."""
    lines = [CONTRADICTIONS, "| of | what | numbers |", "|---|---|---|"]
    for clash in contradictions():
        values = sorted({number.value for number in clash})
        places = "; ".join(f"{value}: {listed(n for n in clash if n.value == value)}" for value in values)
        first = clash[0]
        scenario = "" if first.method == "joint" else f" {first.scenario}"
        lines.append(line([f"{first.method}, {first.data}{scenario}", f"{first.measure} {first.group}", places]))
    return "\n".join([*lines, ""])


def listed(numbers: Iterable[Number]) -> str:
    """The places of numbers and what their rows are called; with the scenario where one run stands beside several."""
    places = (f'`{n.where}` "{n.row}"' + (f" {n.scenario}" if n.method == "joint" else "") for n in numbers)
    return ", ".join(places)


def not_adding_up() -> str:
    """Where the mean over all classes is not made by its parts."""
    lines = ["Means over all classes that are more than 0.4 from what the base and new classes beside them make:", ""]
    lines += ["| row | scenario | backbone | all | would be | place |", "|---|---|---|---:|---:|---|"]
    for number, made in sums_that_fail():
        words = [number.row, f"{number.data}/{number.scenario}", number.backbone]
        lines.append(line([*words, f"{number.value:.1f}", f"{made:.1f}", f"`{number.where}`"]))
    return "\n".join(lines)


def line(cells: Iterable[str]) -> str:
    """A row of Markdown."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
