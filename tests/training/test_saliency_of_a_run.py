"""What a run that goes on learns from: maps may move, but what `data.saliency: auto` came to stays."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from ipseg.errors import UserError
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import Recipe, make_recipe
from ipseg.training.setup import resolve_start


@pytest.fixture
def recipe(tiny_settings):
    """Of a folder of data, with some of the section `data` and `evaluation`."""

    def make(root: Path, evaluation: dict[str, Any] | None = None, **data: Any) -> Recipe:
        section = {"name": "folder", "path": str(root), **data}
        return make_recipe(tiny_settings | {"data": section, "evaluation": evaluation or {}})

    return make


def start(recipe: Recipe, path: Path) -> RunFolder:
    """Begin, or go on, without learning anything."""
    folder = RunFolder.check(path, recipe, resume=True)
    folder.create(recipe, resolve_start(recipe, folder, recipe.splits(), torch.device("cpu")).scenario)
    return folder


def noted(path: Path) -> dict[str, Any]:
    return json.loads((path / "run.json").read_text())["data"]


# ---- maps that move -------------------------------------------------------------------------------------------------


def test_maps_that_lie_elsewhere_may_move_as_the_data_may(make_folder_data, recipe, tmp_path):
    root = make_folder_data()
    (root / "saliency").rename(tmp_path / "maps")
    start(recipe(root, saliency=str(tmp_path / "maps")), tmp_path / "run")
    root.rename(tmp_path / "data 2")
    (tmp_path / "maps").rename(tmp_path / "maps 2")
    start(recipe(tmp_path / "data 2", saliency=str(tmp_path / "maps 2")), tmp_path / "run")


@pytest.mark.parametrize(("began", "now"), [("fallback", "maps"), ("maps", "fallback"), ("auto", "given")])
def test_another_way_to_saliency_is_another_recipe(make_folder_data, recipe, tmp_path, began, now):
    root = make_folder_data()
    maps = shutil.copytree(root / "saliency", tmp_path / "maps")
    settings = [recipe(root, saliency=str(maps) if way == "maps" else way) for way in (began, now)]
    start(settings[0], tmp_path / "run")
    with pytest.raises(UserError, match=r"a run of another recipe \(data\.saliency was"):
        start(settings[1], tmp_path / "run")


def test_a_setting_of_the_same_name_in_a_data_set_of_ones_own_is_no_path(tiny_settings, tmp_path, monkeypatch):
    (tmp_path / "own_data.py").write_text(
        "from dataclasses import dataclass\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Own:\n"
        '    """Mine."""\n'
        '    name: str = "own_data:Own"\n'
        '    """The data set."""\n'
        '    saliency: str = "strong"\n'
        '    """How much stands out."""\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    strong, weak = (
        make_recipe(tiny_settings | {"data": {"name": "own_data:Own", "saliency": way}}) for way in ("strong", "weak")
    )
    RunFolder(tmp_path / "run").create(strong, strong.scenario.build("own", ("a", "b", "c", "d")))
    with pytest.raises(UserError, match=r"data\.saliency was strong, is weak"):
        RunFolder.check(tmp_path / "run", weak, resume=True)


# ---- what auto came to ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("maps", "way"), [(True, "given"), (False, "fallback")])
@pytest.mark.parametrize("held_out", [None, 0.3])
def test_a_run_notes_what_auto_came_to_and_no_path(make_folder_data, recipe, tmp_path, maps, way, held_out):
    root = make_folder_data(saliency=maps)
    mine = recipe(root, {} if held_out is None else {"held_out": held_out})
    start(mine, tmp_path / "run")
    found = noted(tmp_path / "run")
    assert found["saliency"] == way
    assert found["training_images"] == len(mine.splits().train.names)
    assert str(tmp_path) not in json.dumps(found)


def test_maps_that_were_written_since_a_run_began_do_not_change_what_it_learns_from(make_folder_data, recipe, tmp_path):
    root = make_folder_data(saliency=False)
    start(recipe(root), tmp_path / "run")
    (root / "saliency").mkdir()
    for path in (root / "masks").iterdir():
        Image.fromarray(np.full((48, 64), 255, dtype=np.uint8)).save(root / "saliency" / path.name)
    with pytest.raises(UserError, match=r"run began with saliency: fallback; .* would be given\. Move maps .* aside"):
        start(recipe(root), tmp_path / "run")
    (root / "saliency").rename(root / "later")
    start(recipe(root), tmp_path / "run")


def test_maps_that_were_taken_away_since_a_run_began_are_missed(make_folder_data, recipe, tmp_path):
    root = make_folder_data()
    start(recipe(root), tmp_path / "run")
    (root / "saliency").rename(root / "away")
    with pytest.raises(UserError, match=r"run began with saliency: given; .* would be fallback"):
        start(recipe(root), tmp_path / "run")


def test_the_number_of_images_is_noted_and_may_change(make_folder_data, recipe, tmp_path):
    """Those that only finished steps needed may be deleted."""
    start(recipe(make_folder_data(count=20)), tmp_path / "run")
    start(recipe(make_folder_data("fewer", count=10)), tmp_path / "run")
    assert noted(tmp_path / "run")["training_images"] == 16


def test_runs_that_do_not_say_what_they_began_with_go_on_as_ever(make_folder_data, recipe, tmp_path):
    start(recipe(make_folder_data(saliency=False)), tmp_path / "run")
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    about["data"] = {key: about["data"][key] for key in ("name", "classes")}  # as earlier versions wrote it
    (tmp_path / "run" / "run.json").write_text(json.dumps(about))
    start(recipe(make_folder_data("with maps", count=20)), tmp_path / "run")
    assert noted(tmp_path / "run") == about["data"]


def test_data_that_is_drawn_has_nothing_to_note_of_its_saliency(tiny_run):
    assert noted(tiny_run)["training_images"] == 24
    assert "saliency" not in noted(tiny_run)
