"""One more class: stopped and gone on, and what is refused."""

from __future__ import annotations

import shutil

import pytest
from contents import contents

from commands import call, extension, fails
from ipseg.apps import extend as extending
from ipseg.apps.extend import extend
from ipseg.data.dataset import EmptyDataset
from ipseg.data.memory import load_memory
from ipseg.errors import UserError
from ipseg.training import experiment
from ipseg.training.experiment import run
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import make_recipe
from ipseg.training.tensors import load_tensors

pytestmark = pytest.mark.slow


# ---- stopped and gone on ----------------------------------------------------------------------------------------


def test_learning_that_was_stopped_goes_on_to_the_same_bits(extended, tmp_path, monkeypatch):
    words = extension(extended / "base", extended / "new", "sheep", tmp_path / "run")

    class Halting:
        def __enter__(self):
            return lambda: True

        def __exit__(self, *_problem):
            return None

    with monkeypatch.context() as patch:
        patch.setattr(experiment, "stop_request", Halting)
        assert call(*words, "--quiet").exit_code == 130
    assert (tmp_path / "run" / "step_02" / "checkpoint.safetensors").exists()
    assert "--resume" in call(*words).stderr
    resumed = call(*words, "--resume", "--quiet")
    assert resumed.exit_code == 0, resumed.output
    own, original = (load_tensors(root / "run/step_02/weights.safetensors", "w")[0] for root in (tmp_path, extended))
    assert own.keys() == original.keys()
    assert all(own[name].equal(original[name]) for name in own)
    assert (tmp_path / "run" / "results.json").read_bytes() == (extended / "run" / "results.json").read_bytes()


def test_train_goes_on_as_well(extended, tmp_path):
    shutil.copytree(extended / "run", tmp_path / "run")
    (tmp_path / "run" / "step_02" / "step.json").unlink()
    done = call("train", tmp_path / "run", "--resume", "--quiet")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "run" / "results.json").read_bytes() == (extended / "run" / "results.json").read_bytes()


def test_data_may_move_while_there_is_something_left_to_learn(extended, tmp_path):
    halted = shutil.copytree(extended / "run", tmp_path / "run")
    for name in ("step_02/step.json", "extend.json"):
        (halted / name).unlink()
    moved = shutil.copytree(extended / "new", tmp_path / "moved")
    done = call(*extension(extended / "base", moved, "sheep", halted, "--resume", "--quiet"))
    assert done.exit_code == 0, done.output
    for name in ("results.json", "extend.json"):
        assert (halted / name).read_bytes() == (extended / "run" / name).read_bytes()


def test_a_finished_run_is_not_said_to_have_learned_from_other_data(extended, tmp_path):
    done = shutil.copytree(extended / "run", tmp_path / "run")
    other = shutil.copytree(extended / "new", tmp_path / "other")
    words = ["extend", extended / "base", "--classes", "sheep", "--out", done, "--resume", "--quiet"]
    error = fails(*words, "--data", other)
    assert str(extended / "new") in error
    assert "--val" in error
    assert f"ipseg evaluate {done} --data" in " ".join(error.split())
    assert contents(done) == contents(extended / "run")
    (tmp_path / "link").symlink_to(extended / "new")
    again = call(*words, "--data", tmp_path / "link")
    assert again.exit_code == 0, again.output
    assert contents(done) == contents(extended / "run")


def test_a_finished_run_whose_data_has_other_classes_now_is_told_so(extended, tmp_path):
    done = shutil.copytree(extended / "run", tmp_path / "run")
    new = shutil.copytree(extended / "new", tmp_path / "new")
    recipe = done / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace(str(extended / "new"), str(new)))
    (new / "classes.txt").write_text("goat\nsheep\nhorse\n")
    error = fails(*extension(extended / "base", new, "sheep", done, "--resume"))
    assert "learned from data with the classes goat, sheep, red" in " ".join(error.split())
    assert (done / "extend.json").read_bytes() == (extended / "run" / "extend.json").read_bytes()


def test_a_beginning_that_fails_leaves_nothing(extended, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("power cut")

    monkeypatch.setattr(extending, "summarize", fail)
    with pytest.raises(OSError, match="power cut"):
        extend(extended / "base", extended / "new", ["sheep"], tmp_path / "run", quiet=True)
    assert not list(tmp_path.iterdir())


# ---- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ("red", 'knows "red" already'),
        ("shep", "Did you mean sheep?"),
        ("green", 'knows "green" already'),
        ("sheep,sheep", "twice"),
        (",", "no class"),
    ],
)
def test_a_class_that_is_known_or_not_there_is_refused(extended, tmp_path, classes, message):
    before = contents(extended / "base")
    result = call(*extension(extended / "base", extended / "new", classes, tmp_path / "run"))
    assert result.exit_code == 2
    assert message in result.stderr
    assert "sheep" in result.stderr
    assert not (tmp_path / "run").exists()
    assert contents(extended / "base") == before


@pytest.mark.parametrize(
    "change",
    [
        "model.width=8",
        "scenario.name=2-1",
        "memory.store=path",
        "method.decoupling=false",
        "method.name=ipseg_lda",
        "method.head=small",
        "data.path=x",
        "init=a@0",
    ],
)
def test_what_the_old_steps_stand_on_may_not_change(extended, tmp_path, change):
    with pytest.raises(UserError, match="fixed by what the run has learned"):
        extend(extended / "base", extended / "new", ["sheep"], tmp_path / "run", assignments=[change])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["method.image_labels=full"], "method.image_labels=full"),
        (["training.graphs=true", "deterministic=true"], "training.graphs"),
        (["device=warp"], "warp"),
    ],
)
def test_settings_that_no_step_can_begin_with_leave_no_half_made_run(extended, tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        extend(extended / "base", extended / "new", ["sheep"], tmp_path / "run", assignments=changes)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("step", ["step_00", "step_01"])
def test_damaged_weights_of_the_base_are_named_before_anything_is_written(extended, tmp_path, step):
    base = shutil.copytree(extended / "base", tmp_path / "base")
    weights = base / step / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    error = fails(*extension(base, extended / "new", "sheep", tmp_path / "run"))
    assert str(weights) in error
    assert list(tmp_path.iterdir()) == [base]


@pytest.mark.parametrize("step", ["step_00", "step_01"])
def test_damaged_results_of_the_base_are_named_before_anything_is_written(extended, tmp_path, step):
    base = shutil.copytree(extended / "base", tmp_path / "base")
    (base / step / "step.json").write_text('{"version"')
    error = fails(*extension(base, extended / "new", "sheep", tmp_path / "run"))
    assert str(base / step / "step.json") in error
    assert list(tmp_path.iterdir()) == [base]


def test_a_joint_run_learns_no_further_class_and_leaves_no_half_made_run(extended, make_folder_data, tmp_path):
    settings = RunFolder.open(extended / "base").settings() | {
        "method": {"name": "joint"},
        "scenario": {"name": "joint"},
    }
    old = make_folder_data("old", classes=("red", "green"), count=6)
    run(make_recipe(settings | {"data": {"name": "folder", "path": str(old)}}), tmp_path / "base", quiet=True)
    before = sorted(tmp_path.iterdir())
    error = fails(*extension(tmp_path / "base", extended / "new", "sheep", tmp_path / "run"))
    assert "method joint learns all classes at once" in error
    assert sorted(tmp_path.iterdir()) == before


def test_other_settings_may_change(extended, tmp_path):
    changes = ["training.later_epochs=0.5", "memory.size=2"]
    extend(extended / "base", extended / "new", ["sheep"], tmp_path / "run", assignments=changes, quiet=True)
    assert len(load_memory(tmp_path / "run" / "step_02" / "memory", EmptyDataset())) == 2


def test_a_run_that_is_not_finished_is_sent_back(extended, tmp_path):
    shutil.copytree(extended / "base", tmp_path / "base")
    (tmp_path / "base" / "step_01" / "step.json").unlink()
    with pytest.raises(UserError, match="--resume"):
        extend(tmp_path / "base", extended / "new", ["sheep"], tmp_path / "run")


@pytest.mark.parametrize("out", ["base", "base/inside", "."])
def test_the_new_run_lies_apart_from_the_old_one(extended, out):
    with pytest.raises(UserError, match="must not be inside"):
        extend(extended / "base", extended / "new", ["sheep"], extended / out)


def test_validation_data_must_have_something_to_say(extended, make_folder_data, tmp_path):
    other = make_folder_data("other", classes=("cup",), count=5)
    with pytest.raises(UserError, match="none of the classes"):
        extend(extended / "base", extended / "new", ["sheep"], tmp_path / "run", val=other)
    assert not (tmp_path / "run").exists()


def test_data_without_an_image_of_the_class_is_refused(extended, make_folder_data, tmp_path):
    data = make_folder_data("data", classes=("sheep", "cup"), count=5)
    (data / "classes.txt").write_text("sheep\ncup\nspoon\n")
    with pytest.raises(UserError, match="holds spoon"):
        extend(extended / "base", data, ["spoon"], tmp_path / "run")
