"""One more class: stopped and gone on, and what is refused."""

from __future__ import annotations

import shutil

import pytest
from contents import contents

from commands import call, fails
from ipseg.apps import learn as learning
from ipseg.apps.learn import learn
from ipseg.data.memory_io import load_memory
from ipseg.data.source import EmptyDataset
from ipseg.errors import UserError
from ipseg.training import experiment
from ipseg.training.experiment import run
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import make_recipe
from ipseg.training.tensors import load_tensors

pytestmark = pytest.mark.slow


# ---- stopped and gone on ----------------------------------------------------------------------------------------


def test_learning_that_was_stopped_goes_on_to_the_same_bits(grown, tmp_path, monkeypatch):
    words = ["learn", grown / "base", "--data", grown / "new", "--classes", "sheep", "--out", tmp_path / "run"]

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
    ours, theirs = (load_tensors(root / "run/step_02/weights.safetensors", "w")[0] for root in (tmp_path, grown))
    assert ours.keys() == theirs.keys()
    assert all(ours[name].equal(theirs[name]) for name in ours)
    assert (tmp_path / "run" / "results.json").read_bytes() == (grown / "run" / "results.json").read_bytes()


def test_train_goes_on_as_well(grown, tmp_path):
    shutil.copytree(grown / "run", tmp_path / "run")
    (tmp_path / "run" / "step_02" / "step.json").unlink()
    done = call("train", tmp_path / "run", "--resume", "--quiet")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "run" / "results.json").read_bytes() == (grown / "run" / "results.json").read_bytes()


def test_data_may_move_while_there_is_something_left_to_learn(grown, tmp_path):
    halted = shutil.copytree(grown / "run", tmp_path / "run")
    for name in ("step_02/step.json", "learn.json"):
        (halted / name).unlink()
    moved = shutil.copytree(grown / "new", tmp_path / "moved")
    done = call("learn", grown / "base", "--data", moved, "--classes", "sheep", "--out", halted, "--resume", "--quiet")
    assert done.exit_code == 0, done.output
    for name in ("results.json", "learn.json"):
        assert (halted / name).read_bytes() == (grown / "run" / name).read_bytes()


def test_a_finished_run_is_not_said_to_have_learned_from_other_data(grown, tmp_path):
    done = shutil.copytree(grown / "run", tmp_path / "run")
    other = shutil.copytree(grown / "new", tmp_path / "other")
    words = ["learn", grown / "base", "--classes", "sheep", "--out", done, "--resume", "--quiet"]
    told = fails(*words, "--data", other)
    assert str(grown / "new") in told
    assert "--val" in told
    assert f"ipseg evaluate {done} --data" in " ".join(told.split())
    assert contents(done) == contents(grown / "run")
    (tmp_path / "link").symlink_to(grown / "new")
    again = call(*words, "--data", tmp_path / "link")
    assert again.exit_code == 0, again.output
    assert contents(done) == contents(grown / "run")


def test_a_finished_run_whose_data_has_other_classes_now_is_told_so(grown, tmp_path):
    done = shutil.copytree(grown / "run", tmp_path / "run")
    new = shutil.copytree(grown / "new", tmp_path / "new")
    recipe = done / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace(str(grown / "new"), str(new)))
    (new / "classes.txt").write_text("goat\nsheep\nhorse\n")
    told = fails("learn", grown / "base", "--data", new, "--classes", "sheep", "--out", done, "--resume")
    assert "learned from data with the classes goat, sheep, red" in " ".join(told.split())
    assert (done / "learn.json").read_bytes() == (grown / "run" / "learn.json").read_bytes()


def test_a_beginning_that_fails_leaves_nothing(grown, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("power cut")

    monkeypatch.setattr(learning, "summarize", fail)
    with pytest.raises(OSError, match="power cut"):
        learn(grown / "base", grown / "new", ["sheep"], tmp_path / "run", quiet=True)
    assert not list(tmp_path.iterdir())


# ---- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        ("red", 'knows "red" already'),
        ("shep", "Did you mean sheep?"),
        ("green", 'knows "green" already'),
        ("sheep,sheep", "twice"),
        (",", "no class"),
    ],
)
def test_a_class_that_is_known_or_not_there_is_refused(grown, tmp_path, classes, said):
    before = contents(grown / "base")
    result = call("learn", grown / "base", "--data", grown / "new", "--classes", classes, "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert said in result.stderr
    assert "sheep" in result.stderr
    assert not (tmp_path / "run").exists()
    assert contents(grown / "base") == before


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
def test_what_the_old_steps_stand_on_may_not_change(grown, tmp_path, change):
    with pytest.raises(UserError, match="fixed by what the run has learned"):
        learn(grown / "base", grown / "new", ["sheep"], tmp_path / "run", assignments=[change])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["method.image_labels=full"], "method.image_labels=full"),
        (["training.graphs=true", "deterministic=true"], "training.graphs"),
        (["device=warp"], "warp"),
    ],
)
def test_settings_that_no_step_can_begin_with_leave_no_half_made_run(grown, tmp_path, changes, said):
    with pytest.raises(UserError, match=said):
        learn(grown / "base", grown / "new", ["sheep"], tmp_path / "run", assignments=changes)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("step", ["step_00", "step_01"])
def test_damaged_weights_of_the_base_are_named_before_anything_is_written(grown, tmp_path, step):
    base = shutil.copytree(grown / "base", tmp_path / "base")
    weights = base / step / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    told = fails("learn", base, "--data", grown / "new", "--classes", "sheep", "--out", tmp_path / "run")
    assert str(weights) in told
    assert list(tmp_path.iterdir()) == [base]


@pytest.mark.parametrize("step", ["step_00", "step_01"])
def test_damaged_results_of_the_base_are_named_before_anything_is_written(grown, tmp_path, step):
    base = shutil.copytree(grown / "base", tmp_path / "base")
    (base / step / "step.json").write_text('{"version"')
    told = fails("learn", base, "--data", grown / "new", "--classes", "sheep", "--out", tmp_path / "run")
    assert str(base / step / "step.json") in told
    assert list(tmp_path.iterdir()) == [base]


def test_a_joint_run_learns_no_further_class_and_leaves_no_half_made_run(grown, make_folder_data, tmp_path):
    settings = RunFolder.open(grown / "base").settings() | {"method": {"name": "joint"}, "scenario": {"name": "joint"}}
    old = make_folder_data("old", classes=("red", "green"), count=6)
    run(make_recipe(settings | {"data": {"name": "folder", "path": str(old)}}), tmp_path / "base", quiet=True)
    before = sorted(tmp_path.iterdir())
    told = fails("learn", tmp_path / "base", "--data", grown / "new", "--classes", "sheep", "--out", tmp_path / "run")
    assert "method joint learns all classes at once" in told
    assert sorted(tmp_path.iterdir()) == before


def test_other_settings_may_change(grown, tmp_path):
    changes = ["training.later_epochs=0.5", "memory.size=2"]
    learn(grown / "base", grown / "new", ["sheep"], tmp_path / "run", assignments=changes, quiet=True)
    assert len(load_memory(tmp_path / "run" / "step_02" / "memory", EmptyDataset())) == 2


def test_a_run_that_is_not_finished_is_sent_back(grown, tmp_path):
    shutil.copytree(grown / "base", tmp_path / "base")
    (tmp_path / "base" / "step_01" / "step.json").unlink()
    with pytest.raises(UserError, match="--resume"):
        learn(tmp_path / "base", grown / "new", ["sheep"], tmp_path / "run")


@pytest.mark.parametrize("out", ["base", "base/inside", "."])
def test_the_new_run_lies_apart_from_the_old_one(grown, out):
    with pytest.raises(UserError, match="lie in each other"):
        learn(grown / "base", grown / "new", ["sheep"], grown / out)


def test_validation_data_must_have_something_to_say(grown, make_folder_data, tmp_path):
    other = make_folder_data("other", classes=("cup",), count=5)
    with pytest.raises(UserError, match="none of the classes"):
        learn(grown / "base", grown / "new", ["sheep"], tmp_path / "run", val=other)
    assert not (tmp_path / "run").exists()


def test_data_without_a_picture_of_the_class_is_refused(grown, make_folder_data, tmp_path):
    data = make_folder_data("data", classes=("sheep", "cup"), count=5)
    (data / "classes.txt").write_text("sheep\ncup\nspoon\n")
    with pytest.raises(UserError, match="holds spoon"):
        learn(grown / "base", data, ["spoon"], tmp_path / "run")
