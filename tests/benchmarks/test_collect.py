"""benchmarks/collect.py: the finished runs of a sweep as one line each."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import collect
import pytest


@pytest.fixture
def sweep(tiny_run, tmp_path) -> Path:
    """A finished run, and one that was cut off."""
    for name in ("ipseg_2-1_s0", "cut_2-1_s0"):
        folder = tmp_path / "sweep" / "runs" / name
        folder.mkdir(parents=True)
        for file in ("run.json", "log.jsonl", "results.json", "recipe.yaml"):
            shutil.copy(tiny_run / file, folder)
    cut = tmp_path / "sweep" / "runs" / "cut_2-1_s0" / "results.json"
    cut.write_text(json.dumps(json.loads(cut.read_text()) | {"complete": False}))
    return tmp_path / "sweep"


def test_a_finished_run_becomes_a_line_with_its_provenance_and_runs_of_before_stay(sweep, tmp_path, capsys):
    out = tmp_path / "study" / "results.jsonl"
    out.parent.mkdir()
    out.write_text(json.dumps({"run": "before"}) + "\n")
    assert collect.main([str(sweep), "--out", str(out), "--machine", "a laptop"]) == 0
    assert "cut_2-1_s0" in capsys.readouterr().err
    before, line = map(json.loads, out.read_text().splitlines())
    assert before == {"run": "before"}
    assert line["command"] == "ipseg sweep benchmarks/study/grid.yaml --only ipseg_2-1_s0"
    assert (line["machine"], line["seed"], line["settings"]["memory.size"]) == ("a laptop", 0, 6)
    assert ["confusion" in step for step in line["steps"]] == [False, False, True]
    assert all(speed["images_a_second"] for speed in line["training"])
    assert line["date"]


def test_where_files_lie_on_a_machine_is_not_kept():
    recipe = {
        "data": {"path": "/home/somebody/voc"},
        "model": {"backbone": {"weights": "../w/resnet50.pth"}},
        "seed": 4,
    }
    settings = dict(collect.flat(recipe))
    assert settings == {"data.path": "voc", "model.backbone.weights": "resnet50.pth", "seed": 4}
