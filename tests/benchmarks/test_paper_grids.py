"""The grids of the paper's rows and the page made of them: every row has a command, and each runs what the row says."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from collections import defaultdict
from fnmatch import fnmatchcase
from functools import cache
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from commands import call
from ipseg.config import flat, override, to_dict
from ipseg.evaluation.results import RunResult, StepResult
from ipseg.methods.registry import METHODS
from ipseg.models._torchvision import ensure_torchvision
from ipseg.report.paper import Number, paper_numbers, published, published_for
from ipseg.scenario.catalog import ADE, VOC
from ipseg.sweep.grid import Grid, GridRun
from ipseg.training.recipe import Recipe, load_recipe, make_recipe

ROOT = Path(__file__).parents[2]
GRIDS = sorted((ROOT / "benchmarks" / "paper").glob("*.yaml"))
PAGE = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
IMPLEMENTED = {name.removesuffix("_m") for name in METHODS}

every_grid = pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: grid.stem)


@cache
def grid_runs(grid: Path) -> list[GridRun]:
    return Grid.read(grid).runs()


@cache
def recipes(grid: Path) -> dict[str, Recipe]:
    return {run.name: make_recipe(run.settings) for run in grid_runs(grid)}


def every_recipe() -> list[Recipe]:
    return [recipe for grid in GRIDS for recipe in recipes(grid).values()]


# ---- the grids ------------------------------------------------------------------------------------------------------


def tree(root: Path, data: str) -> Path:
    """A data set of one-pixel images, each with all classes of a few neighbors; a step has images in any setting."""
    classes = VOC if data == "voc" else ADE
    names = [f"{kind}_{value}" for kind in ("train", "val") for value in range(1, len(classes) + 1)]
    for name in names:
        kind, value = name.split("_")
        part = "" if data == "voc" else {"train": "training", "val": "validation"}[kind]
        folders = ("JPEGImages", "SegmentationClassAug", "saliency_map") if data == "voc" else ("images", "annotations")
        for folder, suffix in zip(folders, ("jpg", "png", "png"), strict=False):
            file = root / folder / part / f"{name}.{suffix}"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((1, 1), int(value), dtype=np.uint8)).save(file)
    if data == "voc":
        lists = root / "ImageSets" / "Segmentation"
        lists.mkdir(parents=True)
        for file, kind in (("train_aug", "train"), ("val", "val")):
            (lists / f"{file}.txt").write_text("".join(f"{name}\n" for name in names if name.startswith(kind)))
    return root


@every_grid
def test_a_dry_run_of_a_grid_lists_all_its_runs_and_finds_their_settings_sound(grid, tmp_path):
    data = tree(tmp_path / "data", "ade" if grid.stem == "ade" else "voc")
    result = call("sweep", grid, "--out", tmp_path / "out", "--dry-run", "--set", f"data.path={data}")
    assert result.exit_code == 0, result.output
    assert f"{len(grid_runs(grid))} runs, 0 finished" in " ".join(result.output.split())
    assert not (tmp_path / "out").exists()
    for recipe in recipes(grid).values():
        recipe.require_trainable()


@every_grid
def test_a_run_is_called_by_its_method_variant_backbone_and_memory(grid):
    backbones = {"swin-b": "swin_base_patch4_window12_384.ms_in1k", "resnet-101": "resnet101.tv_in1k"}
    for run in grid_runs(grid):
        method, *rest = run.entry.split()
        recipe = recipes(grid)[run.name]
        assert (
            recipe.model.backbone.name == backbones[rest[-1] if rest[-1:] in (["swin-b"], ["resnet-101"]) else "swin-b"]
        )
        assert ("no-memory" in rest) <= (recipe.memory.size == 0)
        if recipe.method.name == "ipseg":
            assert recipe.method.variant == ("official" if method.endswith("-official") else "paper")  # type: ignore[attr-defined]
            assert (recipe.data.saliency == "all") <= (recipe.method.variant == "official")  # type: ignore[attr-defined]
        if rest:
            assert recipe.method.name == method.removesuffix("-official") or grid.stem == "ablations"


def test_ipseg_and_joint_train_as_the_paper_says_and_the_others_as_in_their_publications():
    expected = {
        ("voc", "ipseg"): (50, 16, "poly", 0.01),
        ("voc", "joint"): (50, 16, "poly", 0.01),
        ("voc", "ssul"): (50, 16, "poly", 0.01),
        **{("voc", method): (30, 24, "poly", 0.01) for method in ("mib", "plop", "ilt", "lwf_mc")},
        ("ade", "ipseg"): (60, 8, "warm_poly", 0.01),
        ("ade", "joint"): (60, 8, "warm_poly", 0.01),
        ("ade", "ssul"): (100, 24, "warm_poly", 0.05),
        ("ade", "mib"): (60, 24, "poly", 0.01),
    }
    found = defaultdict(set)
    for recipe in every_recipe():
        training = recipe.training
        found[recipe.data.name, recipe.method.name.removesuffix("_m")].add(
            (training.epochs, training.batch_size, training.schedule, training.lr)
        )
    assert found == {key: {value} for key, value in expected.items()}
    assert {recipe.method.variant for recipe in every_recipe() if recipe.method.name == "plop_m"} == {"official"}  # type: ignore[attr-defined]
    assert {recipe.evaluation.view for recipe in every_recipe()} == {"center_crop"}


def test_sequences_learn_the_look_alikes_in_the_orders_of_the_figure():
    (grid,) = (grid for grid in GRIDS if grid.stem == "sequences")
    steps = {}
    for name, recipe in recipes(grid).items():
        steps[name] = [set(step.new) for step in recipe.scenario.build("voc", VOC).steps]
    first, second = {"cow", "bus", "sofa"}, {"horse", "car", "chair"}
    assert steps == {
        f"{method}_{order}_s0": found
        for method in ("ssul_m", "ipseg")
        for order, found in (("A", [first, second]), ("B", [second, first]))
    }


def test_every_network_of_the_grids_can_be_built_and_its_weights_are_there_in_timm():
    ensure_torchvision()
    import timm

    networks = {
        (recipe.model, recipe.method.name, flat(to_dict(recipe.method)).get("head")): recipe
        for recipe in every_recipe()
    }
    assert {model.backbone.name for model, *_ in networks} <= set(timm.list_pretrained())
    with torch.device("meta"):
        for recipe in networks.values():
            assert recipe.method.build(recipe.model, pretrained=False)


# ---- the page -------------------------------------------------------------------------------------------------------


def lines_of(where: str) -> list[list[str]]:
    """The rows of the page's table of a place in the paper, as cells."""
    (section,) = re.findall(rf"^## .*: `{re.escape(where)}`\n\n(.*?)(?:\n\n|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    rows = [re.split(r"(?<!\\) ?\| ?", line.strip("|").strip()) for line in section.splitlines()]
    return rows[2:]


def rows_of(where: str) -> list[list[Number]]:
    """The paper's rows of a place, in its order."""
    found: dict[tuple[str, ...], list[Number]] = defaultdict(list)
    for number in published(where=where):
        found[number.row, number.backbone, number.memory].append(number)
    return list(found.values())


def resolved(command: str) -> list[dict[str, Any]]:
    """The recipes, as plain values, of what a command of the page runs."""
    words = shlex.split(command)
    changes = [words[index + 1] for index, word in enumerate(words) if word == "--set"]
    if words[1] == "cost":
        return [to_dict(load_recipe(words[2], changes))]
    if words[1] == "evaluate":
        _, stem, _, name = words[2].split("/")
        assert {change.partition("=")[0] for change in changes} <= {"method.alpha_bc", "method.alpha_nf"}
        return [override(to_dict(recipes(ROOT / "benchmarks" / "paper" / f"{stem}.yaml")[name]), changes)]
    assert words[1] == "sweep"
    patterns = [words[index + 1] for index, word in enumerate(words) if word == "--only"]
    known = recipes(ROOT / words[2])
    chosen = [[name for name in known if fnmatchcase(name, pattern)] for pattern in patterns]
    assert all(chosen), command
    return [to_dict(known[name]) for names in chosen for name in names]


@pytest.mark.parametrize("where", dict.fromkeys(number.where for number in paper_numbers()))
def test_every_row_of_the_paper_has_its_numbers_and_a_command_that_runs_all_of_it_or_says_why_not(where):
    lines, rows = lines_of(where), rows_of(where)
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows, strict=True):
        printed = " / ".join(line[2:-2])
        assert [float(text) for text in re.findall(r"[\d.]+", printed)] == [number.value for number in row]
        if row[0].method not in IMPLEMENTED:
            assert line[-1] == "not implemented"
            continue
        for command in re.findall(r"`([^`]+)`", line[-1]):
            found = {number for recipe in resolved(command) for number in published_for(recipe)}
            assert set(row) <= found, command


def test_rows_of_ipseg_on_voc_are_there_as_the_text_and_as_the_authors_code_have_it():
    for where, rows in groupby(paper_numbers(), lambda number: number.where):
        if where in ("tab:voc_res", "tab:voc_res_disjoint") and any(number.method == "ipseg" for number in rows):
            commands = [line[-1] for line in lines_of(where) if line[0].startswith("IPSeg")]
            assert all(("--only 'ipseg-official-" in cell) and cell.count("<br>") == 1 for cell in commands)


def test_the_page_can_be_read_in_minutes():
    text = re.sub(r"^```.*?^```|^\|.*?$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert len(text.split()) <= 600


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    """docs/make_reproduce.py."""
    spec = importlib.util.spec_from_file_location("make_reproduce", ROOT / "docs" / "make_reproduce.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_known_contradictions(maker):
    """Each is kept, with its places. A change here is a change of the data file."""
    found = [
        (clash[0].method, clash[0].data, clash[0].scenario, clash[0].group, sorted({number.value for number in clash}))
        for clash in maker.contradictions()
    ]
    assert found == [
        ("ssul", "voc", "15-1", "all", [70.6, 71.7, 71.9]),  # the curve's end is neither backbone's
        ("ipseg", "voc", "15-1", "base", [83.5, 83.6]),
        ("ipseg", "voc", "15-1", "all", [81.5, 81.6]),
        ("coinseg", "voc", "15-1", "all", [76.8, 79.6]),  # the curve's end and the table
        ("joint", "ade", "100-5", "all", [38.3, 38.8]),
        ("ipseg", "voc", "15-1", "chair", [44.3, 44.4]),
        ("ipseg", "voc", "15-1", "cow", [93.5, 94.6]),
        ("ipseg", "voc", "15-1", "diningtable", [67.3, 67.4]),
        ("ipseg", "voc", "15-1", "horse", [92.9, 93.0]),
        ("ipseg", "voc", "15-1", "pottedplant", [65.6, 66.4]),
        ("ipseg", "voc", "15-1", "sheep", [88.6, 90.1]),
        ("ipseg", "voc", "15-1", "sofa", [57.9, 58.1]),
        ("ipseg", "voc", "15-1", "train", [89.3, 89.5]),
        ("ipseg", "voc", "2-2", "horse", [81.4, 84.1]),  # the text and the table
    ]


def test_the_known_means_that_base_and_new_classes_do_not_make(maker):
    found = {(number.row, number.backbone, number.scenario): round(made, 1) for number, made in maker.sums_that_fail()}
    assert found == {
        ("SSUL", "swin-b", "2-2"): 43.4,
        ("Joint", "resnet-101", "15-5"): 78.7,
        ("Joint", "resnet-101", "15-1"): 78.7,
        ("SSUL-M", "resnet-101", "10-1"): 62.5,
        ("PFCSS-M", "resnet-101", "15-5"): 77.6,
        ("MicroSeg-M†", "swin-b", "15-1"): 73.7,
        ("MicroSeg-M†", "swin-b", "10-1"): 69.5,
        ("CoinSeg-M", "swin-b", "10-1"): 73.3,
        ("Joint", "resnet-101", "100-5"): 38.8,
        ("SSUL-M†", "swin-b", "100-50"): 43.7,  # 48.0 on new classes cannot be: all is 33.7
    }


def line_of(recipe: Recipe, all_classes: float, **fields: Any) -> str:
    """A run as benchmarks/collect.py writes it; every class has the same IoU."""
    iou = dict.fromkeys(("background", *VOC), all_classes)
    miou = {"all": all_classes, "base": all_classes + 0.1, "new": all_classes - 0.1}
    step = StepResult(step=0, new=VOC, iou=iou, miou=miou, image_accuracy={"base": {"both": 0.9}, "all": {"both": 0.8}})
    name = recipe.scenario.name
    count = 1 if name.endswith("joint") else 6
    steps = tuple(StepResult(**{**vars(step), "step": index}) for index in range(count))
    result = RunResult(
        name="ours", method=recipe.method.name, scenario=name, setting=recipe.scenario.setting, steps=steps,
        **{"seed": 0} | fields,
    )  # fmt: skip
    return json.dumps({**result.to_json(), "settings": flat(to_dict(recipe)), "paper": 81.5})


def test_runs_of_ours_stand_beside_the_papers_rows_as_means_over_seeds(maker, tmp_path):
    voc = recipes(ROOT / "benchmarks" / "paper" / "voc.yaml")
    file = tmp_path / "ours.jsonl"
    runs = [line_of(voc["ipseg-swin-b_15-1_s0"], value, seed=seed) for seed, value in enumerate((0.7, 0.8))]
    elsewhere = json.dumps({**json.loads(runs[0]), "paper": None})
    file.write_text("\n".join([*runs, elsewhere, line_of(voc["joint-swin-b_joint_s0"], 0.9)]))
    ours = maker.Ours([file])
    main = published(where="tab:voc_res", row="IPSeg (ours)", backbone="swin-b")
    assert ours.beside(main) == "ours 15-1: 85.0 / 65.0 / 75.0"
    assert ours.beside(published(where="tab:IP_all_acc", row="Pixel+IP")) == "ours 15-1: " + " / ".join(["80.0"] * 6)
    assert ours.beside(published(where="tab:detailed_results", row="VOC 15-1")).endswith("75.0 / 75.0 / 75.0")
    joint = ours.beside(published(where="tab:voc_res", row="Joint", backbone="swin-b"))
    assert joint.split(" <br> ")[0] == "ours 15-5: 90.0 / 90.0 / 90.0"
    assert joint.count("<br>") == 3
    assert ours.beside(published(where="tab:voc_res", row="SSUL-M†")) == ""
