"""What a kill leaves in a run's folder stops nobody, is not handed on, and is removed when the run goes on."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
import yaml

from ipseg.errors import UserError
from ipseg.evaluation.results import RunResult
from ipseg.files import TEMPORARIES, replacing, write_json, write_text
from ipseg.training.experiment import run
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import make_recipe


class Killed(BaseException):
    """Nobody catches it, and nothing is tidied up."""


def kill(*_arguments: object, **_options: object) -> None:
    raise Killed


def leave_temporary(folder: Path) -> None:
    """What stays in a folder when somebody is killed who writes a file there."""
    with replacing(folder / "written") as temporary:
        temporary.write_text("half of i")
    (folder / "written").rename(temporary)


def leave_weights(folder: Path) -> None:
    """What stays when somebody is killed who writes weights; before, safetensors wrote its own file beside them."""
    private = folder / TEMPORARIES.replace("*", "private")
    private.mkdir()
    for path in (private / ".tmpAbC123", private / "weights.safetensors", folder / ".tmpdEf456"):
        path.write_text("half of i")


def below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


# ---- results --------------------------------------------------------------------------------------------------------


def test_a_run_whose_steps_are_all_whole_gets_its_results(tiny_settings, tiny_run, tmp_path):
    mine = shutil.copytree(tiny_run, tmp_path / "mine")
    (mine / "results.json").unlink()
    run(make_recipe(tiny_settings), mine, resume=True, quiet=True)
    assert (mine / "results.json").read_bytes() == (tiny_run / "results.json").read_bytes()


def test_a_run_that_takes_its_only_step_from_another_has_results(tiny_settings, tmp_path):
    tiny_settings["scenario"] = {"name": "joint"}
    run(make_recipe(tiny_settings), tmp_path / "first", quiet=True)
    tiny_settings["training"] |= {"later_lr": 0.02}
    given = run(make_recipe(tiny_settings | {"init": f"{tmp_path / 'first'}@0"}), tmp_path / "second", quiet=True)
    assert RunResult.read(tmp_path / "second" / "results.json").steps == given.steps
    assert (tmp_path / "second" / "results.json").read_bytes() == (tmp_path / "first" / "results.json").read_bytes()


def test_once_a_step_is_whole_the_results_tell_of_it(tiny_settings, tiny_run, tmp_path, monkeypatch):
    mine = shutil.copytree(tiny_run, tmp_path / "mine")
    (mine / "step_02" / "step.json").unlink()
    (mine / "results.json").unlink()
    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "finish_step", kill)
        with pytest.raises(Killed):
            run(make_recipe(tiny_settings), mine, resume=True, quiet=True)
    assert (mine / "results.json").read_bytes() == (tiny_run / "results.json").read_bytes()
    run(make_recipe(tiny_settings), mine, resume=True, quiet=True)
    assert (mine / "results.json").read_bytes() == (tiny_run / "results.json").read_bytes()


# ---- a run that was killed in its first moment ----------------------------------------------------------------------


@pytest.fixture
def unbegun(tiny_settings, tmp_path, monkeypatch) -> Path:
    """Of a run that was killed after its recipe, with the next file half written."""
    recipe, path = make_recipe(tiny_settings), tmp_path / "mine"
    with monkeypatch.context() as patched:
        patched.setattr("ipseg.training.folder.write_json", kill)
        with pytest.raises(Killed):
            RunFolder(path).create(recipe, recipe.scenario.build("scenes", ["cow", "bus", "horse", "car"]))
    leave_temporary(path)
    assert {name for name in below(path) if not name.startswith(".")} == {"recipe.yaml"}
    return path


def test_a_run_killed_in_its_first_moment_is_begun_anew(tiny_settings, unbegun):
    tiny_settings["scenario"] = {"name": "joint"}  # nothing was learned, so that another recipe may begin here too
    assert run(make_recipe(tiny_settings), unbegun, resume=True, quiet=True).complete
    assert below(unbegun) >= {"recipe.yaml", "run.json", "log.jsonl", "results.json", "step_00/step.json"}
    assert not list(unbegun.rglob(".*"))
    assert RunFolder(unbegun).settings()["scenario"]["name"] == "joint"


def test_a_run_killed_before_its_recipe_is_begun_anew(tiny_settings, unbegun):
    (unbegun / "recipe.yaml").unlink()
    RunFolder.check(unbegun, make_recipe(tiny_settings), resume=True)


def test_what_a_killed_run_left_is_replaced_on_request_alone(tiny_settings, unbegun):
    with pytest.raises(UserError, match=r"holds a run already\. Resume it with --resume"):
        RunFolder.check(unbegun, make_recipe(tiny_settings), resume=False)


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("text", ["full", "seed: 3\n", "- a\n- list\n", "\x00"])
def test_a_recipe_that_somebody_wrote_is_not_replaced(tiny_settings, tmp_path, text, resume):
    text = yaml.safe_dump(tiny_settings) if text == "full" else text
    (tmp_path / "recipe.yaml").write_text(text)
    with pytest.raises(UserError, match="exists and is not a run's folder"):
        RunFolder.check(tmp_path, make_recipe(tiny_settings), resume=resume)
    assert (tmp_path / "recipe.yaml").read_text() == text


def test_with_anything_else_in_it_a_folder_is_not_begun_anew(tiny_settings, unbegun):
    (unbegun / ".notes").touch()
    with pytest.raises(UserError, match="exists and is not a run's folder"):
        RunFolder.check(unbegun, make_recipe(tiny_settings), resume=True)


# ---- what lies beside the files -------------------------------------------------------------------------------------


def test_going_on_removes_what_a_kill_left(tiny_settings, tiny_run, tmp_path):
    mine = shutil.copytree(tiny_run, tmp_path / "mine")
    before = below(mine)
    for folder in (".", "step_01", "step_02/memory"):
        leave_temporary(mine / folder)
    assert len(below(mine) - before) == 3
    shutil.copytree(mine / "step_00", mine / ".step_00")  # cut while it was taken from another run
    run(make_recipe(tiny_settings), mine, resume=True, quiet=True)
    assert below(mine) == before


def test_going_on_removes_half_written_weights_and_no_image(tiny_settings, tiny_run, tmp_path):
    mine = shutil.copytree(tiny_run, tmp_path / "mine")
    (mine / "step_01" / "memory" / "saliency" / ".tmpab.png").touch()  # images may be called so
    (mine / ".step_notes").touch()
    before = below(mine)
    leave_weights(mine / "step_01")
    run(make_recipe(tiny_settings), mine, resume=True, quiet=True)
    assert below(mine) == before


def test_what_a_kill_left_is_not_handed_on(tmp_path):
    theirs, mine = RunFolder(tmp_path / "theirs"), RunFolder(tmp_path / "mine")
    (theirs.step(0) / "memory").mkdir(parents=True)
    mine.path.mkdir()
    write_json(theirs.step(0) / "step.json", {})
    write_text(theirs.step(0) / "memory" / ".hidden.png", "an image may be called so")
    leave_temporary(theirs.step(0))
    leave_temporary(theirs.step(0) / "memory")
    leave_weights(theirs.step(0))
    mine.copy_steps(theirs, 1)
    assert below(mine.step(0)) == {"step.json", "memory", "memory/.hidden.png"}


def test_a_finished_run_says_its_results_though_its_data_is_gone(tiny_run, tmp_path, monkeypatch):
    mine = shutil.copytree(tiny_run, tmp_path / "mine")
    (mine / "results.json").unlink()
    recipe = make_recipe(RunFolder(mine).settings())
    monkeypatch.setattr(type(recipe.data), "build", lambda _self: pytest.fail("nobody needs the images"))
    assert run(recipe, mine, resume=True, quiet=True).complete
    assert (mine / "results.json").read_bytes() == (tiny_run / "results.json").read_bytes()


def test_a_run_goes_on_where_its_data_has_moved_to_but_not_with_other_classes(
    make_folder_data, tiny_settings, tmp_path
):
    data = make_folder_data("data")
    settings = tiny_settings | {"data": {"name": "folder", "path": str(data)}, "memory": {"size": 0}}
    mine = tmp_path / "mine"
    run(make_recipe(settings), mine, quiet=True)
    shutil.rmtree(mine / "step_01")
    moved = data.rename(tmp_path / "moved")
    settings["data"]["path"] = str(moved)
    assert run(make_recipe(settings), mine, resume=True, quiet=True).complete
    shutil.rmtree(mine / "step_01")
    names = (moved / "classes.txt").read_text().split()
    (moved / "classes.txt").write_text("\n".join(["zebra", *names[1:]]))
    with pytest.raises(UserError, match=r"learned from data with the classes .*; the data that is there now has zebra"):
        run(make_recipe(settings), mine, resume=True, quiet=True)


@pytest.mark.parametrize("change", [{"method": {"name": "joint"}}, {"training": {"tensorboard": True}}], ids=str)
def test_a_start_that_is_refused_leaves_nothing_behind(tiny_settings, tmp_path, monkeypatch, change):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    section, values = next(iter(change.items()))
    tiny_settings[section] = values if "name" in values else tiny_settings[section] | values
    with pytest.raises(UserError, match=r"method joint|the extra `track`"):
        run(make_recipe(tiny_settings), tmp_path / "mine", quiet=True)
    assert not (tmp_path / "mine").exists()


@pytest.mark.slow
def test_a_run_that_is_cut_while_it_takes_the_steps_of_another_takes_the_rest(
    tiny_settings, tiny_run, tmp_path, monkeypatch
):
    settings = tiny_settings | {"init": f"{tiny_run}@1"}
    whole = run(make_recipe(settings), tmp_path / "whole", quiet=True)
    rename, taken = Path.rename, []

    def cut(path: Path, target: Path) -> Path:
        taken.append(target)
        if len(taken) > 1:
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", cut)
        with pytest.raises(KeyboardInterrupt):
            run(make_recipe(settings), tmp_path / "cut", quiet=True)
    assert RunFolder.open(tmp_path / "cut").finished() == 1
    assert run(make_recipe(settings), tmp_path / "cut", resume=True, quiet=True) == whole
    weights = [RunFolder.open(tmp_path / name).weights(1) for name in ("whole", "cut")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize("data", [None, 3, {"name": "scenes"}])
def test_a_damaged_description_of_a_run_is_told(tiny_run, tmp_path, data):
    mine = shutil.copytree(tiny_run, tmp_path / "mine")
    (mine / "run.json").write_text(json.dumps({"version": 1} | ({} if data is None else {"data": data})))
    with pytest.raises(UserError, match=r"description is damaged: .*run\.json"):
        RunFolder.open(mine).scenario(make_recipe(RunFolder.open(mine).settings()))


def test_two_processes_never_learn_in_one_folder(tiny_settings, tiny_run, tmp_path):
    mine = shutil.copytree(tiny_run, tmp_path / "mine")
    shutil.rmtree(mine / "step_02")
    with RunFolder(mine).lock():
        leave_temporary(mine / "step_01")  # the first is writing
        with pytest.raises(UserError, match="another process is training in"):
            run(make_recipe(tiny_settings), mine, resume=True, quiet=True)
        assert list((mine / "step_01").glob(TEMPORARIES))
    assert run(make_recipe(tiny_settings), mine, resume=True, quiet=True).complete
