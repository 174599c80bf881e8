"""One more class: what is learned, and what becomes of the old classes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from contents import contents
from PIL import Image

import ipseg
from commands import call, extension
from ipseg.apps import extend as extending
from ipseg.apps import extend_report
from ipseg.apps.evaluate import evaluate_again
from ipseg.apps.extend import extend
from ipseg.apps.extend_report import extension_lines, on_validation
from ipseg.data.dataset import EmptyDataset
from ipseg.data.memory import load_memory
from ipseg.evaluation.results import RunResult
from ipseg.report.compare import percent
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import make_recipe
from ipseg.training.tensors import load_tensors

pytestmark = pytest.mark.slow


def test_the_new_run_knows_the_old_classes_and_the_new_one(extended):
    model = ipseg.load(extended / "run")
    assert model.classes == ("background", "red", "green", "sheep")
    assert model.step == 2
    assert RunResult.read(extended / "run" / "results.json").complete


def test_the_old_steps_are_taken_over_bit_for_bit(extended):
    for step in range(2):
        for name in ("weights.safetensors", "step.json"):
            own, original = (extended / run / f"step_{step:02d}" / name for run in ("run", "base"))
            assert own.read_bytes() == original.read_bytes()
    changed, _ = load_tensors(extended / "run" / "step_02" / "weights.safetensors", "w")
    assert not [name for name in changed if name.startswith(("encoder.", "temporary.0", "temporary.1"))]


def test_classes_are_matched_by_name_and_only_the_named_one_is_taught(extended):
    """In the new data red is value 3 and goat value 1; neither is taught, and sheep (2) is class 3 of the model."""
    manifest = json.loads((extended / "run" / "step_02" / "memory" / "manifest.json").read_text())
    assert manifest["order"] == ["red", "green", "sheep"]
    recent = [exemplar for exemplar in manifest["entries"] if exemplar["step"] == 2]
    assert recent
    assert all("sheep" in exemplar["classes"] for exemplar in recent)
    iou = RunResult.read(extended / "run" / "results.json").steps[2].iou
    assert list(iou) == ["background", "red", "green", "sheep"]
    assert iou["green"] is None  # the new data does not annotate it
    assert iou["red"] is not None  # this one it does


def test_remembered_images_do_not_mix_with_new_ones_of_the_same_name(extended):
    before = load_memory(extended / "base" / "step_01" / "memory", EmptyDataset())
    after = load_memory(extended / "run" / "step_01" / "memory", EmptyDataset())
    assert [f"old/{exemplar.name}" for exemplar in before.exemplars] == [exemplar.name for exemplar in after.exemplars]
    assert not after.without_copy()
    for index in range(len(before)):
        assert np.array_equal(before.sample(index).image, after.sample(index).image)
        assert np.array_equal(before.sample(index).salient, after.sample(index).salient)


def test_only_the_memory_that_is_needed_moves_along(extended):
    assert not (extended / "run" / "step_00" / "memory").exists()


def test_what_became_of_the_old_classes_is_written_and_said(extended):
    report = json.loads((extended / "run" / "extend.json").read_text())
    assert (report["old"], report["new"]) == (["red", "green"], ["sheep"])
    memory, validation = report["memory"], report["validation"]
    assert memory["images"] == 4
    assert set(memory["classes"]) == {"red", "green"}
    assert set(memory["image_accuracy"]) == {"before", "after"}
    assert validation["not_annotated"] == ["green"]
    assert validation["iou"]["green"] == {"before": None, "after": None}
    assert validation["iou"]["sheep"]["after"] is not None
    assert any("not annotated there" in line for line in extension_lines(report))


@pytest.mark.parametrize(("kept", "message"), [(0.5, "50.0 % of their pixels kept;"), (None, "saw none of them;")])
def test_a_share_of_no_pixels_is_said_in_words(extended, kept, message):
    report = json.loads((extended / "run" / "extend.json").read_text())
    report["memory"]["pixels_kept"] = kept
    assert message in extension_lines(report)[1]


def test_where_the_new_class_is_not_annotated_its_iou_is_that_of_the_new_data(extended, make_folder_data, tmp_path):
    report = json.loads((extended / "run" / "extend.json").read_text())
    assert extension_lines(report)[-1].startswith("new classes: mIoU ")
    old = make_folder_data("old", classes=("red", "green"), count=4)
    report = extend(extended / "base", extended / "new", ["sheep"], tmp_path / "run", val=old, quiet=True)
    assert report["validation"]["new"] is None
    recorded = RunResult.read(tmp_path / "run" / "results.json").steps[2].iou["sheep"]
    message = f"new classes: not annotated there; mIoU {percent(recorded)} on the validation images of the new data"
    assert extension_lines(report)[-1] == message


def test_the_mean_of_old_classes_is_over_what_is_measured():
    found = on_validation({"a": 0.5, "b": None}, {"a": 0.25, "b": None, "c": 0.75}, ["a", "b"], ["c"])
    assert found["old"] == {"before": 0.5, "after": 0.25}
    assert found["new"] == 0.75


def test_a_model_that_has_not_changed_has_kept_everything(extended):
    """The measure on remembered images is right at its end points."""
    import torch

    from ipseg.apps.extend_report import on_memory

    method = ipseg.load(extended / "base", device="cpu").method
    memory = load_memory(extended / "run" / "step_01" / "memory", EmptyDataset())
    found = on_memory(method, method, memory, ("red", "green"), torch.device("cpu"))
    assert found["image_accuracy"]["before"] == found["image_accuracy"]["after"]
    assert found["pixels_kept"] in (1.0, None)
    assert {one["pixels_to_new"] for one in found["classes"].values()} <= {0.0, None}


def test_the_new_run_can_be_used_like_any_other(extended, tmp_path):
    image = next((extended / "new" / "images").iterdir())
    assert call("predict", extended / "run", image, "--out", tmp_path / "labels").exit_code == 0
    drawn = call("explain", extended / "run", "val/image_04", "--out", tmp_path / "why.png")
    assert drawn.exit_code == 0, drawn.output
    recorded = RunResult.read(extended / "run" / "results.json").steps[2]
    assert evaluate_again(extended / "run", quiet=True) == recorded
    assert evaluate_again(extended / "run", 0, quiet=True).iou["red"] is not None  # which the new data annotates


def test_the_old_classes_of_the_new_run_can_be_measured_on_old_data(extended, make_folder_data):
    old = make_folder_data("old", classes=("red", "green"), count=4)
    result = evaluate_again(extended / "run", data=old, quiet=True)
    assert result.measured == {"background", "red", "green"}
    assert result.iou["sheep"] is None
    error = call("evaluate", extended / "run", "--data", old)
    assert error.exit_code == 0, error.output
    assert "so not measured: sheep" in error.output


def test_an_old_step_none_of_whose_classes_the_new_data_annotates_is_not_measured(extended, tmp_path):
    new = shutil.copytree(extended / "new", tmp_path / "new")
    (new / "classes.txt").write_text("goat\nsheep\ncup\n")  # red has another name
    error = call("evaluate", extended / "run", "--step", 1, "--set", f"data.path={new}")
    assert error.exit_code == 2, error.output
    assert "annotates none of the classes that step 1 knows (red, green)" in error.stderr
    assert "--data FOLDER" in error.stderr
    assert not error.stdout


def as_voc(folder: Path, root: Path) -> Path:
    """The same images as a tree of Pascal VOC: goat is called dog there, and red person."""
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
    """The same images with run lengths in JSON."""
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
def test_other_kinds_of_data_teach_a_class_too(extended, tmp_path, kind):
    if kind == "coco":
        pytest.importorskip("pycocotools", reason="needs the extra coco")
    data = {"voc": as_voc, "coco": as_coco}[kind](extended / "new", tmp_path / kind)
    words = ["--data", data, "--format", kind, "--classes", "sheep", "--out", tmp_path / "run", "--quiet"]
    done = call("extend", extended / "base", *words)
    assert done.exit_code == 0, done.output
    assert ipseg.load(tmp_path / "run").classes[1:] == ("red", "green", "sheep")
    report = json.loads((tmp_path / "run" / "extend.json").read_text())
    assert report["validation"]["iou"]["sheep"]["after"] is not None
    assert report["validation"]["not_annotated"] == (["red", "green"] if kind == "voc" else ["green"])


def test_one_more_and_one_more_again(extended, tmp_path):
    before = contents(extended / "run")
    result = ipseg.extend(
        extended / "run", extended / "new", "goat", tmp_path / "third", val=extended / "new", quiet=True
    )
    assert result["old"] == ["red", "green", "sheep"]
    assert ipseg.load(tmp_path / "third").classes[1:] == ("red", "green", "sheep", "goat")
    assert contents(extended / "run") == before


def test_of_the_old_runs_data_the_validation_images_are_measured(names_only, make_folder_data, tmp_path):
    """Given as --val, for it is the one folder that annotates the old classes; eight of ten were learned from."""
    new = make_folder_data("new", classes=("sheep",), count=6)
    report = extend(names_only, new, ["sheep"], tmp_path / "run", val=tmp_path / "old", quiet=True)
    assert (report["validation"]["images"], report["validation"]["own_split"]) == (2, True)
    assert any("on 2 validation images" in line for line in extension_lines(report))


def test_images_of_another_folder_are_not_called_validation_images(extended, make_folder_data, tmp_path):
    other = make_folder_data("other", classes=("red", "green", "sheep"), count=6)
    words = ["extend", extended / "base", "--data", extended / "new", "--classes", "sheep", "--val", other]
    done = call(*words, "--out", tmp_path / "run", "--quiet")
    assert done.exit_code == 0, done.output
    assert "on 6 images of --val" in done.output
    assert "validation images" not in done.output


def test_what_is_held_out_of_the_new_data_is_measured_and_not_learned(extended, tmp_path):
    change = ["evaluation.held_out=0.4"]
    report = extend(extended / "base", extended / "new", ["sheep"], tmp_path / "run", assignments=change, quiet=True)
    recorded = RunResult.read(tmp_path / "run" / "results.json").steps[2]
    assert evaluate_again(tmp_path / "run", quiet=True) == recorded
    before = json.loads((extended / "run" / "extend.json").read_text())
    assert report["images"] < before["images"]


def test_a_class_whose_name_has_a_comma_can_be_learned(extended, tmp_path):
    new = shutil.copytree(extended / "new", tmp_path / "new")
    (new / "classes.txt").write_text("goat\nsheep, shorn\nred\n")
    words = ["--data", new, "--classes", "sheep, shorn", "--out", tmp_path / "run", "--quiet"]
    done = call("extend", extended / "base", *words)
    assert done.exit_code == 0, done.output
    assert ipseg.load(tmp_path / "run").classes[1:] == ("red", "green", "sheep, shorn")


# ---- long enough ----------------------------------------------------------------------------------------------------


def later_epochs(run: Path) -> float | None:
    return make_recipe(RunFolder.open(run).settings()).training.later_epochs


def test_few_images_are_learned_for_long_enough_and_that_is_said(extended, tmp_path, monkeypatch):
    """Three of the new images hold sheep: in batches of four the run's one epoch is a single iteration."""
    monkeypatch.setattr(extending, "MIN_ITERATIONS", 6)
    words = extension(extended / "base", extended / "new", "sheep", tmp_path / "run", "--quiet")
    done = call(*words)
    assert done.exit_code == 0, done.output
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    last = [line for line in log if line["event"] == "train"][-1]
    assert last["iteration"] == last["of"] >= 6
    assert f"are too few. training.later_epochs is {later_epochs(tmp_path / 'run'):g} now" in done.stderr
    shutil.rmtree(tmp_path / "run" / "step_02")
    monkeypatch.setattr(extending, "MIN_ITERATIONS", 9)  # of another release, say: it goes on as it began
    again = call(*words, "--resume")
    assert again.exit_code == 0, again.output
    assert "too few" not in again.stderr


def test_epochs_that_were_chosen_stay_and_are_warned_of(extended, tmp_path, monkeypatch):
    monkeypatch.setattr(extending, "MIN_ITERATIONS", 200)
    words = extension(extended / "base", extended / "new", "sheep", tmp_path / "run")
    done = call(*words, "--quiet", "--set", "training.later_epochs=1")
    assert done.exit_code == 0, done.output
    assert "for 200 set training.later_epochs=" in done.stderr
    assert later_epochs(tmp_path / "run") == 1


def test_a_class_that_no_validation_image_shows_is_not_called_learned(extended, make_folder_data, tmp_path):
    data = make_folder_data("new", classes=("sheep",), count=6)
    names = sorted(path.stem for path in (data / "images").iterdir())
    for split, part in {"train": names[:4], "val": names[4:]}.items():
        (data / f"{split}.txt").write_text("\n".join(part))
    for name in names[4:]:
        Image.new("L", (64, 48)).save(data / "masks" / f"{name}.png")
    words = extension(extended / "base", data, "sheep", tmp_path / "run", "--quiet")
    done = call(*words)
    assert done.exit_code == 0, done.output
    assert "trained and not measured: sheep; no validation image shows it" in done.stdout
    assert "measure sheep on images that show it: ipseg evaluate" in done.stdout
    assert "learned: sheep" not in done.stdout
    assert "share it" not in done.stdout


def test_a_class_that_was_not_learned_ends_with_exit_code_1_and_nothing_is_handed_on(extended, tmp_path, monkeypatch):
    monkeypatch.setattr(extend_report, "MIN_IOU", 1.01)
    done = call(*extension(extended / "base", extended / "new", "sheep", tmp_path / "run", "--quiet"))
    assert done.exit_code == 1, done.output
    assert "not learned: sheep, with an IoU below" in done.stderr
    assert "learned: sheep" not in done.stdout
    assert "share it" not in done.output
    assert json.loads((tmp_path / "run" / "extend.json").read_text())["not_learned"] == ["sheep"]
