"""The meaning of a grid's file, and its errors."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from ipseg.errors import UserError
from ipseg.sweep import grid as grid_module
from ipseg.sweep.grid import Grid
from ipseg.sweep.plan import make_plan, select, summary


@pytest.fixture
def grid(tmp_path, tiny_settings):
    """Makes a grid on the recipe tiny.yaml beside it."""
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_settings))

    def make(text: str, base: str = "base: tiny.yaml\n") -> Grid:
        file = tmp_path / "grid.yaml"
        file.write_text(base + text)
        return Grid.read(file)

    return make


def names(grid: Grid) -> list[str]:
    return [run.name for run in grid.runs()]


def test_a_grid_is_the_product_of_its_axes_with_seeds_changing_fastest(grid):
    made = grid("runs: {ipseg: {}, none: {memory: {size: 0}}}\nscenarios: [2-1, 2-2 disjoint]\nseeds: [0, 1]")
    assert names(made) == [
        f"{run}_{scenario}_s{seed}"
        for run in ("ipseg", "none")
        for scenario in ("2-1", "2-2-disjoint")
        for seed in (0, 1)
    ]
    run = made.runs()[-1]
    assert run.settings["memory"]["size"] == 0
    assert run.settings["scenario"] == {"name": "2-2", "setting": "disjoint"}
    assert (run.settings["seed"], run.settings["data"].get("seed")) == (1, None)
    assert run.settings["name"] == "none"


def test_settings_are_varied_and_named(grid):
    made = grid("runs: {ipseg: {}}\nvary: {memory.size: [3, 9], method.noise_filtering: [true, false]}")
    assert names(made)[1] == "ipseg_2-1_memory.size=3_method.noise_filtering=false_s0"
    assert made.runs()[1].settings["method"] == {"name": "ipseg", "noise_filtering": False}
    assert made.runs()[1].label == "ipseg, memory.size=3, method.noise_filtering=false"


def test_a_seed_may_set_more_than_the_seed(grid):
    (_, run) = grid("seeds: [0, 5]\nseeded: [seed, data.seed]").runs()
    assert (run.settings["seed"], run.settings["data"]["seed"]) == (5, 5)


def test_some_runs_are_left_out_and_others_added(grid):
    made = grid(
        """
runs: {a: {}, b: {memory: {size: 0}}, c: {memory: {size: 1}}}
scenarios: [2-1, 2-2]
seeds: [0, 1]
without:
  - {runs: [b, c], scenarios: 2-2}
  - {runs: c, seeds: 1}
also:
  - {runs: [a], scenarios: [3-1], seeds: [7]}
  - {runs: [c], scenarios: [2-1], seeds: [0], vary: {memory.size: [2]}}
  - {runs: [a], scenarios: [2-1]}
"""
    )
    assert names(made) == [
        "a_2-1_s0", "a_2-1_s1", "a_2-2_s0", "a_2-2_s1", "b_2-1_s0", "b_2-1_s1", "c_2-1_s0",
        "a_3-1_s7", "c_2-1_memory.size=2_s0",
    ]  # fmt: skip


def test_a_run_that_names_its_own_scenario_is_run_once(grid):
    made = grid("runs: {ipseg: {}, joint: {scenario: {name: joint}}}\nscenarios: [2-1, 3-1]\nseeds: [0]")
    assert names(made) == ["ipseg_2-1_s0", "ipseg_3-1_s0", "joint_s0"]


def test_scenarios_may_have_names_and_settings_of_their_own(grid):
    made = grid("scenarios: {there: {name: 2-1}, back: {name: 2-1, order: [car, horse, bus, cow]}}")
    assert [name.removeprefix("tiny_") for name in names(made)] == ["there_s0", "back_s0"]
    assert made.runs()[1].settings["scenario"]["order"][0] == "car"


def test_the_classes_of_the_base_stay_those_of_its_scenarios(grid, tmp_path, tiny_settings):
    other = tiny_settings | {"scenario": {"name": "voc_animals/2-1"}}
    (tmp_path / "animals.yaml").write_text(yaml.safe_dump(other))
    made = grid("runs: {a: {}, joint: {scenario: {name: joint}}}\nscenarios: [3-1]", base="base: animals.yaml\n")
    assert [run.settings["scenario"]["name"] for run in made.runs()] == ["voc_animals/3-1", "voc_animals/joint"]
    assert names(made) == ["a_3-1_s0", "joint_s0"]


def test_a_method_of_another_name_begins_anew_and_a_run_may_have_its_own_base(grid):
    made = grid(
        "set: {method: {alpha_nf: 0.7}}\nruns: {a: {method: {name: finetune}}, b: {base: scenes_3-1_ipseg}, c: {}}"
    )
    first, second, third = (run.settings for run in made.runs())
    assert first["method"] == {"name": "finetune"}
    assert (second["data"]["train"], second["method"]["alpha_nf"]) == (1200, 0.7)
    assert third["method"]["alpha_nf"] == 0.7


def test_recipes_alone_are_a_grid_too(grid):
    made = grid("runs: [scenes_3-1_ipseg, tiny.yaml]\nseeds: [2]", base="")
    assert names(made) == ["scenes_3-1_ipseg_3-1_s2", "tiny_2-1_s2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scenarois: [2-1]", 'no key in the grid: "scenarois". Did you mean scenarios?'),
        ("runs: {a: {}}\nalso: [{run: [a]}]", r'no key in also\[0\]: "run". Did you mean runs?'),
        ("runs: {ipseg: {}}\nalso: [{runs: [ipsg]}]", 'no run "ipsg". Did you mean ipseg?'),
        ("runs: {a: {}}\nwithout: [{runs: b}]", 'no run "b"'),
        ("runs: {a: {}}\nwithout: [{memory.size: 3}]", 'without: "memory.size"'),
        ("runs: [1]", "runs must be a list of texts"),
        ("seeds: 3", "seeds must be a list of whole numbers, got 3"),
        ("seeds: [true]", "seeds must be a list of whole numbers"),
        ("seeds: []", "the grid has no runs"),
        ("vary: {memory.size: 3}", r"vary.memory.size must be a list of values, got 3"),
        ("scenarios: [2-1 disjont]", 'no setting in the scenario "2-1 disjont": "disjont". Did you mean disjoint?'),
        ("runs: {a: 3}", "runs.a must be a section, got 3"),
        ('runs: {"a b": {}, a-b: {}}', '"a b, 2-1" and "a-b, 2-1" would have one folder .*, but differ in name'),
        ("runs: {a: {}}\nwithout: [{runs: a}]", "the grid has no runs"),
        (
            "runs:\n  a: {}\n  a: {memory: {size: 0}}",
            r'the grid cannot be read: .*grid.yaml: line 4: duplicate key "a"',
        ),
        ('runs: {1: {}, "1": {memory: {size: 0}}}', 'runs: the name 1 is not text; write "1"'),
        ("scenarios: {1: {name: 2-1}}", "scenarios: the name 1 is not text"),
        ("runs: [tiny.yaml, sub/tiny.yaml]", "two recipes in `runs` have one name"),
        ("vary: {seed: [7]}", "the grid: vary.seed: seed is for `seeds` to set"),
        ("vary: {seeds: [7]}", "the grid: vary.seeds is no setting"),
        ("runs: {a: {scenario: 3}}", "runs.a.scenario must be a section, got 3"),
        ("vary: {scenario: [3]}", "scenario must be a section, got 3"),
        ("vary: {data: [{seed: 7}]}", "vary.data: data.seed is for `seeds` to set"),
        (
            "seeded: [seed, memory.size]\nalso: [{seeds: [1], vary: {memory.size: [7, 8]}}]",
            r"also\[0\]: vary.memory.size: memory.size is for `seeds` to set",
        ),
    ],
)
def test_a_wrong_grid_is_explained(grid, text, message):
    with pytest.raises(UserError, match=message):
        grid(text).runs()


@pytest.mark.parametrize("letter", ["a", "ä"])
def test_a_run_may_have_a_name_as_long_as_its_files_can_be_called_and_no_longer(grid, tmp_path, letter):
    longest = letter * ((255 - len("_2-1_s0.base_step.exit")) // len(letter.encode()))
    (name,) = names(grid(f"runs: {{{longest}: {{}}}}"))
    (tmp_path / f"{name}.base_step.exit").touch()
    with pytest.raises(UserError, match=rf'the run "{longest}{letter}, 2-1" would have .* at most 240 bytes'):
        grid(f"runs: {{{longest}{letter}: {{}}}}").runs()


def test_long_values_that_are_varied_are_refused_with_the_run_they_belong_to(grid):
    with pytest.raises(UserError, match=r'the run "b, model.backbone.weights=x+, 2-1" would .* `vary`'):
        grid(f"runs: {{b: {{}}}}\nvary: {{model.backbone.weights: [{'x' * 300}]}}").runs()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "runs: {a: {}}\nvary: {model.backbone.weights: [a/w.safetensors, a-w.safetensors]}",
            r'"a, model.backbone.weights=a/w.safetensors, 2-1" and "a, model.backbone.weights=a-w.safetensors, 2-1" '
            r"would have one folder \(a_2-1_.*_s0\), but differ in model.backbone.weights, name",
        ),
        (
            "runs: {a: {}}\nscenarios: {back wards: {name: 2-1}, back-wards: {name: 2-2}}",
            '"a, back wards" and "a, back-wards" would have one folder .* differ in scenario.name',
        ),
        (
            "runs: {a: {seed: 7, data: {seed: 3}}}\nseeded: [seed, data.seed]\nalso: [{seeds: [7]}]",
            "would have one folder .* differ in data.seed",
        ),
    ],
)
def test_two_runs_that_would_have_one_folder_are_refused(grid, text, message):
    with pytest.raises(UserError, match=message):
        grid(text).runs()


@pytest.mark.parametrize(
    "text",
    [
        "vary: {" + ", ".join(f"method.a{i}: [1, 2, 3, 4, 5, 6, 7, 8, 9]" for i in range(8)) + "}",
        "seeds: [" + 1001 * "1, " + "]",
        "seeds: [" + 501 * "1, " + "]\nalso: [{vary: {memory.size: [1]}}]",
    ],
)
def test_a_grid_of_more_runs_than_anybody_plans_is_refused_at_once(grid, text):
    with pytest.raises(UserError, match=r"makes [\d,]+ runs; at most 1,000 are planned at once"):
        grid(text)


def test_a_run_that_is_named_twice_is_run_once_though_one_says_what_the_other_leaves(grid):
    assert names(grid("seeds: [1, 1]")) == ["tiny_2-1_s1"]
    assert names(grid("runs: {a: {}}\nalso: [{seeds: [0, 1]}, {scenarios: [2-1]}]")) == ["a_2-1_s0", "a_2-1_s1"]


def test_a_grid_without_a_recipe_is_explained(grid):
    with pytest.raises(UserError, match=r"runs.a has no recipe: give the grid a `base`"):
        grid("runs: {a: {}}", base="")
    with pytest.raises(UserError, match=r'no base .* "scenes_3-1_ipsg". Did you mean scenes_3-1_ipseg'):
        grid("", base="base: scenes_3-1_ipsg").runs()


# ---- what it comes to -----------------------------------------------------------------------------------------------


def test_a_wrong_setting_names_the_run_and_the_key(grid, tmp_path):
    made = grid("runs: {ipseg: {method: {alpha_fn: 1}}}")
    with pytest.raises(UserError, match=r"the grid's run ipseg_2-1_s0: .*method.alpha_fn.* Did you mean alpha_nf"):
        make_plan(made, tmp_path / "out")


@pytest.mark.parametrize(
    ("text", "assignment", "message"),
    [
        (
            "runs: {a: {}, b: {memory: {size: 0}}}",
            "memory.size=7",
            "run b_2-1_s0: --set would change memory.size, which the grid sets",
        ),
        ("vary: {memory.size: [3, 9]}", "memory.size=3", "memory.size=9_s0: --set would change memory.size"),
        ("vary: {memory.size: [3, 9]}", "memory={size: 3}", "would change memory.size"),
        ("seeds: [0, 1]", "seed=5", "would change seed"),
        ("seeds: [0, 1]\nseeded: [seed, data.seed]", "data.seed=5", "would change data.seed"),
        ("scenarios: [2-1, 2-2]", "scenario.name=3-1", "would change scenario.name"),
        ("scenarios: [2-1]", "scenario.setting=disjoint", "would change scenario.setting"),
        ("runs: {a: {method: {alpha_nf: 0.7}}}", "method.name=finetune", "would change method.alpha_nf"),
        ("runs: {a: {method: {alpha_nf: 0.7}}}", "method={}", "would change method.alpha_nf"),
    ],
)
def test_what_the_grid_names_its_runs_by_is_not_set_over_it(grid, tmp_path, text, assignment, message):
    with pytest.raises(UserError, match=message):
        make_plan(grid(text), tmp_path / "out", [assignment])


def test_what_no_run_sets_is_set_for_all_of_them_over_the_base_and_the_grids_set(grid, tmp_path):
    made = grid("set: {training: {epochs: 3}}\nruns: {a: {}, b: {method: {name: finetune}}}\nseeds: [0, 1]")
    plan = make_plan(made, tmp_path / "out", ["training.epochs=5", "memory.size=7", "method.backbone_lr=0.5"])
    assert [run.name for run in plan] == ["a_2-1_s0", "a_2-1_s1", "b_2-1_s0", "b_2-1_s1"]
    assert {(run.recipe.training.epochs, run.recipe.memory.size) for run in plan} == {(5, 7)}
    assert {run.recipe.method.backbone_lr for run in plan} == {0.5}


def test_another_method_that_is_set_for_all_runs_begins_anew(grid, tmp_path):
    made = grid("set: {method: {alpha_nf: 0.7}}\nruns: {a: {}, b: {memory: {size: 0}}}")
    plan = make_plan(made, tmp_path / "out", ["method.name=finetune"])
    assert [(run.name, run.recipe.method.name) for run in plan] == [("a_2-1_s0", "finetune"), ("b_2-1_s0", "finetune")]


def test_the_same_settings_are_run_once_and_equal_base_steps_are_found(grid, tmp_path):
    made = grid(
        "runs: {ipseg: {}, finetune: {method: {name: finetune}}}\nseeds: [0, 1]\n"
        "also: [{runs: [ipseg], seeds: [0], vary: {memory.size: [6, 2]}}, {runs: [ipseg], scenarios: [2-1 disjoint]}]"
    )
    plan = {run.name: run for run in make_plan(made, tmp_path / "out")}
    assert plan["ipseg_2-1_s0"].duplicates == ["ipseg_2-1_memory.size=6_s0"]
    assert plan["ipseg_2-1_memory.size=2_s0"].base == plan["ipseg_2-1_s0"].base
    others = ["ipseg_2-1_s1", "finetune_2-1_s0", "ipseg_2-1-disjoint_s0"]
    assert len({plan[name].base for name in ["ipseg_2-1_s0", *others]}) == 4


def test_a_plan_says_how_many_runs_and_steps_there_are(grid, tmp_path):
    plan = make_plan(grid("runs: {ipseg: {}}\nseeds: [0, 1]"), tmp_path / "out")
    assert summary(plan).startswith("2 runs, 0 finished; ")
    assert summary(plan[:1]).startswith("1 run, 0 finished; ")


def test_runs_are_chosen_by_their_folders_names(grid, tmp_path):
    made = grid("runs: {ipseg: {}, none: {memory: {size: 0}}}\nseeds: [0, 1]\nalso: [{vary: {memory.size: [0]}}]")
    plan = make_plan(made, tmp_path / "out")
    assert [run.name for run in select(plan, [])] == [run.name for run in plan]
    assert [run.name for run in select(plan, ["none*_s1", "ipseg_2-1_s0"])] == ["ipseg_2-1_s0", "none_2-1_s1"]
    assert [run.name for run in select(plan, ["ipseg_2-1_memory.size=0_s1"])] == ["none_2-1_s1"]  # a duplicate
    with pytest.raises(UserError, match=r'no run of the grid for --only "mib\*".* Valid: ipseg_2-1_memory'):
        select(plan, ["none*", "mib*"])


def test_settings_that_changed_since_a_run_began_are_noticed_before_anything_starts(grid, tmp_path, tiny_run):
    made = grid("runs: {ipseg: {}}")
    shutil.copytree(tiny_run, tmp_path / "out" / "runs" / "ipseg_2-1_s0")
    assert [run.state for run in make_plan(made, tmp_path / "out")] == ["finished"]
    with pytest.raises(UserError, match=r"ipseg_2-1_s0: .* another recipe \(memory.size was 6, is 7\)"):
        make_plan(made, tmp_path / "out", ["memory.size=7"])


def test_a_run_killed_in_its_first_moment_does_not_stop_the_others(grid, tmp_path, tiny_run):
    made, folder = grid("runs: {ipseg: {}}\nseeds: [0, 1]"), tmp_path / "out" / "runs" / "ipseg_2-1_s1"
    folder.mkdir(parents=True)
    shutil.copy(tiny_run / "recipe.yaml", folder)  # no run.json beside it; of another seed, which does not matter yet
    assert [run.state for run in make_plan(made, tmp_path / "out")] == ["waiting", "waiting"]


def test_the_grids_of_the_docs_are_grids_of_recipes(tmp_path):
    page = Path(__file__).parent.parent.parent / "docs" / "sweep.md"
    (text,) = re.findall(r"^```yaml grid\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    plan = make_plan(Grid(yaml.safe_load(text), page), tmp_path)
    assert len(plan) == 3 * (2 + 2 + 1 + 1) + 1 + 3
    assert len({run.base for run in plan}) == 3 * (2 + 1 + 1) + 1  # memory of any size begins alike


def test_the_example_of_the_module_is_a_grid():
    text = (grid_module.__doc__ or "").split("\n\n", 1)[1]
    lines = [line.split("    ")[0] if not line.startswith(" ") else line for line in text.splitlines()]
    assert len(Grid(yaml.safe_load("\n".join(lines)), Path("grid.yaml")).runs()) == 12 + 6
