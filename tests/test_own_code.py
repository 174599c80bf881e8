"""Code is imported where the user names it, and from nowhere else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from PIL import Image
from typer.main import get_command

import ipseg
from commands import call, extension, fails
from ipseg import cli, own_code
from ipseg.apps.compare import read_run
from ipseg.config import flat
from ipseg.errors import UserError
from ipseg.own_code import load_class
from ipseg.training.recipe import load_recipe

EXAMPLE = Path(__file__).parents[1] / "examples" / "anchored"
MARKED = "import pathlib; pathlib.Path(__file__).with_suffix('.ran').touch()\n"
"""Leaves a file beside itself when it is imported."""
METHOD = (
    MARKED
    + """
from dataclasses import dataclass
from ipseg.methods.finetune import FinetuneConfig

@dataclass(frozen=True, kw_only=True)
class Config(FinetuneConfig):
    name: str = "its own"
"""
)


@pytest.fixture(autouse=True)
def own_state(monkeypatch):
    """What one test imports, another must not find."""
    for name in ("_imported", "_own"):
        monkeypatch.setattr(own_code, name, set())
    monkeypatch.setattr(own_code, "_folders", {})
    before = set(sys.modules)
    yield
    for name in {name for name in set(sys.modules) - before if "." not in name and name.startswith("mine")}:
        del sys.modules[name]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory of one's own."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def strange_run(tiny_run, here):
    """A stranger's run whose recipe names a module that lies in the working directory."""
    (here / "mine_strange.py").write_text(METHOD)
    shutil.copytree(tiny_run, here / "run")
    values = yaml.safe_load((here / "run" / "recipe.yaml").read_text())
    values["method"] = {"name": "mine_strange:Config"}
    (here / "run" / "recipe.yaml").write_text(yaml.safe_dump(values))
    return here / "run"


# ---- finding a class ------------------------------------------------------------------------------------------------


def test_a_class_is_found_in_the_working_directory_and_the_path_stays_as_it_was(here):
    (here / "mine_a.py").write_text("import mine_helper\nclass A: pass\n")
    (here / "mine_helper.py").write_text("")
    before = list(sys.path)
    assert load_class("mine_a:A", "method").__name__ == "A"
    assert sys.path == before


def test_a_class_is_found_beside_the_recipe_and_beside_its_base(here, tmp_path, tiny_settings):
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "mine_b.py").write_text(METHOD)
    tiny_settings["method"] = {"name": "mine_b:Config"}
    (tmp_path / "base" / "base.yaml").write_text(yaml.safe_dump(tiny_settings))
    (tmp_path / "recipe.yaml").write_text("base: base/base.yaml\n")
    assert type(load_recipe(tmp_path / "recipe.yaml").method).__name__ == "Config"


def test_a_file_shadows_no_module_that_is_installed(here):
    for name in ("yaml", "wave"):  # one that is imported already, and one that is not
        (here / f"{name}.py").write_text(MARKED + "class Loader: pass\nclass Wave_read: pass\n")
    assert load_class("yaml:Loader", "method") is yaml.Loader
    assert load_class("wave:Wave_read", "method").__module__ == "wave"
    assert not list(here.glob("*.ran"))


def test_two_modules_of_one_name_are_refused(here, tmp_path):
    for folder in (here, tmp_path):
        (folder / "mine_twice.py").write_text("class A: pass\n")
    load_class("mine_twice:A", "method")
    own_code.look_in(tmp_path)
    with pytest.raises(UserError, match=r"two modules mine_twice: .*mine_twice\.py and "):
        load_class("mine_twice:A", "method")


@pytest.mark.parametrize("name", [":A", "a:", "a b:C", "a\0b:C", "..a:B", "a:b:c", "a.:B", "1a:B"])
def test_what_is_no_module_and_class_is_refused(name):
    with pytest.raises(UserError, match="named module:Class"):
        load_class(name, "method")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise SystemExit(0)", r"SystemExit: 0 \(.*mine_bad\.py, line 1\)"),
        ("\n1 / 0", r"ZeroDivisionError: division by zero \(.*mine_bad\.py, line 2\)"),
        ("import nowhere", "No module named 'nowhere'"),
        ("A = 1", "is not a class"),
    ],
)
def test_a_module_that_cannot_be_imported_is_told_with_its_reason(here, text, message):
    (here / "mine_bad.py").write_text(text)
    with pytest.raises(UserError, match=message):
        load_class("mine_bad:A", "method")


# ---- code that a run's folder names ---------------------------------------------------------------------------------


COMMANDS = {
    "train": ["train", "run", "--resume"],
    "dry run": ["train", "run", "--resume", "--dry-run"],
    "cost": ["cost", "run"],
    "export": ["export", "run", "model.onnx"],
    "evaluate": ["evaluate", "run"],
    "predict": ["predict", "run", "photo.png", "--out", "out"],
    "explain": ["explain", "run", "photo.png", "--out", "why.png"],
    "extend": extension("run", "data", "sheep", "extended"),
    "memory": ["memory", "run"],
    "pack": ["pack", "run"],
    "apply": ["apply", "pack.zip", "run", "--out", "upgraded"],
}


@pytest.mark.usefixtures("strange_run")
@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_no_command_runs_code_that_a_run_names_unless_it_may(here, packed, words):
    Image.new("RGB", (64, 64)).save(here / "photo.png")
    shutil.copy(packed, here / "pack.zip")
    assert "--allow-code" in fails(*words)
    assert not (here / "mine_strange.ran").exists()
    call(*words, "--allow-code")
    assert (here / "mine_strange.ran").exists()
    del sys.modules["mine_strange"]


def test_every_command_that_opens_a_run_takes_the_permission_it_may_ask_for():
    for name, command in get_command(cli.app).commands.items():
        parameters = {parameter.name for parameter in command.params}
        if parameters & {"run", "recipe"}:
            assert "_allow_code" in parameters, name
            assert name in {words[0] for words in COMMANDS.values()}


@pytest.mark.usefixtures("strange_run")
def test_the_permission_ends_with_its_command(here):
    call("cost", "run", "--allow-code")
    own_code._imported.clear()
    assert "--allow-code" in fails("cost", "run")


def test_python_asks_for_the_permission_too(strange_run):
    with pytest.raises(UserError, match="allow_code=True"):
        ipseg.load(strange_run)
    with pytest.raises(UserError, match="weights do not fit"):
        ipseg.load(strange_run, allow_code=True)


def test_a_recipe_in_a_run_is_no_more_trusted_by_its_file_or_as_a_base(strange_run, here):
    (here / "recipe.yaml").write_text("base: run/recipe.yaml\n")
    for recipe in ("run/recipe.yaml", "recipe.yaml"):
        assert "--allow-code" in fails("train", recipe, "--out", "new", "--dry-run")
    (strange_run / "run.json").unlink()  # a stranger need not leave it there
    assert "--allow-code" in fails("train", "run", "--out", "new", "--dry-run")
    (here / "evil.yaml").write_text((strange_run / "recipe.yaml").read_text())
    (strange_run / "recipe.yaml").write_text("base: ../evil.yaml\n")
    assert "--allow-code" in fails("train", "run", "--resume")
    assert not (here / "mine_strange.ran").exists()


def test_reading_results_imports_nothing(strange_run, here):
    assert call("compare", "run").exit_code == 0
    result = call("report", "run", "--out", "page.html")
    assert result.exit_code == 0, result.output
    assert "mine_strange:Config" in (here / "page.html").read_text()
    assert not (here / "mine_strange.ran").exists()
    assert call("report", "run", "--out", "page.html", "--allow-code").exit_code == 0
    assert (here / "mine_strange.ran").exists()


def test_settings_that_came_after_a_run_have_their_defaults_in_a_comparison_also_beside_own_code(strange_run):
    values = yaml.safe_load((strange_run / "recipe.yaml").read_text())
    before = read_run(strange_run / "results.json").settings
    del values["training"]["flip"]
    (strange_run / "recipe.yaml").write_text(yaml.safe_dump(values))
    assert "training.flip" not in flat(values)
    assert read_run(strange_run / "results.json").settings == before


def test_code_that_ends_the_program_later_is_an_error_like_others(here):
    (here / "mine_quits.py").write_text(METHOD + "    def build(self, model, *, pretrained=True):\n        exit(0)\n")
    error = fails(
        "train", "scenes_3-1_finetune", "--set", "method={name: mine_quits:Config}", "--out", "run", "--dry-run"
    )
    assert "SystemExit: 0" in error


# ---- the installed command ------------------------------------------------------------------------------------------


def command(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The console script, which has no working directory among its folders."""
    script = Path(sys.executable).with_name("ipseg")
    start = [script] if script.exists() else [sys.executable, "-P", "-c", "from ipseg.cli import main; main()"]
    environment = os.environ | {"PYTHONPATH": str(Path(ipseg.__file__).parents[1]), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [*map(str, [*start, *words])], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_the_example_runs_as_its_text_says(tiny_settings, tmp_path):
    tiny_settings["model"]["backbone"]["name"] = "test_resnet"
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_settings))
    method = ["--set", "method={name: anchored:AnchoredConfig, pull: 10}"]
    result = command("train", tmp_path / "tiny.yaml", *method, "--out", tmp_path / "run", "--quiet", cwd=EXAMPLE)
    assert result.returncode == 0, result.stderr
    Image.new("RGB", (64, 64)).save(tmp_path / "photo.png")
    words = ["predict", tmp_path / "run", tmp_path / "photo.png", "--out", tmp_path / "out"]
    assert "--allow-code" in command(*words, cwd=EXAMPLE).stderr
    result = command(*words, "--allow-code", cwd=EXAMPLE)
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_a_sweep_imports_nothing_from_the_working_directory_but_the_method_beside_its_recipe(
    here, tmp_path, tiny_settings
):
    for name in ("typer", "difflib", "ipseg"):
        (here / f"{name}.py").write_text(MARKED + "raise SystemExit(9)\n")
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "mine_beside.py").write_text(METHOD)
    tiny_settings["method"] = {"name": "mine_beside:Config"}
    tiny_settings["model"]["backbone"]["name"] = "test_resnet"
    (tmp_path / "recipes" / "tiny.yaml").write_text(yaml.safe_dump(tiny_settings))
    (here / "grid.yaml").write_text(f"base: {tmp_path / 'recipes' / 'tiny.yaml'}\n")
    result = command("sweep", "grid.yaml", "--out", "swept", cwd=here)
    assert result.returncode == 0, result.stderr
    assert not list(here.glob("*.ran"))


def test_python_m_ipseg_leaves_the_working_directory_out(here):
    (here / "typer.py").write_text(MARKED)
    environment = os.environ | {"PYTHONPATH": str(Path(ipseg.__file__).parents[1])}
    words = [sys.executable, "-m", "ipseg", "--version"]
    result = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert result.stdout == f"ipseg {ipseg.__version__}\n", result.stderr
    assert not (here / "typer.ran").exists()


def test_processes_that_the_command_starts_leave_it_out_too(monkeypatch):
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    monkeypatch.delenv("PYTHONSAFEPATH")  # now it is gone after the test, too
    monkeypatch.setattr(sys, "argv", ["ipseg", "--version"])
    with pytest.raises(SystemExit):
        cli.main()
    assert os.environ["PYTHONSAFEPATH"] == "1"


# ---- the network ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["hf-hub:mallory/resnet10t", "hf_hub:mallory/x", "local-dir:evil", "resnet10t.hf-hub:x"]
)
def test_no_backbone_of_a_stranger_s_run_makes_timm_look_elsewhere(tiny_run, here, name, monkeypatch):
    """timm takes names that are addresses: of a hub, or of a folder whose config it follows."""
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: pytest.fail("asked the network"))
    monkeypatch.setattr("timm.create_model", lambda *_, **__: pytest.fail("timm was given the name"))
    shutil.copytree(tiny_run, here / "run")
    values = yaml.safe_load((here / "run" / "recipe.yaml").read_text())
    values["model"]["backbone"]["name"] = name
    (here / "run" / "recipe.yaml").write_text(yaml.safe_dump(values))
    Image.new("RGB", (64, 64)).save(here / "photo.png")
    for words in (("predict", "run", "photo.png", "--out", "out"), ("evaluate", "run"), ("cost", "run")):
        assert f'no backbone "{name}"' in fails(*words)
    shutil.rmtree(here / "run" / "step_00")
    assert f'no backbone "{name}"' in fails("train", "run", "--resume")
