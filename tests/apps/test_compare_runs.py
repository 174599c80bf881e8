"""`ipseg compare`: which files a path stands for, which runs are one row, and when the paper has a number."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from commands import call
from ipseg.apps.compare import compare, paper_number, read_run
from ipseg.config import override, to_dict
from ipseg.errors import UserError
from ipseg.evaluation.results import RunResult
from ipseg.training.recipe import load_recipe


@pytest.fixture
def copies(tiny_run, tmp_path):
    """Makes a folder with results and recipe as tiny_run's, with changes."""

    def make(place: str, changes: list[str], **result) -> Path:
        folder = tmp_path / place
        folder.mkdir(parents=True)
        recipe = yaml.safe_load((tiny_run / "recipe.yaml").read_text())
        (folder / "recipe.yaml").write_text(yaml.safe_dump(override(recipe, changes)))
        results = json.loads((tiny_run / "results.json").read_text()) | result
        (folder / "results.json").write_text(json.dumps(results))
        return folder

    return make


def printed(tables) -> dict[str, list[tuple[str, int]]]:
    return {table.title: [(row.label, len(row.runs)) for row in table.rows] for table in tables}


def test_runs_that_differ_in_seeds_alone_are_one_row(copies):
    paths = [
        copies("a", []),
        copies("b", ["seed=1", "data.seed=1", "name=other", "training.workers=9"], seed=1),
        copies("c", ["memory.size=3"], name="less"),
        copies("d", ["scenario.setting=disjoint"], setting="disjoint"),
    ]
    assert printed(compare(paths)) == {
        "scenes/2-1 overlap": [("ipseg", 2), ("less", 1)],
        "scenes/2-1 disjoint": [("ipseg", 1)],
    }


def test_a_run_from_before_a_setting_existed_is_in_the_row_of_those_with_its_default(copies):
    old, new, foreign = copies("a", []), copies("b", ["seed=1"], seed=1), copies("c", ["method.unheard_of=1"])
    recipe = yaml.safe_load((old / "recipe.yaml").read_text())
    del recipe["method"]["head"]
    (old / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    (rows,) = printed(compare([old, new, foreign])).values()
    assert [count for _, count in rows] == [2, 1]


def test_a_second_run_with_the_same_seed_is_no_second_seed(copies):
    paths = [copies("a", []), copies("again", []), copies("thrice", []), copies("b", ["seed=1"], seed=1)]
    (rows,) = printed(compare(paths)).values()
    assert rows == [("ipseg", 2), ("ipseg (again)", 1), ("ipseg (again 2)", 1)]
    other_images = copies("c", ["data.seed=1"])
    assert printed(compare([paths[0], other_images])) == {"scenes/2-1 overlap": [("ipseg", 2)]}


def test_a_path_is_a_run_its_results_or_a_folder_of_runs(copies, tmp_path):
    copies("sweep/runs/b", ["memory.size=3"], name="b")
    copies("sweep/runs/a", [], name="a")
    (tmp_path / "sweep" / "sweep.json").write_text(json.dumps({"runs": [{"name": "b"}, {"name": "a"}]}))
    whole = printed(compare([tmp_path / "sweep"]))
    assert whole == {"scenes/2-1 overlap": [("b", 1), ("a", 1)]}  # as the grid lists them
    parts = [tmp_path / "sweep" / "runs" / "b", tmp_path / "sweep" / "runs" / "a" / "results.json"]
    assert printed(compare(parts)) == whole
    assert printed(compare([*parts, tmp_path / "sweep"])) == whole  # none counts twice


def test_a_folder_of_runs_and_sweeps_is_all_of_them(copies, tmp_path):
    copies("all/alone", [])
    copies("all/sweep/runs/less_2-1_s0", ["memory.size=3"], name="less")
    assert printed(compare([tmp_path / "all"])) == {"scenes/2-1 overlap": [("ipseg", 1), ("less", 1)]}


def test_runs_that_were_measured_on_held_out_images_stand_apart_with_their_own_bound(copies):
    changes = ["evaluation.held_out=0.25"]
    joint = {"name": "joint", "scenario": "scenes/joint", "method": "joint", "info": {"steps": 1}}
    last = json.loads((copies("a", []) / "results.json").read_text())["steps"][-1]
    joint["steps"] = [last | {"step": 0, "new": [name for name in last["iou"] if name != "background"]}]
    paths = [copies("b", [], **joint), copies("c", changes, name="held"), copies("d", changes, **joint)]
    assert printed(compare([*paths, paths[0].with_name("a")])) == {
        "scenes/2-1 overlap, measured on 25 % of the training images": [("held", 1), ("joint †", 1)],
        "scenes/2-1 overlap": [("ipseg", 1), ("joint †", 1)],
    }


def test_results_without_a_recipe_are_compared_by_what_they_know(copies, tmp_path):
    for index, size in enumerate((100, 100, 0)):
        folder = copies(str(index), [], seed=index, info={"steps": 3, "memory": size})
        (folder / "recipe.yaml").unlink()
    rows = printed(compare([tmp_path / name for name in "012"]))["scenes/2-1 overlap"]
    assert rows == [("ipseg [memory=100]", 2), ("ipseg [memory=0]", 1)]


def test_joint_training_stands_beside_every_scenario_in_its_groups(copies):
    iou = {"background": 0.9, "cow": 0.8, "bus": 0.7, "horse": 0.5, "car": 0.3}
    step = {"step": 0, "new": ["cow", "bus", "horse", "car"], "iou": iou, "miou": {"all": 0.64, "base": 0.64}}
    joint = copies("joint", ["scenario.name=joint"], name="joint", scenario="scenes/joint", steps=[step],
                   info={"steps": 1})  # fmt: skip
    (alone,) = compare([joint])
    assert (alone.title, alone.rows[0].label) == ("scenes/joint overlap", "joint")
    beside = compare([joint, copies("a", []), copies("d", ["scenario.setting=disjoint"], setting="disjoint")])
    assert [table.title for table in beside] == ["scenes/2-1 overlap", "scenes/2-1 disjoint"]
    assert [row.label for row in beside[1].rows] == ["ipseg", "joint †"]
    assert [cell.text for cell in beside[0].cells(beside[0].rows[1])[:3]] == ["80.0", "40.0", "64.0"]


def test_joint_training_is_no_bound_of_an_extended_run(copies):
    """That was measured on images of its own."""
    iou = {"background": 0.9, "cow": 0.8, "bus": 0.7, "horse": 0.5, "car": 0.3}
    step = {"step": 0, "new": ["cow", "bus", "horse", "car"], "iou": iou, "miou": {"all": 0.64, "base": 0.64}}
    joint = copies("joint", [], name="joint", scenario="scenes/joint", steps=[step], info={"steps": 1})
    found = compare([joint, copies("grown", [], scenario="scenes/grown")])
    assert [len(table.rows) for table in found] == [1, 1]
    assert not any(row.bound for table in found for row in table.rows)


@pytest.mark.parametrize(
    ("changes", "paper"),
    [
        ([], 81.5),
        (["memory.size=0"], 75.4),
        (["training.epochs=1", "seed=4"], 81.5),
        (["memory.size=50"], 80.8),
        (["memory.size=33"], None),
        (["method.alpha_bc=0.2"], None),
        (["model.backbone.name=resnet50.a1_in1k"], None),
        (["scenario.order=3"], None),
        (["evaluation.held_out=0.1"], None),
        (["scenario.name=voc_animals/2-1"], None),
        (["scenario.name=voc_animals/joint"], None),
        (["data.name=scenes"], None),
    ],
    ids=str,
)
def test_the_paper_is_quoted_only_where_the_setting_is_the_papers(tiny_run, changes, paper):
    recipe = override(to_dict(load_recipe("voc_15-1_ipseg_swin-b")), changes)
    name = recipe["scenario"]["name"] if "/" in recipe["scenario"]["name"] else f"voc/{recipe['scenario']['name']}"
    result = RunResult(name="x", method="ipseg", scenario=name, setting="overlap", seed=0, steps=())
    assert paper_number(recipe, result) == paper


def test_ipseg_without_decoupling_stands_beside_the_papers_ablation_on_either_head(copies):
    paths = []
    for head in ("large", "small"):
        changes = ["method.image_posterior=false", "method.decoupling=false", f"method.head={head}"]
        path = copies(head, [], name=f"none on {head} heads", scenario="voc/15-1", info={"steps": 3})
        recipe = override(to_dict(load_recipe("voc_15-1_ipseg_swin-b")), changes)
        (path / "recipe.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(recipe))))
        paths.append(path)
    (table,) = compare(paths)
    assert [(row.label, row.paper, row.nearest) for row in table.rows] == [
        ("none on large heads", 71.9, True),
        ("none on small heads", 71.9, True),
    ]
    assert "≈ 71.9" in call("compare", *paths, "--format", "markdown").output


def test_nothing_to_compare_is_explained(tmp_path, tiny_run):
    with pytest.raises(UserError, match=r"no results in .*nowhere.*`ipseg sweep`"):
        compare([tmp_path / "nowhere"])
    shutil.copy(tiny_run / "run.json", tmp_path / "run.json")
    with pytest.raises(UserError, match="has not finished a step"):
        compare([tmp_path])
    (tmp_path / "results.json").write_text('{"version": 1}')
    with pytest.raises(UserError, match=r"is not the results\.json of a run"):
        compare([tmp_path])
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("method: {name: ipseg}")
    with pytest.raises(UserError, match=r"mine\.yaml is no results\.json\. Give a run's folder"):
        compare([recipe])


@pytest.mark.parametrize(
    ("style", "sign"), [("table", "─"), ("markdown", "| --- |"), ("latex", "tabular"), ("csv", ",")]
)
def test_the_command_speaks_every_format(tiny_run, style, sign):
    result = call("compare", tiny_run, "--format", style)
    assert result.exit_code == 0
    assert sign in result.output
    assert "ipseg" in result.output


@pytest.mark.parametrize("text", ["{", '{"version": 1}', "[]"])
def test_a_damaged_list_of_a_sweep_costs_the_order_of_rows_alone(copies, text):
    run = copies("one", [])
    (run.parent / "sweep.json").write_text(text)
    assert [row.name for row in compare([run.parent])[0].rows]


@pytest.mark.parametrize(
    "change", [{"info": None}, {"name": None}, {"steps": [{"new": ["a"], "iou": None, "miou": {}}]}]
)
def test_results_of_wrong_kinds_are_refused_by_name(copies, tmp_path, change):
    file = tmp_path / "results.json"
    file.write_text(json.dumps(json.loads((copies("one", []) / "results.json").read_text()) | change))
    with pytest.raises(UserError, match=r"results\.json is not the results\.json of a run"):
        compare([file])


@pytest.mark.parametrize("recipe", ["seed: 0", "scenario: 1.5", "{scenario: {name: 2-1}, data: {name: voc}, model: 3}"])
def test_a_run_whose_recipe_lacks_sections_is_compared_without_the_papers_number(tiny_run, tmp_path, recipe):
    for name in ("results.json", "run.json"):
        (tmp_path / name).write_bytes((tiny_run / name).read_bytes())
    (tmp_path / "recipe.yaml").write_text(recipe)
    assert read_run(tmp_path / "results.json").paper is None
