"""benchmarks/curves.py, confusions.py and costs.py."""

from __future__ import annotations

import json
from pathlib import Path

import confusions
import costs
import curves
import tables

from ipseg.data.step_dataset import StepDataset
from ipseg.training.recipe import load_recipe

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def test_the_result_is_drawn_from_the_files_of_the_repository(tmp_path, capsys):
    field, out = RESULTS / "2026-11-15_field.jsonl", tmp_path / "field.svg"
    assert curves.main([str(field), "--scenario", "3-1", "--run", "mib", "--run", "joint", "--out", str(out)]) == 0
    assert "mib 59.5" in out.read_text(encoding="utf-8")
    assert curves.main([str(field), "--scenario", "9-1", "--out", str(out)]) == 2
    assert 'scenario "9-1"' in capsys.readouterr().err


def test_what_is_called_what_is_drawn_from_the_files_of_the_repository(tmp_path):
    animals, out = RESULTS / "2026-11-16_animals.jsonl", tmp_path / "animals.svg"
    words = [str(animals), "--scenario", "2-1", "--run", "ssul_m", "--run", "joint", "--out", str(out)]
    assert confusions.main(words) == 0
    text = out.read_text(encoding="utf-8")
    assert "ssul_m" in text
    assert text.count("horse") == 4  # called so in both maps; and once a row, at the first map above and below


def test_of_more_than_three_runs_the_others_stand_below(tmp_path):
    animals, out = RESULTS / "2026-11-16_animals.jsonl", tmp_path / "animals.svg"
    names = ("ipseg", "ipseg_moments", "ssul_m", "mib", "joint")
    runs = [word for name in names for word in ("--run", name)]
    assert confusions.main([str(animals), "--scenario", "2-1", *runs, "--out", str(out)]) == 0
    text = out.read_text(encoding="utf-8")
    assert text.count("after step") == 5
    assert text.count("true class") == 2  # once a band
    width = float(text.partition('width="')[2].partition("pt")[0])
    assert width < 72 * 8


def test_results_without_a_confusion_matrix_are_named(tmp_path, capsys):
    line = json.loads((RESULTS / "2026-11-15_field.jsonl").read_text().splitlines()[0])
    line["steps"][-1]["confusion"] = None
    (tmp_path / "old.jsonl").write_text(json.dumps(line) + "\n")
    words = [str(tmp_path / "old.jsonl"), "--scenario", "joint", "--out", str(tmp_path / "x.svg")]
    assert confusions.main(words) == 2
    assert f"the results of {line['name']} have no confusion matrix" in capsys.readouterr().err


def test_costs_of_a_grid_are_measured_once_a_run_and_tabled(tmp_path):
    grid, out = tmp_path / "grid.yaml", tmp_path / "costs.json"
    grid.write_text(
        "base: scenes_3-1_ipseg\n"
        "set: {model: {backbone: {name: resnet10t, weights: none}, width: 8, posterior_width: 16}, data: {train: 40}}\n"
        "runs: {ipseg: {}, finetune: {method: {name: finetune}}}\nseeds: [0, 1]\n"
    )
    assert costs.main([str(grid), "--size", "64", "--device", "cpu", "--out", str(out)]) == 0
    head, _, *table = tables.Wanted(table="cost", files=(out,)).made().splitlines()[:4]
    assert head == "| run | parameters, M | learning, M | multiply-adds, G |"  # the rest needs a GPU
    assert [line.split(" | ")[0] for line in table] == ["| ipseg", "| finetune"]
    assert not any(costs.UNKNOWN in line for line in table)


def test_speeds_that_a_gpu_told_have_columns_and_equal_costs_one_row(tmp_path):
    out = tmp_path / "costs.json"
    step = {"parameters": 2e6, "trainable": 1e6, "macs": 3e9, "fps": 80.0, "training_images_a_second": 500.0}
    step |= {"inference_memory": 2**30, "training_memory": 2**32}
    runs = [{"run": "one", "size": 64, "device": "a GPU", "seconds": 90.0, "steps": [step, step]}]
    runs += [
        {**runs[0], "run": "two"},
        {**runs[0], "run": "another", "steps": [{**step, "fps": None, "training_memory": None}]},
    ]
    out.write_text(json.dumps({"version": costs.VERSION, "runs": runs}))
    _, _, one, another, _, said, *_ = costs.cost_table([out]).splitlines()
    assert one == "| one, two | 2.0 – 2.0 | 1.0 – 1.0 | 3.0 – 3.0 | 80 – 80 | 1.0 | 500 – 500 | 4.0 | 1.5 |"
    assert another == "| another | 2.0 | 1.0 | 3.0 | ? | 1.0 | 500 | ? | 1.5 |"
    assert "64" in said


def test_training_takes_its_visits_over_its_speeds():
    recipe = load_recipe("scenes_3-1_ipseg", ["data.train=40", "training.epochs=3", "training.later_epochs=null"])
    splits = recipe.splits()
    scenario = recipe.scenario.build(splits.name, splits.classes)
    visits = [3 * len(StepDataset(splits.train, scenario, step)) for step in scenario.steps]
    assert costs.seconds(recipe, [2.0] * len(visits)) == sum(visits) / 2
    assert costs.seconds(recipe, [None] * len(visits)) is None
