"""benchmarks/collect.py: what a sweep found out, small enough for the repository."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import collect
import pytest
import yaml

from ipseg.apps.compare import compare, with_bounds
from ipseg.config import override, to_dict
from ipseg.errors import UserError
from ipseg.report.compare import make_tables
from ipseg.report.formats import as_json
from ipseg.training.recipe import make_recipe


@pytest.fixture
def sweep(tiny_run, tmp_path) -> Path:
    """A sweep's folder: a run with two seeds, one with less memory, one cut off after two of three steps."""
    plan = []

    def add(place: str, changes: list[str], steps: int = 3, **result) -> None:
        folder = tmp_path / "sweep" / "runs" / place
        folder.mkdir(parents=True)
        for file in ("run.json", "log.jsonl"):
            shutil.copy(tiny_run / file, folder)
        recipe = override(yaml.safe_load((tiny_run / "recipe.yaml").read_text()), changes)
        (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
        results = json.loads((tiny_run / "results.json").read_text())
        results["steps"] = results["steps"][:steps]
        (folder / "results.json").write_text(json.dumps(results | result))
        plan.append({"name": place, "steps": 3})

    add("ipseg_2-1_s0", [])
    add("ipseg_2-1_s1", ["seed=1", "data.seed=1"], seed=1)
    add("less_2-1_s0", ["memory.size=3"], name="less")
    add("cut_2-1_s0", ["memory.size=4"], steps=2, name="cut")
    plan.append({"name": "not-begun_2-1_s0", "steps": 3})
    (tmp_path / "sweep" / "sweep.json").write_text(json.dumps({"version": 1, "runs": plan}))
    return tmp_path / "sweep"


def test_finished_runs_become_a_line_each_and_the_others_are_named(sweep, tmp_path, monkeypatch, capsys):
    out = tmp_path / "all.jsonl"
    monkeypatch.setattr(sys, "argv", ["collect.py", str(sweep), "--out", str(out)])
    collect.main()
    lines = [json.loads(text) for text in out.read_text().splitlines()]
    assert [line["run"] for line in lines] == ["ipseg_2-1_s0", "ipseg_2-1_s1", "less_2-1_s0"]
    assert [["confusion" in step for step in line["steps"]] for line in lines] == [[False, False, True]] * 3
    assert lines[2]["settings"]["memory.size"] == 3
    assert [len(line[key]) for line in lines for key in ("training", "parameters")] == [3] * 6
    assert out.stat().st_size < 8192 * len(lines)
    said = capsys.readouterr().err
    assert "cut_2-1_s0: 2 of 3 steps" in said
    assert "not-begun_2-1_s0: 0 of 3 steps" in said


def test_what_was_collected_compares_as_the_runs_themselves_do(sweep, tmp_path):
    lines, _ = collect.collect(sweep)
    collect.write(lines, tmp_path / "all.jsonl")
    ours = as_json(make_tables(with_bounds(collect.read([tmp_path / "all.jsonl"]))))
    theirs = [row for row in as_json(compare([sweep])) if row["state"] == "finished"]
    for own, their in zip(ours, theirs, strict=True):
        for kind in ("mean", "spread"):
            assert own.pop(kind) == pytest.approx(their.pop(kind), abs=1e-3)
        assert own == their


def test_a_collected_file_is_not_replaced_by_one_that_holds_less(sweep, tmp_path):
    lines, _ = collect.collect(sweep)
    out = tmp_path / "all.jsonl"
    collect.write(lines, out)
    with pytest.raises(UserError, match=r"less_2-1_s0.*another file"):
        collect.write(lines[:2], out)
    out.write_text("no JSON")
    with pytest.raises(UserError, match=r"was not made by collect\.py"):
        collect.write(lines, out)
    with pytest.raises(UserError, match="no run of the sweep is finished"):
        collect.write([], tmp_path / "none.jsonl")
    with pytest.raises(UserError, match="is this a folder that `ipseg sweep` made"):
        collect.collect(tmp_path)


def test_where_only_results_were_kept_the_grid_says_what_was_run(sweep, tmp_path, tiny_run):
    (tmp_path / "tiny.yaml").write_text((tiny_run / "recipe.yaml").read_text())
    grid = tmp_path / "grid.yaml"
    grid.write_text("base: tiny.yaml\nseeded: [seed, data.seed]\nseeds: [0, 1]\nruns: {ipseg: {}}")
    whole = [line for line in collect.collect(sweep)[0] if line["name"] != "less"]
    plan = json.loads((sweep / "sweep.json").read_text())
    (sweep / "sweep.json").write_text(json.dumps(plan | {"runs": plan["runs"][:2]}))
    for file in ("run.json", "log.jsonl", "recipe.yaml"):
        for place in sweep.glob(f"runs/*/{file}"):
            place.unlink()
    lines, left_out = collect.collect(sweep, grid)
    unknown = {"commit": None, "torch": None, "training": [None] * 3}
    assert (lines, left_out) == ([line | unknown for line in whole], [])
    (sweep / "sweep.json").write_text(json.dumps(plan))
    with pytest.raises(UserError, match="less_2-1_s0: the grid does not have it"):
        collect.collect(sweep, grid)


def test_settings_are_the_whole_recipe_and_hold_no_place_of_a_machine(tiny_settings):
    recipe = tiny_settings | {"data": {"name": "voc", "path": "/home/somebody/voc_animals"}, "name": "x", "seed": 4}
    recipe["model"]["backbone"]["weights"] = "../weights/resnet50.safetensors"
    settings = collect.settings_of(to_dict(make_recipe(recipe)))
    assert settings["data.path"] == "voc_animals"
    assert settings["model.backbone.weights"] == "resnet50.safetensors"
    assert settings["method.alpha_bc"] == 0.9  # as it is by default today
    assert not {"name", "seed", "device"} & set(settings)


def test_a_line_that_has_only_what_was_not_the_default_is_the_same_row_as_a_whole_one(sweep, tmp_path):
    lines, _ = collect.collect(sweep)
    first, second = lines[:2]
    assert (first["name"], first["seed"], second["seed"]) == ("ipseg", 0, 1)
    del second["settings"]["method.alpha_bc"], second["settings"]["scenario.name"]
    collect.write([first, second], tmp_path / "all.jsonl")
    one, other = collect.read([tmp_path / "all.jsonl"])
    assert one.group == other.group


def test_speed_is_that_of_a_steps_last_line_and_a_step_of_another_run_has_none(tmp_path):
    log = tmp_path / "log.jsonl"
    entries = [(1, 10, 5.0), (1, 20, 80.0), (2, 20, 40.0)]
    told = [{"event": "train", "step": s, "iteration": i, "of": 20, "images_a_second": r} for s, i, r in entries]
    log.write_text("\n".join([*map(json.dumps, told), '{"event": "tra']))
    assert collect.training(log, 4, 3) == [
        None,
        {"iterations": 20, "images_a_second": 80.0, "seconds": 1.0},
        {"iterations": 20, "images_a_second": 40.0, "seconds": 2.0},
    ]
