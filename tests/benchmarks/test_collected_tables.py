"""benchmarks/collect.py and tables.py: what a sweep found out, small enough for the repository, and its tables."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from ipseg.apps.compare import compare, with_bounds
from ipseg.config import override
from ipseg.data.view import StepView
from ipseg.engine.recipe import load_recipe
from ipseg.errors import UserError
from ipseg.report.compare import sections
from ipseg.report.compare_formats import as_json

ROOT = Path(__file__).parents[2]


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


collect = load("collect")
load("varied")
load("oracle_table")
load("order_table")
costs = load("costs")
tables = load("tables")
curves = load("curves")
confusions = load("confusions")


def run_main(module: ModuleType, monkeypatch, *words: object) -> None:
    monkeypatch.setattr(sys, "argv", [f"{module.__name__}.py", *map(str, words)])
    module.main()


# ---- collecting -----------------------------------------------------------------------------------------------------


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
    run_main(collect, monkeypatch, sweep, "--out", out)
    lines = [json.loads(text) for text in out.read_text().splitlines()]
    assert [line["run"] for line in lines] == ["ipseg_2-1_s0", "ipseg_2-1_s1", "less_2-1_s0"]
    assert [["confusion" in step for step in line["steps"]] for line in lines] == [[False, False, True]] * 3
    assert lines[2]["settings"]["memory.size"] == 3
    assert "training.lr" not in lines[2]["settings"]  # as by default
    assert [len(line[key]) for line in lines for key in ("training", "parameters")] == [3] * 6
    assert out.stat().st_size < 4096 * len(lines)
    said = capsys.readouterr().err
    assert "cut_2-1_s0: 2 of 3 steps" in said
    assert "not-begun_2-1_s0: 0 of 3 steps" in said


def test_what_was_collected_compares_as_the_runs_themselves_do(sweep, tmp_path):
    lines, _ = collect.collect(sweep)
    collect.write(lines, tmp_path / "all.jsonl")
    ours = as_json(sections(with_bounds(collect.read([tmp_path / "all.jsonl"]))))
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


def test_settings_are_what_a_recipe_changes_and_hold_no_place_of_a_machine(tiny_settings):
    recipe = tiny_settings | {"data": {"name": "voc", "path": "/home/somebody/voc_animals"}, "name": "x", "seed": 4}
    recipe["model"]["backbone"]["weights"] = "../weights/resnet50.safetensors"
    settings = collect.settings_of(recipe)
    assert settings["data.path"] == "voc_animals"
    assert settings["model.backbone.weights"] == "resnet50.safetensors"
    assert not {"name", "seed", "device", "method.name"} & set(settings)


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


# ---- tables ---------------------------------------------------------------------------------------------------------

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
    runs = (("mib, lr=1.0", 0.2), ("mib, lr=0.1", 0.1), ("plop, lr=1.0", 0.4), ("mib, lr=0.1, memory.size=5", 1.0))
    tried = [line_of(name, 0, (value,) * 4) for name, value in [*runs, ("mib", 0.9)]]
    tried.append(line_of("joint, training.lr=0.5", 0, (0.7,) * 4, "animals/joint"))
    path.write_text("".join(tried))
    assert rows(tables.Wanted(table="varied", files=(path,)).made()) == [
        "| `lr` | 0.1 | 1.0 |",
        "| mib | 10.0 (10.0, 10.0) | **20.0** (20.0, 20.0) |",
        "| plop | – | **40.0** (40.0, 40.0) |",
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


def test_a_pages_tables_are_made_anew_and_nothing_else_changes(file, tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    run_main(tables, monkeypatch, file, "--into", page)
    once = page.read_text()
    assert "typed by hand" not in once
    assert "| joint † | 76.7 | 90.0 | 80.0 |" in once
    assert "| ipseg | 62.0 ± 2.0 | +8.5 ± 2.1 | 2 | 3 |" in once
    kept = [line for line in PAGE.splitlines() if line != "typed by hand"]
    assert [line for line in once.splitlines() if line in kept] == kept
    run_main(tables, monkeypatch, file, "--into", page)
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
def test_a_page_that_cannot_be_filled_is_left_as_it_is(file, tmp_path, monkeypatch, capsys, page, message):
    path = tmp_path / "page.md"
    path.write_text(page)
    with pytest.raises(UserError, match=message):
        tables.filled(page, "page.md", [file], only="main")
    with pytest.raises(SystemExit) as stopped:
        run_main(tables, monkeypatch, file, "--table", "main", "--into", path)
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith("tables.py: ")
    assert path.read_text() == page


def test_what_a_pages_tables_show_is_said_in_the_page(file, tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        run_main(tables, monkeypatch, "--scenario", "2-1", "--into", tmp_path / "page.md")
    assert "--scenario: what a page's table shows stands in its mark" in capsys.readouterr().err


def test_the_tables_of_our_own_pages_are_made_of_the_results_in_the_repository():
    """If not: make results."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        if f"\n{tables.BEGIN}" in text:
            assert tables.filled(text, page.name) == text


def test_the_result_is_drawn_from_the_files_of_the_repository(tmp_path, capsys):
    field, out = ROOT / "benchmarks" / "results" / "2026-11-15_field.jsonl", tmp_path / "field.svg"
    assert curves.main([str(field), "--scenario", "3-1", "--run", "ipseg", "--run", "joint", "--out", str(out)]) == 0
    assert "ipseg 72.1" in out.read_text(encoding="utf-8")
    assert curves.main([str(field), "--scenario", "9-1", "--out", str(out)]) == 2
    assert 'scenario "9-1"' in capsys.readouterr().err


def test_what_is_called_what_is_drawn_from_the_files_of_the_repository(tmp_path):
    animals, out = ROOT / "benchmarks" / "results" / "2026-11-16_animals.jsonl", tmp_path / "animals.svg"
    words = [str(animals), "--scenario", "2-1", "--run", "ssul_m", "--run", "joint", "--out", str(out)]
    assert confusions.main(words) == 0
    text = out.read_text(encoding="utf-8")
    assert "ssul_m" in text
    assert text.count("horse") == 4  # called so in both maps; and once a row, at the first map above and below


def test_results_without_a_confusion_matrix_are_named(tmp_path, capsys):
    line = json.loads((ROOT / "benchmarks" / "results" / "2026-11-15_field.jsonl").read_text().splitlines()[0])
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
    table = rows(tables.Wanted(table="cost", files=(out,)).made())
    assert [line.split(" | ")[0] for line in table] == ["| run", "| ipseg", "| finetune"]
    assert all(line.endswith("| ? – ? | ? | ? – ? | ? | ? |") for line in table[1:])  # the rest needs a GPU


def test_oracles_are_tabled_as_they_were_measured_seeds_in_one_row(tmp_path):
    found = {"a_s0": {"name": "ipseg", "miou": {"as it is": {"all": 0.5}, "both": {"all": 0.97}}}}
    found["a_s1"] = {"name": "ipseg", "miou": {"as it is": {"all": 0.52}, "both": {"all": 0.97}}}
    found["b"] = {"name": "own_decoders", "miou": {"as it is": {"all": 0.625}}}
    out = tmp_path / "oracles.json"
    out.write_text(json.dumps({"version": 1, "runs": found}))
    table = rows(tables.Wanted(table="oracles", files=(out,)).made())
    seeds = "| ipseg | 51.0 ± 1.4 | 97.0 ± 0.0 | 2 |"
    assert table == ["| run | as it is | both | n |", seeds, "| own\\_decoders | 62.5 | – | 1 |"]


def test_training_takes_its_visits_over_its_speeds():
    recipe = load_recipe("scenes_3-1_ipseg", ["data.train=40", "training.epochs=3", "training.later_epochs=null"])
    source = recipe.source()
    scenario = recipe.scenario.build(source.name, source.classes)
    visits = [3 * len(StepView(source.train, scenario, step)) for step in scenario.steps]
    assert costs.seconds(recipe, [2.0] * len(visits)) == sum(visits) / 2
    assert costs.seconds(recipe, [None] * len(visits)) is None
