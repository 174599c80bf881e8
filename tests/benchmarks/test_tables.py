"""benchmarks/tables.py: tables of what collect.py wrote, by themselves and in a page."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tables

from ipseg.errors import UserError

ROOT = Path(__file__).parents[2]
CLASSES = ("background", "cat", "cow", "dog")


def line_of(name: str, seed: int, iou: tuple[float, ...], scenario: str = "animals/2-1", **fields) -> str:
    """A run whose last step has these IoU; all but joint had learned background, cat and cow before, to 0.9."""
    joint = scenario.endswith("/joint")
    last = dict(zip(CLASSES, iou, strict=True))
    groups = {"all": sum(iou) / 4, "base": sum(iou[:3]) / 3, "new": iou[3], "harmonic": None}
    steps = [
        {"step": 0, "new": ["cat", "cow"], "iou": dict.fromkeys(CLASSES[:3], 0.9), "miou": {"all": 0.9, "base": 0.9}},
        {"step": 1, "new": ["dog"], "iou": last, "miou": groups},
    ]
    line = {
        "version": 2, "run": f"{name}_s{seed}", "name": name, "method": name, "scenario": scenario,
        "setting": "overlap", "seed": seed, "oracle": [], "info": {}, "steps": steps[1:] if joint else steps,
        "settings": {"memory.size": 100, "data.seed": 0}, "paper": None,
    }  # fmt: skip
    return json.dumps(line | fields) + "\n"


@pytest.fixture
def file(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    path = tmp_path / "runs.jsonl"
    lines = [line_of("ipseg", seed, (0.8, 0.6, 0.6, 0.4 + 0.08 * seed)) for seed in range(3)]
    lines += [line_of("no_ip", seed, (0.8, 0.5, 0.5, value)) for seed, value in ((0, 0.2), (1, 0.4), (7, 0.96))]
    lines += [line_of("joint", 0, (0.9, 0.7, 0.7, 0.9), "animals/joint")]
    path.write_text("".join(lines))
    return path


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|") and "---" not in line]


def test_the_main_table_has_means_over_seeds_and_the_share_of_joint(file):
    assert rows(tables.Wanted(table="main", files=(file,)).made()) == [
        "| run | base | new | all | harmonic | average | forgetting | of joint | n |",
        "| ipseg | **66.7 ± 0.0** | 48.0 ± 8.0 | **62.0 ± 2.0** | – | **76.0 ± 1.0** | **23.3 ± 0.0** | 77.5 % | 3 |",
        "| no\\_ip | 60.0 ± 0.0 | **52.0 ± 39.4** | 58.0 ± 9.8 | – | 74.0 ± 4.9 | 30.0 ± 0.0 | 72.5 % | 3 |",
        "| joint † | 76.7 | 90.0 | 80.0 | 82.8 | – | – | 100.0 % | 1 |",
    ]


def test_seeds_that_were_compiled_and_seeds_that_were_not_are_one_row(file):
    settings = {"memory.size": 100, "data.seed": 0, "training.compile": True}
    with file.open("a") as more:
        more.write(line_of("joint", 1, (0.9, 0.7, 0.7, 0.9), "animals/joint", settings=settings))
    assert "| joint † | 76.7 ± 0.0 | 90.0 ± 0.0 | 80.0 ± 0.0 |" in tables.Wanted(table="main", files=(file,)).made()


def test_an_ablation_is_a_difference_between_runs_of_the_same_seed(file):
    assert rows(tables.Wanted(table="ablation", files=(file,), runs=("no*",)).made()) == [
        "| run | all | difference | pairs | n |",
        "| ipseg | 62.0 ± 2.0 | – | – | 3 |",
        "| no\\_ip | 58.0 ± 9.8 | -8.5 ± 2.1 | 2 | 3 |",  # 50 and 55 against 60 and 62; ipseg has no seed 7
    ]
    other_way = tables.Wanted(table="ablation", files=(file,), reference="no_ip").made()
    assert "| ipseg | 62.0 ± 2.0 | +8.5 ± 2.1 | 2 | 3 |" in other_way


def test_the_class_table_has_a_column_a_class(file):
    assert rows(tables.Wanted(table="classes", files=(file,), runs=("joint", "ipseg")).made()) == [
        "| run | background | cat | cow | dog | n |",
        "| ipseg | 80.0 ± 0.0 | 60.0 ± 0.0 | 60.0 ± 0.0 | 48.0 ± 8.0 | 3 |",
        "| joint † | 90.0 | 70.0 | 70.0 | 90.0 | 1 |",
    ]


def test_what_a_grid_varied_has_a_column_a_value(tmp_path):
    path = tmp_path / "rates.jsonl"
    runs = (("mib, lr=1.0", 0.2), ("mib, lr=0.1", 0.1), ("plop, x, lr=1.0", 0.4), ("mib, lr=0.1, memory.size=5", 1.0))
    tried = [line_of(name, 0, (value,) * 4) for name, value in [*runs, ("mib", 0.9)]]
    tried.append(line_of("joint, training.lr=0.5", 0, (0.7,) * 4, "animals/joint"))
    path.write_text("".join(tried))
    assert rows(tables.Wanted(table="varied", files=(path,)).made()) == [
        "| `lr` | 0.1 | 1.0 |",
        "| mib | 10.0 (10.0, 10.0) | **20.0** (20.0, 20.0) |",
        "| plop, x | – | **40.0** (40.0, 40.0) |",
        "| `training.lr` | 0.5 |",
        "| joint | **70.0** (70.0, 70.0) |",
    ]
    path.write_text(line_of("mib", 0, (0.9,) * 4))
    with pytest.raises(UserError, match="no run has a varied setting"):
        tables.Wanted(table="varied", files=(path,)).made()


def test_what_differs_in_the_varied_setting_alone_stands_beside_its_values(tmp_path):
    path = tmp_path / "sizes.jsonl"

    def tried(name: str, value: float, settings: dict[str, object]) -> str:
        return line_of(name, 0, (value,) * 4, method="ipseg", settings=settings)

    runs = [
        tried("ipseg, memory.size=50", 0.3, {"memory.size": 50}),
        tried("ipseg", 0.4, {}),  # with the default, 100
        tried("no memory", 0.2, {"memory.size": 0}),
        tried("another", 0.9, {"training.lr": 0.5}),
    ]
    path.write_text("".join(runs))
    assert rows(tables.Wanted(table="varied", files=(path,)).made()) == [
        "| `memory.size` | 0 | 50 | 100 |",
        "| ipseg | 20.0 (20.0, 20.0) | 30.0 (30.0, 30.0) | **40.0** (40.0, 40.0) |",
    ]


def test_a_switch_that_was_varied_has_a_column_for_on_and_one_for_off(tmp_path):
    path = tmp_path / "switch.jsonl"
    settings = {"ipseg, method.decoupling=false": {"method.decoupling": False}, "ipseg": {}}  # on by default
    lines = [line_of(name, 0, (0.5,) * 4, method="ipseg", settings=changed) for name, changed in settings.items()]
    path.write_text("".join(lines))
    assert rows(tables.Wanted(table="varied", files=(path,)).made()) == [
        "| `method.decoupling` | false | true |",
        "| ipseg | **50.0** (50.0, 50.0) | **50.0** (50.0, 50.0) |",
    ]


def test_of_look_alikes_it_is_told_which_was_learned_first_and_which_is_called_the_other(tmp_path):
    path = tmp_path / "order.jsonl"
    confusion = {"cat": {"cat": 75, "dog": 25}, "dog": {"dog": 5, "cat": 5}, "cow": {"cow": 9, "cat": 1}}
    measured = [json.loads(line_of("ipseg", 0, (0.5,) * 4)), json.loads(line_of("backwards", 0, (0.5,) * 4))]
    for line in measured:
        line["steps"][-1]["confusion"] = confusion
    measured[1]["steps"][0]["new"], measured[1]["steps"][1]["new"] = ["dog", "cow"], ["cat"]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in measured))
    assert rows(tables.Wanted(table="order", files=(path,)).made()) == [
        "| look-alikes | run | learned first | the later, called the first | the first, called the later |",
        "| cat and dog | ipseg | cat | 50.0 | 25.0 |",
        "| cat and dog | backwards | dog | 25.0 | 50.0 |",
        "| cat and cow | ipseg | together | 10.0 | 0.0 |",
        "| cat and cow | backwards | cow | 0.0 | 10.0 |",
    ]
    path.write_text(line_of("ipseg", 0, (0.5,) * 4))
    with pytest.raises(UserError, match="no run that learned in steps has a confusion matrix with look-alikes"):
        tables.Wanted(table="order", files=(path,)).made()


def test_a_run_in_two_files_counts_once_and_scenarios_stand_apart(file, tmp_path, capsys):
    more = tmp_path / "more.jsonl"
    more.write_text(line_of("ipseg", 0, (0.1,) * 4) + line_of("ipseg", 0, (0.5,) * 4, "animals/3-1"))
    both = tables.Wanted(table="main", files=(file, more)).made()
    assert both.index("**animals/2-1 overlap**") < both.index("62.0 ± 2.0") < both.index("**animals/3-1 overlap**")
    assert "line 1 of" in capsys.readouterr().err
    assert len(rows(tables.Wanted(table="main", files=(file, more), scenario="3-1").made())) == 3  # joint beside it


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"table": "mian"}, "Did you mean main"),
        ({"scenario": "2-2"}, 'no scenario "2-2".*animals/2-1'),
        ({"runs": ("ipsg",)}, 'no run "ipsg". Did you mean ipseg'),
        ({"table": "ablation", "reference": "none"}, 'no reference run "none"'),
        ({"files": ()}, "there are no results"),
        ({"files": (Path("missing.jsonl"),)}, r"no file missing\.jsonl.*collect\.py"),
        ({"files": (ROOT / "benchmarks" / "results" / "2026-11-15_resume.jsonl",)}, "line 1 of .* is not a run"),
    ],
    ids=str,
)
def test_what_is_not_there_is_named(file, wanted, message):
    with pytest.raises(UserError, match=message):
        tables.Wanted(**{"table": "main", "files": (file,)} | wanted).made()


def test_oracles_are_tabled_as_they_were_measured_seeds_in_one_row(tmp_path):
    found = {"a_s0": {"name": "ipseg", "miou": {"as it is": {"all": 0.5}, "both": {"all": 0.97}}}}
    found["a_s1"] = {"name": "ipseg", "miou": {"as it is": {"all": 0.52}, "both": {"all": 0.97}}}
    found["b"] = {"name": "own_decoders", "miou": {"as it is": {"all": 0.625}}}
    out = tmp_path / "oracles.json"
    out.write_text(json.dumps({"version": 1, "runs": found}))
    table = rows(tables.Wanted(table="oracles", files=(out,)).made())
    seeds = "| ipseg | 51.0 ± 1.4 | 97.0 ± 0.0 | 2 |"
    assert table == ["| run | as it is | both | n |", seeds, "| own\\_decoders | 62.5 | – | 1 |"]


# ---- tables in a page -----------------------------------------------------------------------------------------------

PAGE = """# Results
<!-- table main runs.jsonl scenario=2-1 -->
typed by hand
<!-- end -->
between
<!-- table ablation
     reference=no_ip run='ips*' -->
<!-- end -->
after
"""


@pytest.fixture
def run_main(monkeypatch) -> Callable[..., None]:
    """Call the script as its command would."""

    def run(*words: object) -> None:
        monkeypatch.setattr(sys, "argv", ["tables.py", *map(str, words)])
        tables.main()

    return run


def test_a_pages_tables_are_made_anew_and_nothing_else_changes(file, tmp_path, run_main):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    run_main(file, "--into", page)
    once = page.read_text()
    assert "typed by hand" not in once
    assert "| joint † | 76.7 | 90.0 | 80.0 |" in once
    assert "| ipseg | 62.0 ± 2.0 | +8.5 ± 2.1 | 2 | 3 |" in once
    kept = [line for line in PAGE.splitlines() if line != "typed by hand"]
    assert [line for line in once.splitlines() if line in kept] == kept
    run_main(file, "--into", page)
    assert page.read_text() == once
    one = tables.filled(PAGE, "page.md", [file], only="ablation")
    assert "typed by hand" in one
    assert "+8.5" in one


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("nothing", "has no place for the table main: write `<!-- table main NAME.jsonl -->`"),
        ("<!-- table ablation runs.jsonl -->\n<!-- end -->", "has no place for the table main"),
        ("<!-- table main runs.jsonl -->\nno end", "there is no `<!-- end -->`"),
        ("<!-- table main -->\n<!-- table main -->\n<!-- end -->", "there is no `<!-- end -->`"),
        ("<!-- table main seed=1 -->\n<!-- end -->", 'no option in .* "seed"'),
        ("<!-- table  -->\n<!-- end -->", "a mark is a table's name"),
        ("<!-- table main other.jsonl -->\n<!-- end -->", r"every table there names its own files"),
        ("<!-- table main scenario=9-9 -->\n<!-- end -->", r"page\.md, <!-- table main scenario=9-9 -->: no scenario"),
    ],
)
def test_a_page_that_cannot_be_filled_is_left_as_it_is(file, tmp_path, run_main, capsys, page, message):
    path = tmp_path / "page.md"
    path.write_text(page)
    with pytest.raises(UserError, match=message):
        tables.filled(page, "page.md", [file], only="main")
    with pytest.raises(SystemExit) as stopped:
        run_main(file, "--table", "main", "--into", path)
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith("tables.py: ")
    assert path.read_text() == page


def test_what_a_pages_tables_show_is_said_in_the_page(file, tmp_path, run_main, capsys):
    with pytest.raises(SystemExit):
        run_main("--scenario", "2-1", "--into", tmp_path / "page.md")
    assert "--scenario: what a page's table shows stands in its mark" in capsys.readouterr().err


def test_the_tables_of_our_own_pages_are_made_of_the_results_in_the_repository():
    """If not: make results."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        if f"\n{tables.BEGIN}" in text:
            assert tables.filled(text, page.name) == text
