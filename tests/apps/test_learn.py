"""One more class: what is learned, what is kept, what is refused."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import ipseg
from commands import call, fails
from ipseg.apps import learn as learning
from ipseg.apps.evaluate import evaluate_again
from ipseg.apps.growth import growth_lines, on_validation
from ipseg.apps.learn import learn
from ipseg.apps.model import load_model
from ipseg.data.memory import NoPictures, ReplayMemory
from ipseg.engine import trainer
from ipseg.engine.experiment import run
from ipseg.engine.folder import RunFolder
from ipseg.engine.recipe import make_recipe
from ipseg.engine.tensors import load_tensors
from ipseg.errors import UserError
from ipseg.evaluation.results import RunResult

pytestmark = pytest.mark.slow


def contents(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


# ---- what is learned --------------------------------------------------------------------------------------------


def test_the_new_run_knows_the_old_classes_and_the_new_one(grown):
    model = load_model(grown / "run")
    assert model.classes == ("background", "red", "green", "sheep")
    assert model.step == 2
    assert RunResult.read(grown / "run" / "results.json").complete


def test_the_old_steps_are_taken_over_bit_for_bit(grown):
    for step in range(2):
        for name in ("weights.safetensors", "step.json"):
            ours, theirs = (grown / run / f"step_{step:02d}" / name for run in ("run", "base"))
            assert ours.read_bytes() == theirs.read_bytes()
    changed, _ = load_tensors(grown / "run" / "step_02" / "weights.safetensors", "w")
    assert not [name for name in changed if name.startswith(("encoder.", "temporary.0", "temporary.1"))]


def test_classes_are_matched_by_name_and_only_the_named_one_is_taught(grown):
    """In the new data red is value 3 and goat value 1; neither is taught, and sheep (2) is class 3 of the model."""
    manifest = json.loads((grown / "run" / "step_02" / "memory" / "manifest.json").read_text())
    assert manifest["order"] == ["red", "green", "sheep"]
    recent = [entry for entry in manifest["entries"] if entry["step"] == 2]
    assert recent
    assert all("sheep" in entry["classes"] for entry in recent)
    iou = RunResult.read(grown / "run" / "results.json").steps[2].iou
    assert list(iou) == ["background", "red", "green", "sheep"]
    assert iou["green"] is None  # the new data does not annotate it
    assert iou["red"] is not None  # this one it does


def test_remembered_pictures_do_not_mix_with_new_ones_of_the_same_name(grown):
    before = ReplayMemory.load(grown / "base" / "step_01" / "memory", NoPictures())
    after = ReplayMemory.load(grown / "run" / "step_01" / "memory", NoPictures())
    assert [f"old/{entry.name}" for entry in before.entries] == [entry.name for entry in after.entries]
    assert not after.without_copy()
    for index in range(len(before)):
        assert np.array_equal(before.picture(index).image, after.picture(index).image)
        assert np.array_equal(before.picture(index).salient, after.picture(index).salient)


def test_only_the_memory_that_is_needed_moves_along(grown):
    assert not (grown / "run" / "step_00" / "memory").exists()


def test_what_became_of_the_old_classes_is_written_and_said(grown):
    report = json.loads((grown / "run" / "learn.json").read_text())
    assert (report["old"], report["new"]) == (["red", "green"], ["sheep"])
    memory, validation = report["memory"], report["validation"]
    assert memory["pictures"] == 4
    assert set(memory["classes"]) == {"red", "green"}
    assert set(memory["image_accuracy"]) == {"before", "after"}
    assert validation["not_annotated"] == ["green"]
    assert validation["iou"]["green"] == {"before": None, "after": None}
    assert validation["iou"]["sheep"]["after"] is not None
    assert any("not annotated there" in line for line in growth_lines(report))


def test_the_mean_of_old_classes_is_over_what_is_measured():
    found = on_validation({"a": 0.5, "b": None}, {"a": 0.25, "b": None, "c": 0.75}, ["a", "b"], ["c"])
    assert found["old"] == {"before": 0.5, "after": 0.25}
    assert found["new"] == 0.75


def test_a_model_that_has_not_changed_has_kept_everything(grown):
    """The measure on remembered pictures is right at its end points."""
    import torch

    from ipseg.apps.growth import on_memory

    method = load_model(grown / "base", device="cpu").method
    memory = ReplayMemory.load(grown / "run" / "step_01" / "memory", NoPictures())
    found = on_memory(method, method, memory, ("red", "green"), torch.device("cpu"), quiet=True)
    assert found["image_accuracy"]["before"] == found["image_accuracy"]["after"]
    assert found["pixels_kept"] in (1.0, None)
    assert {one["pixels_to_new"] for one in found["classes"].values()} <= {0.0, None}


def test_the_new_run_can_be_used_like_any_other(grown, tmp_path):
    picture = next((grown / "new" / "images").iterdir())
    assert call("predict", grown / "run", picture, "--out", tmp_path / "labels").exit_code == 0
    drawn = call("explain", grown / "run", "val/picture_04", "--out", tmp_path / "why.png")
    assert drawn.exit_code == 0, drawn.output
    recorded = RunResult.read(grown / "run" / "results.json").steps[2]
    assert evaluate_again(grown / "run", quiet=True) == recorded
    assert evaluate_again(grown / "run", 0, quiet=True).iou["red"] is not None  # which the new data annotates


def test_the_old_classes_of_the_new_run_can_be_measured_on_old_data(grown, make_folder_data):
    old = make_folder_data("old", classes=("red", "green"), count=4)
    result = evaluate_again(grown / "run", data=old, quiet=True)
    assert result.measured == {"background", "red", "green"}
    assert result.iou["sheep"] is None
    told = call("evaluate", grown / "run", "--data", old)
    assert told.exit_code == 0, told.output
    assert "so not measured: sheep" in told.output


def test_an_old_step_can_be_asked_for_though_the_new_data_annotates_none_of_its_classes(grown, tmp_path):
    new = shutil.copytree(grown / "new", tmp_path / "new")
    (new / "classes.txt").write_text("goat\nsheep\ncup\n")  # red has another name
    told = call("evaluate", grown / "run", "--step", 1, "--set", f"data.path={new}")
    assert told.exit_code == 0, told.output
    assert "so not measured: red, green" in told.output
    assert "100.0" not in told.output


def as_voc(folder: Path, root: Path) -> Path:
    """The same pictures as a tree of Pascal VOC: goat is called dog there, and red person."""
    lists = root / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    shutil.copytree(folder / "images", root / "JPEGImages")
    (root / "SegmentationClass").mkdir()
    names = sorted(path.stem for path in (folder / "masks").iterdir())
    table = np.array([0, 12, 17, 15], dtype=np.uint8)
    for name in names:
        mask = table[np.array(Image.open(folder / "masks" / f"{name}.png"))]
        Image.fromarray(mask).save(root / "SegmentationClass" / f"{name}.png")
    (lists / "train.txt").write_text("\n".join(names[:6]))
    (lists / "val.txt").write_text("\n".join(names[6:]))
    return root


def as_coco(folder: Path, root: Path) -> Path:
    """The same pictures with run lengths in JSON."""
    names = sorted(path.stem for path in (folder / "masks").iterdir())
    for part, some in (("train", names[:6]), ("val", names[6:])):
        images, things = [], []
        (root / f"{part}2017").mkdir(parents=True)
        for number, name in enumerate(some):
            shutil.copy(folder / "images" / f"{name}.png", root / f"{part}2017")
            mask = np.array(Image.open(folder / "masks" / f"{name}.png"))
            height, width = mask.shape
            images.append({"id": number, "file_name": f"{name}.png", "height": height, "width": width})
            for value in np.unique(mask[mask > 0]).tolist():
                flat = np.concatenate([[0], (mask == value).ravel(order="F"), [0]]).astype(int)
                ends = np.flatnonzero(np.diff(flat)).tolist()
                counts = np.diff([0, *ends, mask.size]).tolist()
                shape = {"size": [height, width], "counts": counts}
                things.append({"image_id": number, "category_id": value, "segmentation": shape, "iscrowd": 1})
        categories = [{"id": i, "name": name} for i, name in enumerate(("goat", "sheep", "red"), start=1)]
        (root / "annotations").mkdir(exist_ok=True)
        text = json.dumps({"images": images, "annotations": things, "categories": categories})
        (root / "annotations" / f"instances_{part}2017.json").write_text(text)
    return root


@pytest.mark.parametrize("kind", ["voc", "coco"])
def test_other_kinds_of_data_teach_a_class_too(grown, tmp_path, kind):
    if kind == "coco":
        pytest.importorskip("pycocotools", reason="needs the extra coco")
    data = {"voc": as_voc, "coco": as_coco}[kind](grown / "new", tmp_path / kind)
    words = ["--data", data, "--format", kind, "--classes", "sheep", "--out", tmp_path / "run", "--quiet"]
    done = call("learn", grown / "base", *words)
    assert done.exit_code == 0, done.output
    assert load_model(tmp_path / "run").classes[1:] == ("red", "green", "sheep")
    report = json.loads((tmp_path / "run" / "learn.json").read_text())
    assert report["validation"]["iou"]["sheep"]["after"] is not None
    assert report["validation"]["not_annotated"] == (["red", "green"] if kind == "voc" else ["green"])


def test_one_more_and_one_more_again(grown, tmp_path):
    before = contents(grown / "run")
    result = ipseg.learn(grown / "run", grown / "new", "goat", tmp_path / "third", val=grown / "new", quiet=True)
    assert result["old"] == ["red", "green", "sheep"]
    assert load_model(tmp_path / "third").classes[1:] == ("red", "green", "sheep", "goat")
    assert contents(grown / "run") == before


def test_of_the_old_runs_data_the_validation_pictures_are_measured(names_only, make_folder_data, tmp_path):
    """Given as --val, for it is the one folder that annotates the old classes; eight of ten were learned from."""
    new = make_folder_data("new", classes=("sheep",), count=6)
    report = learn(names_only, new, ["sheep"], tmp_path / "run", val=tmp_path / "old", quiet=True)
    assert (report["validation"]["pictures"], report["validation"]["own_split"]) == (2, True)
    assert any("on 2 validation pictures" in line for line in growth_lines(report))


def test_pictures_of_another_folder_are_not_called_validation_pictures(grown, make_folder_data, tmp_path):
    other = make_folder_data("other", classes=("red", "green", "sheep"), count=6)
    words = ["learn", grown / "base", "--data", grown / "new", "--classes", "sheep", "--val", other]
    done = call(*words, "--out", tmp_path / "run", "--quiet")
    assert done.exit_code == 0, done.output
    assert "on 6 pictures of --val" in done.output
    assert "validation pictures" not in done.output


def test_what_is_held_out_of_the_new_data_is_measured_and_not_learned(grown, tmp_path):
    change = ["evaluation.held_out=0.4"]
    report = learn(grown / "base", grown / "new", ["sheep"], tmp_path / "run", assignments=change, quiet=True)
    recorded = RunResult.read(tmp_path / "run" / "results.json").steps[2]
    assert evaluate_again(tmp_path / "run", quiet=True) == recorded
    before = json.loads((grown / "run" / "learn.json").read_text())
    assert report["pictures"] < before["pictures"]


def test_a_class_whose_name_has_a_comma_can_be_learned(grown, tmp_path):
    new = shutil.copytree(grown / "new", tmp_path / "new")
    (new / "classes.txt").write_text("goat\nsheep, shorn\nred\n")
    words = ["--data", new, "--classes", "sheep, shorn", "--out", tmp_path / "run", "--quiet"]
    done = call("learn", grown / "base", *words)
    assert done.exit_code == 0, done.output
    assert load_model(tmp_path / "run").classes[1:] == ("red", "green", "sheep, shorn")


# ---- memory -----------------------------------------------------------------------------------------------------


def test_a_memory_of_names_is_copied_while_the_old_data_is_there(names_only, make_folder_data, tmp_path):
    new = make_folder_data("new", classes=("sheep",), count=6)
    learn(names_only, new, ["sheep"], tmp_path / "run", quiet=True)
    assert not ReplayMemory.load(tmp_path / "run" / "step_02" / "memory", NoPictures()).without_copy()
    assert not (names_only / "step_01" / "memory" / "images").exists()


def test_a_memory_of_names_whose_data_is_gone_is_told_and_can_be_left(names_only, make_folder_data, tmp_path):
    shutil.rmtree(tmp_path / "old")
    new = make_folder_data("new", classes=("sheep",), count=6)
    words = ["learn", names_only, "--data", new, "--classes", "sheep", "--out", tmp_path / "run", "--quiet"]
    refused = call(*words)
    assert refused.exit_code == 2
    assert "memory.store: path" in refused.stderr
    assert "--no-memory" in refused.stderr
    assert not (tmp_path / "run").exists()
    done = call(*words, "--no-memory")
    assert done.exit_code == 0, done.output
    assert "no remembered picture" in done.output
    assert json.loads((tmp_path / "run" / "learn.json").read_text())["memory"] is None


def test_a_memory_that_was_deleted_is_told_as_such_and_can_be_left(grown, tmp_path):
    """The data is not to blame: this memory had copies."""
    shutil.copytree(grown / "base", tmp_path / "base")
    for memory in (tmp_path / "base").glob("step_*/memory"):
        shutil.rmtree(memory)
    words = ["learn", tmp_path / "base", "--data", grown / "new", "--classes", "sheep", "--out", tmp_path / "run"]
    refused = call(*words, "--quiet")
    assert refused.exit_code == 2
    said = " ".join(refused.stderr.split())
    assert "has no memory after step 1" in said
    assert "deleted, or left out of a pack" in said
    assert "--no-memory" in said
    assert "memory.store" not in said
    done = call(*words, "--quiet", "--no-memory")
    assert done.exit_code == 0, done.output


def test_a_damaged_memory_is_not_put_down_to_the_data(grown, tmp_path):
    shutil.copytree(grown / "base", tmp_path / "base")
    (tmp_path / "base" / "step_01" / "memory" / "manifest.json").write_text("{")
    with pytest.raises(UserError, match=r"damaged(.|\n)*Put a whole copy of it in its place, or .*--no-memory"):
        learn(tmp_path / "base", grown / "new", ["sheep"], tmp_path / "run")


def test_a_memory_that_has_lost_a_map_can_be_left_too(grown, tmp_path):
    base = shutil.copytree(grown / "base", tmp_path / "base")
    lost = next((base / "step_01" / "memory" / "saliency").iterdir())
    lost.unlink()
    told = fails("learn", base, "--data", grown / "new", "--classes", "sheep", "--out", tmp_path / "run")
    assert lost.name in told
    assert "--no-memory" in told
    assert list(tmp_path.iterdir()) == [base]


def test_the_own_folder_with_one_more_class_annotated_says_so_of_remembered_pictures(names_only, tmp_path):
    """The new class stands in a corner of every picture: none that is remembered may be taught that it is absent."""
    (tmp_path / "old" / "classes.txt").write_text("red\ngreen\nblue\n")
    for path in (tmp_path / "old" / "masks").iterdir():
        mask = np.array(Image.open(path))
        mask[:8, :8] = 3
        Image.fromarray(mask).save(path)
    learn(names_only, tmp_path / "old", ["blue"], tmp_path / "run", quiet=True)
    base, before, after = (
        ReplayMemory.load(path / "memory", NoPictures()).entries
        for path in (names_only / "step_01", tmp_path / "run" / "step_01", tmp_path / "run" / "step_02")
    )
    assert [entry.name for entry in before] == [entry.name for entry in base]
    old = [entry for entry in after if entry.step < 2]
    assert old
    assert all("blue" in entry.classes for entry in old)


# ---- stopped and gone on ----------------------------------------------------------------------------------------


def test_learning_that_was_stopped_goes_on_to_the_same_bits(grown, tmp_path, monkeypatch):
    words = ["learn", grown / "base", "--data", grown / "new", "--classes", "sheep", "--out", tmp_path / "run"]

    class Halting:
        def __enter__(self):
            return lambda: True

        def __exit__(self, *_problem):
            return None

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "_stop_request", Halting)
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

    monkeypatch.setattr(learning, "summarise", fail)
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
        "method.posterior=moments",
        "method.posterior_backbone=still",
        "method.own_decoders=true",
        "method.head=ipseg",
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
    assert len(ReplayMemory.load(tmp_path / "run" / "step_02" / "memory", NoPictures())) == 2


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
