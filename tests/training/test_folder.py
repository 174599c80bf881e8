"""The weights of a run: each step's file lies over those before it. And steps that another run takes."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
import yaml
from torch import nn

import ipseg
from ipseg.errors import UserError
from ipseg.training import experiment
from ipseg.training import folder as module
from ipseg.training.checkpoint import Checkpoint
from ipseg.training.experiment import run
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import make_recipe
from ipseg.training.tensors import load_tensors, save_tensors


def network(**layers: float) -> nn.Module:
    """Layers without inputs, each with one number."""
    return nn.ParameterDict({name: torch.tensor([float(value)]) for name, value in layers.items()})


def values(folder: RunFolder, through: int) -> dict[str, float]:
    return {name: tensor.item() for name, tensor in folder.weights(through).items()}


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    """b changes in step 1, which has no a any more; step 2 has one again, and c is new."""
    made = RunFolder(tmp_path)
    made.save_weights(0, network(a=1, b=2))
    made.save_weights(1, network(b=3))
    made.save_weights(2, network(a=4, b=3, c=5))
    return made


def test_a_model_has_what_its_last_step_left_and_nothing_that_a_step_took_away(folder):
    assert [values(folder, step) for step in range(3)] == [{"a": 1, "b": 2}, {"b": 3}, {"a": 4, "b": 3, "c": 5}]
    tensors, facts = load_tensors(folder.step(2) / "weights.safetensors", "weights")
    assert tensors.keys() == {"a", "c"}  # b is as step 1 left it
    assert facts == {"step": 2, "gone": []}


def test_files_that_name_nothing_gone_are_read_as_ever(folder):
    save_tensors(folder.step(1) / "weights.safetensors", {"b": torch.tensor([3.0])}, {"step": 1})
    assert values(folder, 1) == {"a": 1, "b": 3}


def test_a_file_that_names_the_gone_in_another_form_is_refused(folder):
    save_tensors(folder.step(1) / "weights.safetensors", {"b": torch.tensor([3.0])}, {"step": 1, "gone": 5})
    with pytest.raises(UserError, match=r'weights\.safetensors: "gone" must be a list of names, got 5'):
        folder.weights(1)


def test_a_run_knows_its_scenario_whatever_its_data_set_is_called(tiny_settings, tmp_path):
    recipe = make_recipe(tiny_settings | {"scenario": {"name": "our/birds/1-1"}})
    scenario = recipe.scenario.build("our/birds", ("robin", "wren"))
    folder = RunFolder(tmp_path / "run")
    folder.create(recipe, scenario)
    assert folder.scenario(recipe) == scenario


# ---- a run made of another one's steps ------------------------------------------------------------------------------


def test_steps_of_a_run_that_nobody_may_change_are_taken_as_files_like_any_new_ones(folder, tmp_path):
    (folder.step(0) / "memory").mkdir()
    (folder.step(0) / "memory" / "a.png").touch()
    for path in (folder.step(0), *folder.step(0).rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    new = RunFolder(tmp_path / "new")
    (new.path / "empty").mkdir(parents=True)
    (new.path / "empty" / "file").touch()
    new.copy_steps(folder, 1)
    taken = [new.step(0), *new.step(0).rglob("*")]
    assert {path.name for path in taken} == {"step_00", "weights.safetensors", "memory", "a.png"}
    for path in taken:
        like = new.path / "empty" if path.is_dir() else new.path / "empty" / "file"
        assert oct(path.stat().st_mode) == oct(like.stat().st_mode), path


# ---- saving ---------------------------------------------------------------------------------------------------------


def test_saving_reads_no_earlier_step(tmp_path, monkeypatch):
    """Else a run of many steps would read its first step again at every later one."""
    read: list[Path] = []

    def counted(path: Path, what: str) -> object:
        read.append(path)
        return load_tensors(path, what)

    monkeypatch.setattr(module, "load_tensors", counted)
    made = RunFolder(tmp_path)
    for step in range(10):
        made.save_weights(step, network(**{f"step {index}": index for index in range(step + 1)}))
    assert not read
    again = RunFolder(tmp_path)  # a run that goes on reads each step once
    for step in range(10, 20):
        again.save_weights(step, network(**{f"step {index}": index for index in range(step + 1)}))
    assert len(read) == 10
    assert values(again, 19) == {f"step {index}": index for index in range(20)}
    assert load_tensors(again.step(19) / "weights.safetensors", "weights")[0].keys() == {"step 19"}


# ---- a folder that cannot be written to any more --------------------------------------------------------------------


@pytest.mark.parametrize("after", ["train_step", "store_memory", "measure"])
@pytest.mark.parametrize("moved", [True, False])
def test_a_run_whose_folder_is_removed_or_moved_says_so_and_does_not_begin_it_anew(
    tiny_settings, tmp_path, monkeypatch, after, moved
):
    original = getattr(experiment, after)

    def taking_away(*arguments: object, **options: object) -> object:
        result = original(*arguments, **options)
        (tmp_path / "run").rename(tmp_path / "elsewhere")
        if not moved:
            shutil.rmtree(tmp_path / "elsewhere")
        return result

    monkeypatch.setattr(experiment, after, taking_away)
    with pytest.raises(UserError, match="run was removed or moved while the run was writing there"):
        run(make_recipe(tiny_settings), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("after", ["train_step", "store_memory", "measure"])
@pytest.mark.parametrize("left", [[], ["step_00"]], ids=str)
def test_a_run_whose_folder_is_replaced_or_removed_in_parts_is_not_called_finished(
    tiny_settings, tmp_path, monkeypatch, after, left
):
    """`rm -r` leaves a folder in which something is written at that moment; a name may be given to another folder."""
    original, folder = getattr(experiment, after), tmp_path / "run"

    def taking_away(*arguments: object, **options: object) -> object:
        result = original(*arguments, **options)
        if folder.exists() and (folder / "run.json").exists():
            folder.rename(tmp_path / "elsewhere")
            folder.mkdir()
            for name in left:
                shutil.copytree(tmp_path / "elsewhere" / name, folder / name)
        return result

    monkeypatch.setattr(experiment, after, taking_away)
    with pytest.raises(UserError, match="run was removed or moved while the run was writing there"):
        run(make_recipe(tiny_settings), folder, quiet=True)
    assert not (folder / "results.json").exists()
    assert not (folder / "step_01").exists()


def test_a_run_whose_folder_is_moved_and_linked_to_goes_on(tiny_settings, tmp_path, monkeypatch):
    original, folder = experiment.measure, tmp_path / "run"

    def moving(*arguments: object, **options: object) -> object:
        if not folder.is_symlink():
            folder.rename(tmp_path / "elsewhere")
            folder.symlink_to(tmp_path / "elsewhere")
        return original(*arguments, **options)

    monkeypatch.setattr(experiment, "measure", moving)
    assert run(make_recipe(tiny_settings), folder, quiet=True).complete


def test_a_checkpoint_whose_folder_is_removed_ends_the_run(tiny_settings, tmp_path, monkeypatch):
    tiny_settings["training"] |= {"checkpoint_seconds": 0, "log_every": 1000}
    save = Checkpoint.save

    def taking_away(checkpoint: Checkpoint, iteration: int) -> None:
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        save(checkpoint, iteration)

    monkeypatch.setattr(Checkpoint, "save", taking_away)
    with pytest.raises(UserError, match="removed or moved"):
        run(make_recipe(tiny_settings), tmp_path / "run", quiet=True)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("checkpoint")]


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)
from ipseg.cli import app
app()
"""


@pytest.mark.parametrize("limit", [100, 60_000])
def test_a_limit_on_file_sizes_is_told(tiny_settings, tmp_path, limit):
    tiny_settings["training"] |= {"checkpoint_seconds": 0}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(tiny_settings))
    words = ["train", str(tmp_path / "recipe.yaml"), "--out", str(tmp_path / "run"), "--quiet"]
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(limit), *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "It is larger than files may be there: raise the limit (ulimit -f)" in done.stderr
    assert "Traceback" not in done.stderr


# ---- whole files with odd content -----------------------------------------------------------------------------------


def test_weights_of_another_step_are_refused(folder):
    shutil.copy(folder.step(0) / "weights.safetensors", folder.step(1) / "weights.safetensors")
    with pytest.raises(UserError, match=r"step_01/weights\.safetensors is of step 0, not 1"):
        folder.weights(1)


def test_the_result_of_another_step_is_refused(tiny_run, tmp_path):
    mine = shutil.copytree(tiny_run, tmp_path / "mine")
    shutil.copy(mine / "step_00" / "step.json", mine / "step_01" / "step.json")
    with pytest.raises(UserError, match=r"step 1's result is damaged: .*it is of step 0"):
        RunFolder(mine).result(1)


@pytest.mark.parametrize(
    ("change", "told"),
    [(lambda t: t.double(), "torch.float64, and should be"), (lambda t: t / 0, "numbers that are not finite")],
)
def test_weights_of_another_kind_are_refused(tiny_run, tmp_path, change, told):
    mine = shutil.copytree(tiny_run, tmp_path / "mine")
    path = mine / "step_02" / "weights.safetensors"
    tensors, facts = load_tensors(path, "weights")
    name = next(name for name in tensors if name.endswith("classifier.weight"))
    save_tensors(path, tensors | {name: change(tensors[name])}, facts)
    with pytest.raises(UserError, match=f"the weights do not fit the recipe's network.*{name}.*{told}"):
        ipseg.load(mine)
