"""benchmarks/tables.py and figures.py: what the docs show is made of the results in the repository."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import figures
import pytest
import tables

ROOT = Path(__file__).parents[2]
STUDIES = sorted(path.parent for path in (ROOT / "benchmarks").glob("*/README.md"))
CLASSES = ("background", "cat", "cow", "dog")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def run(name: str, seed: int, last: tuple[float, ...], scenario: str = "animals/2-1") -> dict[str, Any]:
    """After step 0 background, cat and cow have an IoU of 0.9; `last` are the IoU in the end."""
    first = {"step": 0, "new": ["cat", "cow"], "iou": dict.fromkeys(CLASSES[:3], 0.9)}
    second = {"step": 1, "new": ["dog"], "iou": dict(zip(CLASSES, last, strict=True))}
    joint = {"step": 0, "new": list(CLASSES[1:]), "iou": second["iou"]}
    steps = [joint] if scenario.endswith("joint") else [first, second]
    return {"name": name, "seed": seed, "scenario": scenario, "setting": "overlap", "steps": steps}


@pytest.fixture
def study(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(tables, "HERE", tmp_path)
    runs = [run("ipseg", seed, (0.8, 0.6, 0.6, 0.4 + 0.08 * seed)) for seed in range(3)]
    runs += [run("no_ip", seed, (0.8, 0.5, 0.5, value)) for seed, value in ((0, 0.2), (1, 0.4), (7, 0.96))]
    runs += [run("joint", 0, (0.9, 0.7, 0.7, 0.9), "animals/joint")]
    runs += [run("mib, lr=1.0", 0, (0.2,) * 4), run("mib, lr=0.1", 0, (0.1,) * 4)]
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in runs))
    return tmp_path


@pytest.mark.parametrize(
    ("mark", "rows"),
    [
        (
            "main results.jsonl scenario=2-1 run=ipseg run=no* run=joint",
            [
                "| ipseg | **66.7 ± 0.0** | 48.0 ± 8.0 | **62.0 ± 2.0** | **55.6 ± 5.4** | **76.0 ± 1.0** "
                "| **23.3 ± 0.0** | 77.5 % | 3 |",
                "| no\\_ip | 60.0 ± 0.0 | **52.0 ± 39.4** | 58.0 ± 9.8 | 50.6 ± 22.0 "
                "| 74.0 ± 4.9 | 30.0 ± 0.0 | 72.5 % | 3 |",
                "| joint † | 76.7 | 90.0 | 80.0 | 82.8 | – | – | 100.0 % | 1 |",
            ],
        ),
        (
            "classes results.jsonl run=joint run=ipseg",
            [
                "| joint † | 90.0 | 70.0 | 70.0 | 90.0 | 1 |",
                "| ipseg | 80.0 ± 0.0 | 60.0 ± 0.0 | 60.0 ± 0.0 | 48.0 ± 8.0 | 3 |",
            ],
        ),
        (  # 50 and 55 against 60 and 62; ipseg has no seed 7
            "ablation results.jsonl reference=ipseg run=ipseg run=no_ip",
            ["| ipseg | 62.0 ± 2.0 | – | 3 |", "| no\\_ip | 58.0 ± 9.8 | -8.5 | 3 |"],
        ),
        ("varied results.jsonl run=mib*", ["| mib | 10.0 (10.0, 10.0) | **20.0** (20.0, 20.0) |"]),
    ],
)
def test_a_table_has_the_numbers_that_one_computes_by_hand(study, mark, rows):
    assert tables.table(mark).splitlines()[2:] == rows


def test_a_difference_of_three_seeds_has_students_interval():
    assert tables.interval([0.01, 0.02, 0.03]) == "+2.0 [-0.5, 4.5]"


def test_measurements_are_tabled_as_they_are(study):
    oracles = [{"name": "ipseg", "miou": {"as it is": {"all": value}, "both": {"all": 0.97}}} for value in (0.5, 0.52)]
    (study / "oracles.json").write_text(json.dumps({"runs": oracles}))
    assert tables.table("oracles oracles.json").splitlines()[-1] == "| ipseg | 51.0 ± 1.4 | 97.0 ± 0.0 | 2 |"
    step = {"parameters": 2e6, "trainable": 1e6, "macs": 3e9}
    runs = [{"name": "one", "steps": [step, step]}, {"name": "two", "steps": [step, step]}]
    (study / "costs.json").write_text(json.dumps({"runs": runs}))
    assert tables.table("cost costs.json").splitlines()[-1] == "| one, two | 2.0 – 2.0 | 1.0 – 1.0 | 3.0 – 3.0 |"


def test_runs_of_the_paper_stand_beside_its_numbers_with_their_commands(study):
    grid = """
        base: voc_15-1_ipseg_swin-b
        runs: {swin: {}, of our own: {method: {alpha_bc: 0.123}}}
        scenarios: [15-5, 15-1]
        also: [{runs: [swin], scenarios: [15-1], vary: {memory.size: [50, 7]}}]
    """
    (study / "paper").mkdir()
    (study / "paper" / "grid.yaml").write_text(grid)
    rows = [
        "| swin | 80.9 | 81.5 | – | `--only 'swin_*'` |",
        "| memory.size=50 |  | 80.8 | – | `--only swin_15-1_memory.size=50_s0` |",
    ]
    assert tables.table("paper paper/grid.yaml").splitlines()[2:] == rows
    measured = run("swin", 0, (0.8, 0.7, 0.6, 0.5)) | {"run": "swin_15-1_s0"}
    (study / "paper" / "results.jsonl").write_text(json.dumps(measured))
    assert tables.table("paper paper/grid.yaml").splitlines()[2] == rows[0].replace("–", "15-1: 65.0")


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ("mian results.jsonl", "no kind mian"),
        ("main results.jsonl run=ipsg", "no run 'ipsg'; there are ipseg"),
        ("main results.jsonl seed=1", "unknown option seed"),
    ],
)
def test_a_mark_that_asks_for_what_is_not_there_is_refused(study, mark, message):
    with pytest.raises(SystemExit, match=message):
        tables.table(mark)


def test_a_pages_tables_are_replaced_and_nothing_else(study, tmp_path, capsys):
    page = tmp_path / "page.md"
    before, after = "# Results\n\n<!-- table classes results.jsonl run=joint -->\n", "<!-- end -->\n\nText.\n"
    page.write_text(f"{before}typed by hand\n{after}")
    assert tables.main(["--check", str(page)]) == 1
    assert "make results" in capsys.readouterr().err
    assert tables.main([str(page)]) == 0
    text = page.read_text()
    assert text.startswith(before)
    assert text.endswith(after)
    assert "typed by hand" not in text
    assert tables.main(["--check", str(page)]) == 0


def test_the_tables_of_the_docs_come_from_the_results_in_the_repository():
    """If not: make results."""
    assert tables.main(["--check", *map(str, PAGES)]) == 0


@pytest.mark.parametrize("study", STUDIES, ids=lambda path: path.name)
def test_every_result_has_its_provenance(study):
    lines = [line for file in study.glob("*.jsonl") for line in map(json.loads, file.read_text().splitlines())]
    assert lines
    for line in lines:
        if "device" not in line:  # `ipseg cost --json` says what it ran on
            assert {"commit", "date", "machine", "command"} <= {key for key, value in line.items() if value}


def test_figures_are_drawn_from_the_results_in_the_repository(tmp_path):
    out = tmp_path / "demo.svg"
    assert figures.main(["demo/results.jsonl", "--run", "ipseg", "--run", "finetune", "--out", str(out)]) == 0
    assert "finetune 13.7" in out.read_text(encoding="utf-8")
