from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

import ipseg
from commands import call, fails
from ipseg.errors import WRONG

ROOT = Path(__file__).parent.parent
COMMANDS = [
    "demo",
    "train",
    "evaluate",
    "predict",
    "explain",
    "extend",
    "pack",
    "apply",
    "memory",
    "sweep",
    "compare",
    "data",
    "saliency",
    "scenarios",
    "cost",
    "doctor",
]


def python(*words: str, **options) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env=environment, check=False, **options
    )


@pytest.fixture
def recipe_file(tmp_path, tiny_settings):
    def write(**changes) -> Path:
        path = tmp_path / "small.yaml"
        path.write_text(yaml.safe_dump(tiny_settings | changes))
        return path

    return write


# ---- help, versions, imports ------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_shows_an_example(command):
    result = call(command, "--help")
    assert result.exit_code == 0
    assert f"Example:\n    ipseg {command}" in result.output


def test_the_help_lists_every_command():
    listed = call("--help").output
    assert all(f"\n  {command} " in listed for command in COMMANDS)


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"]])
def test_help_needs_none_of_the_heavy_packages(words):
    code = (
        "import sys\nfrom ipseg.cli import main\nsys.argv = ['ipseg', *sys.argv[1:]]\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print([m for m in ('torch', 'numpy', 'matplotlib', 'timm', 'PIL', 'yaml') if m in sys.modules])"
    )
    assert python("-c", code, *words).stdout.splitlines()[-1] == "[]"


def test_importing_the_package_does_not_import_torch():
    assert python("-c", "import ipseg, sys; print('torch' in sys.modules)").stdout == "False\n"


def test_the_package_runs_uninstalled(tmp_path):
    result = python("-m", "ipseg", "scenarios", "voc/19-1", "--json", cwd=tmp_path)
    assert json.loads(result.stdout)["steps"][1]["new"] == ["tvmonitor"]


def test_what_the_output_has_no_letters_for_is_no_traceback(tiny_run, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    result = python("-m", "ipseg", "evaluate", str(tiny_run))  # its table has a dash where there is nothing to say
    assert result.returncode == 0, result.stderr
    assert "background" in result.stdout


def test_the_version_is_that_of_the_package():
    project = (ROOT / "pyproject.toml").read_text()
    assert f'\nversion = "{ipseg.__version__}"\n' in project
    assert call("--version").output == f"ipseg {ipseg.__version__}\n"


def test_a_wrong_option_ends_with_2():
    assert call("train", "--nothing").exit_code == 2
    assert call("nothing").exit_code == 2


def test_ctrl_c_ends_with_130(monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("ipseg.apps.doctor.examine", stop)
    result = call("doctor")
    assert result.exit_code == 130
    assert result.stderr == "ipseg: stopped.\n"


def test_a_folder_that_may_not_be_written_is_no_traceback(monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied", "/somewhere")

    monkeypatch.setattr("ipseg.apps.doctor.examine", refuse)
    assert "/somewhere" in fails("doctor")


# ---- scenarios, doctor ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        MemoryError("Unable to allocate 2.73 TiB"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_needs_more_memory_than_there_is_is_no_traceback(recipe_file, tmp_path, monkeypatch, error):
    def greedy(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("ipseg.training.experiment.train_step", greedy)
    told = fails("train", recipe_file(), "--out", tmp_path / "run", "--quiet")
    assert f"there is not enough memory ({str(error) or 'MemoryError'})" in told
    assert "training.batch_size" in told


def test_a_runtime_error_of_ours_keeps_its_traceback(monkeypatch):
    def broken() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr("ipseg.apps.doctor.examine", broken)
    assert isinstance(call("doctor").exception, RuntimeError)


def test_scenarios_lists_the_named_ones():
    output = call("scenarios").output
    assert "voc/15-1" in output
    assert "15 + 5 x 1" in output
    assert "scenes/6-2" in output


def test_a_scenario_as_json_has_exactly_the_documented_keys():
    scenario = json.loads(call("scenarios", "voc/15-1", "--setting", "disjoint", "--json").output)
    assert list(scenario) == ["name", "setting", "steps"]
    assert (scenario["name"], scenario["setting"], len(scenario["steps"])) == ("voc/15-1", "disjoint", 6)
    assert all(list(step) == ["new", "old", "future"] for step in scenario["steps"])
    assert scenario["steps"][1]["new"] == ["pottedplant"]
    assert len(scenario["steps"][1]["future"]) == 4


def test_all_scenarios_as_json_are_a_list_of_the_same():
    listed = json.loads(call("scenarios", "--json").output)
    assert {"voc/15-1", "ade/100-10", "scenes/4-2"} <= {scenario["name"] for scenario in listed}


def test_one_scenario_is_shown_step_by_step():
    assert "tvmonitor" in call("scenarios", "voc/15-1").output


def test_an_unknown_scenario_offers_the_nearest():
    assert "Did you mean voc/15-1?" in fails("scenarios", "voc/15-1x")
    assert "does not fit" in fails("scenarios", "voc/40-1")
    assert "Did you mean voc?" in fails("scenarios", "vocc/15-1")


def test_doctor_describes_the_machine_and_a_working_network():
    result = call("doctor")
    assert result.exit_code == 0
    for topic in ("ipseg  ", "packages  ", "torchvision  ", "disk  ", "network  ", "PyTorch version: ", "CPU:"):
        assert f"\n{topic}" in f"\n{result.output}"
    assert "labels an image on cpu" in result.output or "labels an image on cuda" in result.output


def test_doctor_says_what_is_broken_and_ends_with_1(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no kernel image")

    monkeypatch.setattr("ipseg.methods.ipseg.IPSegConfig.build", broken)
    result = call("doctor")
    assert result.exit_code == 1
    assert "BROKEN: RuntimeError: no kernel image" in result.output


# ---- train ------------------------------------------------------------------------------------------------------


def test_train_learns_and_says_where_things_are(recipe_file, tmp_path):
    out = tmp_path / "run"
    result = call("train", recipe_file(), "--out", out, "--set", "scenario.name=joint", "--quiet")
    assert result.exit_code == 0, result.output
    assert str(out / "results.json") in result.output.replace("\n", "")
    assert json.loads((out / "results.json").read_text())["complete"]


def test_the_default_folder_is_named_after_the_recipe(recipe_file, tmp_path, monkeypatch):
    from ipseg.apps.train import default_folder, resolve

    assert default_folder("small.yaml", resolve(recipe_file())) == Path("runs/small")
    assert default_folder("x", resolve(recipe_file(name="IP, SD / off"))) == Path("runs/IP-SD-off")


def test_a_run_folder_stands_for_its_recipe_and_its_place(tiny_run):
    assert "Resume it with --resume" in fails("train", tiny_run)
    result = call("train", tiny_run, "--resume", "--quiet")
    assert result.exit_code == 0, result.output  # all steps are finished: nothing is learned again
    assert "new classes" in result.output


def test_a_dry_run_prints_a_complete_recipe_and_the_steps_and_writes_nothing(recipe_file, tmp_path):
    result = call("train", recipe_file(), "--set", "method.alpha_nf=0.6", "--out", tmp_path / "run", "--dry-run")
    assert result.exit_code == 0, result.output
    printed = yaml.safe_load(result.output)
    assert printed["method"]["alpha_nf"] == 0.6
    assert printed["training"]["momentum"] == 0.9
    assert "factor for class scores" in result.output
    assert "# Step 2: " in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["small.yaml"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("data={name: folder, path: gone}", "gone"),
        ("init=nowhere@0", "nowhere is not a run's folder"),
        ("model.backbone.weights=gone.pth", "gone.pth"),
        ("model.backbone.name=nonesuch", "nonesuch"),
        ("method={name: joint}", "method joint learns all classes at once"),
        ("device=quantum", "quantum"),
    ],
)
def test_a_dry_run_of_what_cannot_start_prints_the_recipe_and_fails_with_the_reason(recipe_file, change, message):
    result = call("train", recipe_file(), "--set", change, "--dry-run")
    assert result.exit_code == WRONG
    assert message in result.stderr
    key = change.partition("=")[0].partition(".")[0]
    assert key in yaml.safe_load(result.stdout)


def test_a_dry_run_in_a_folder_that_cannot_be_used_fails_with_the_reason(recipe_file, make_folder_data, tmp_path):
    data, file = make_folder_data(), recipe_file()
    for place in (data, file):
        result = call("train", file, "--out", place, "--dry-run")
        assert result.exit_code == WRONG
        assert f"{place} exists and is not a run's folder" in result.stderr
        assert "training" in yaml.safe_load(result.stdout)  # the recipe is printed all the same


def test_a_dry_run_knows_a_run_that_is_there_already(recipe_file, tiny_run):
    before = sorted(tiny_run.rglob("*"))
    assert "Resume it with --resume" in fails("train", tiny_run, "--dry-run")
    message = fails("train", recipe_file(), "--out", tiny_run, "--set", "seed=7", "--resume", "--dry-run")
    assert "holds a run of another recipe (seed was 0, is 7)" in message
    assert call("train", tiny_run, "--resume", "--dry-run").exit_code == 0
    assert sorted(tiny_run.rglob("*")) == before


def test_an_interrupted_run_ends_with_130(recipe_file, tmp_path, monkeypatch):
    from ipseg.errors import Interrupted

    def stop(*_, **__):
        raise Interrupted("interrupted in step 1 at iteration 7 of 9; resume with --resume.")

    monkeypatch.setattr("ipseg.training.experiment.run", stop)
    result = call("train", recipe_file(), "--out", tmp_path / "run")
    assert result.exit_code == 130
    assert "resume with --resume" in result.stderr


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("scenario.name=2-x", "no scenario"),
        ("scenario.name=9-1", "does not fit"),
        ("scenario.order=[cow, buss, horse, car]", "Did you mean bus?"),
        ("model.backbone.name=resnet50x", "Did you mean resnet50"),
        ("method.name=ipsegg", "Did you mean ipseg?"),
        ("method.alpha_nff=1", "Did you mean alpha_nf?"),
        ("method.alpha_nf=2", "must be between 0 and 1"),
        ("trainning.epochs=1", "Did you mean training?"),
        ("data.name=scene", "Did you mean scenes?"),
        ("device=cuda:99", "GPU"),
        ("method.alpha_nf", "KEY=VALUE"),
    ],
)
def test_a_mistake_in_a_recipe_is_named_and_the_nearest_offered(recipe_file, tmp_path, change, words):
    assert words in fails("train", recipe_file(), "--set", change, "--out", tmp_path / "run", "--quiet")


def test_a_setting_that_changes_nothing_is_named_before_the_run_begins(recipe_file, tmp_path):
    recipe = recipe_file()
    planned = call("train", recipe, "--set", "training.warmup=0.2", "--out", tmp_path / "run", "--dry-run")
    assert "# Note: training.warmup is 0.2 and changes nothing" in planned.output
    trained = call("train", recipe, "--set", "training.warmup=0.2", "--out", tmp_path / "run", "--quiet")
    assert "ipseg: note: training.warmup is 0.2 and changes nothing" in trained.stderr


def test_a_missing_recipe_is_named():
    assert "Did you mean scenes_6-2_ipseg?" in fails("train", "scenes_6-2_ipsegg")
    assert "the recipe is missing: nowhere.yaml" in fails("train", "nowhere.yaml")
    assert "the recipe, or the run, is missing: runs/nowhere" in fails("train", "runs/nowhere", "--resume")


def test_a_missing_data_folder_shows_the_expected_tree(recipe_file, tmp_path):
    recipe = recipe_file(data={"name": "folder", "path": str(tmp_path / "gone")})
    assert "classes.txt" in fails("train", recipe, "--out", tmp_path / "run")


@pytest.mark.parametrize("name", [path.name for path in sorted((ROOT / "recipes").glob("*.yaml"))])
def test_every_shipped_recipe_is_valid(name):
    from ipseg.training.recipe import load_recipe

    assert load_recipe(ROOT / "recipes" / name).name


def test_the_demo_is_called_with_its_options(monkeypatch, tmp_path):
    import types

    calls = []
    module = types.ModuleType("ipseg.apps.demo")
    module.run_demo = lambda out, *, quick, seed: calls.append((out, quick, seed))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ipseg.apps.demo", module)
    assert call("demo", "--quick", "--out", tmp_path, "--seed", "3").exit_code == 0
    assert calls == [(tmp_path, True, 3)]
