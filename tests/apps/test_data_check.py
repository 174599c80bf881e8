"""A data set that is looked at before anything is learned: what is in it, and all that is wrong with it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import commands
from ipseg.apps.data_check import MAX_LISTED, check
from ipseg.data.ade import AdeConfig
from ipseg.data.dataset import PROBLEM_KINDS
from ipseg.data.folder import FolderConfig
from ipseg.data.voc import VocConfig
from ipseg.errors import UserError

SIZE = (6, 8)
IMAGES = {"a": (1,), "b": (1, 2), "c": (2, 3), "d": (3,), "é f": (0,)}
"""Names of training images and the values in their masks: 1 aeroplane, 2 bicycle, 3 bird."""


def call(*words: object):
    return commands.call("data", "check", *words)


def save(path: Path, *values: int, size: tuple[int, int] = SIZE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.resize(np.array(values, dtype=np.uint8), size)).save(path)
    return path


@pytest.fixture
def voc(tmp_path) -> Path:
    """A whole tree: five training images and one more for validation."""
    root = tmp_path / "voc"
    lists = root / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("\n".join(IMAGES), encoding="utf-8")
    (lists / "val.txt").write_text("v")
    for name, values in (IMAGES | {"v": (20, 255)}).items():
        save(root / "JPEGImages" / f"{name}.jpg", 90)
        save(root / "SegmentationClassAug" / f"{name}.png", *values)
        save(root / "saliency_map" / f"{name}.png", 0, 255)
    return root


# ---- what is in it ----------------------------------------------------------------------------------------------


def test_a_whole_tree_is_counted(voc):
    found = check(voc, "voc", "voc/2-1", "disjoint")
    assert (found["images"], found["masks"], found["saliency_maps"]) == (6, 6, 6)
    assert found["splits"] == {"train": 5, "val": 1}
    assert found["classes_per_image"] == {"train": {0: 1, 1: 2, 2: 2}, "val": {1: 1}}
    assert {name for name, count in found["images_per_class"]["train"].items() if count == 2} == {
        "aeroplane",
        "bicycle",
        "bird",
    }
    assert found["images_per_class"]["val"]["tvmonitor"] == 1
    assert found["images_per_step"] == [2, 2] + [0] * 17  # the third image holds a later class
    assert check(voc, "voc", "voc/2-1")["images_per_step"] == [3, 2] + [0] * 17
    assert not any(found[kind] for kind in ("missing", "unreadable", "size_mismatches", "unknown_values"))


def test_without_a_scenario_nothing_is_said_of_steps(voc):
    found = check(voc, "voc")
    assert (found["scenario"], found["setting"], found["images_per_step"]) == (None, None, None)


@pytest.mark.parametrize("gone", ["JPEGImages", "saliency_map", "ImageSets"])
def test_masks_alone_are_enough(voc, gone):
    (voc / gone).rename(voc.parent / gone)
    found = check(voc, "voc", "voc/15-5")
    assert found["masks"] == 6
    assert found["images_per_step"] == ([4, 1] if gone == "ImageSets" else [4, 0])
    assert not found["missing"]
    assert any(note.startswith(("no images", "no saliency", "the split val")) for note in found["notes"])


def test_a_validation_list_can_wait(voc):
    (voc / "ImageSets" / "Segmentation" / "val.txt").unlink()
    found = check(voc, "voc", "voc/15-5")
    assert found["images_per_step"] == [4, 0]
    assert "the split val is empty" in found["notes"]
    assert "no training image for step 1" in found["notes"]


def test_ade_has_its_other_things_counted_or_ignored(tmp_path):
    save(tmp_path / "annotations" / "training" / "a.png", 0, 150)
    save(tmp_path / "annotations" / "training" / "b.png", 0)
    for other in ("background", "ignore"):
        found = check(tmp_path, "ade", "ade/100-50", changes=[f"data.other={other}"])
        assert found["images_per_step"] == [0, 1]
        assert found["classes_per_image"]["train"] == {0: 1, 1: 1}


def test_a_folder_of_ones_own(make_folder_data):
    found = check(make_folder_data(count=10), "folder", "folder/1-1")
    assert found["splits"] == {"train": 8, "val": 2}
    assert len(found["images_per_step"]) == 3
    assert found["notes"] == []


def test_annotations_of_coco_alone_are_enough(tmp_path):
    pytest.importorskip("pycocotools")
    square = [[1, 1, 5, 1, 5, 5, 1, 5]]
    written = {
        "categories": [{"id": 3, "name": "cup"}, {"id": 9, "name": "cat"}],
        "images": [{"id": n, "file_name": f"{n}.jpg", "height": 6, "width": 8} for n in range(3)],
        "annotations": [{"id": 1, "image_id": 2, "category_id": 9, "iscrowd": 0, "segmentation": square}],
    }
    for part in ("train", "val"):
        path = tmp_path / "annotations" / f"instances_{part}2017.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(written))
    for _ in range(2):  # the second time from the index, although these masks have no files
        found = check(tmp_path, "coco", "coco/1-1")
        assert found["images_per_step"] == [0, 1]
        assert found["classes_per_image"]["val"] == {0: 2, 1: 1}
        assert "no images: only masks were read" in found["notes"]


# ---- what is wrong ----------------------------------------------------------------------------------------------


def test_everything_that_is_wrong_is_found_at_once(voc):
    masks, images = voc / "SegmentationClassAug", voc / "JPEGImages"
    (masks / "a.png").write_bytes((masks / "a.png").read_bytes()[:50])
    images.joinpath("b.jpg").write_text("this is no image")
    save(masks / "c.png", 1, 77)
    save(images / "d.jpg", 90, size=(12, 8))
    (voc / "saliency_map" / "é f.png").unlink()
    (voc / "saliency_map" / "v.png").unlink()  # nothing is learned from a validation image
    found = check(voc, "voc", "voc/15-5")
    assert [Path(text.split(" is not")[0]).name for text in found["unreadable"]] == ["a.png", "b.jpg"]
    (unknown,) = found["unknown_values"]
    assert "c.png holds the values [77]" in unknown
    assert found["size_mismatches"] == ["d: its image 8x12, its mask 8x6, its saliency map 8x6; they must be equal."]
    (missing,) = found["missing"]
    assert "é f is missing" in missing
    assert found["images_per_step"] == [2, 0]  # of the masks that could be read
    assert (found["images"], found["masks"], found["saliency_maps"]) == (6, 6, 4)


def test_an_image_cut_off_at_the_end_is_unreadable(voc):
    path = voc / "JPEGImages" / "a.jpg"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (*SIZE, 3), dtype=np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:-40])
    (text,) = check(voc, "voc")["unreadable"]
    assert "a.jpg" in text


@pytest.mark.parametrize(("folder", "suffix"), [("JPEGImages", "jpg"), ("SegmentationClassAug", "png")])
def test_a_name_without_its_file_is_missing(voc, folder, suffix):
    (voc / folder / f"c.{suffix}").unlink()
    (text,) = check(voc, "voc")["missing"]
    assert f"{folder}/c is missing" in text


def test_a_mask_that_was_mended_is_seen_as_mended(voc):
    mask = voc / "SegmentationClassAug" / "a.png"
    mask.write_text("this is no mask")
    assert check(voc, "voc")["unreadable"]
    save(mask, 5)
    found = check(voc, "voc")
    assert not found["unreadable"]
    assert found["images_per_class"]["train"]["bottle"] == 1


def test_a_wrong_tree_is_answered_with_the_right_one(voc, tmp_path):
    with pytest.raises(UserError, match=r"(?s)has no SegmentationClassAug/.*Expected:"):
        check(tmp_path / "voc" / "ImageSets", "voc")
    with pytest.raises(UserError, match=r"(?s)has no annotations/training/.*Expected:"):
        check(voc, "ade")
    with pytest.raises(UserError, match='"ade/100-10", but the data set is voc'):
        check(voc, "voc", "ade/100-10")


@pytest.mark.parametrize("kind", ["voc", "ade", "coco", "folder"])
def test_a_folder_that_is_not_there_is_told_with_the_place_it_was_looked_for(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=rf"data/mine is not .*: it does not exist \(looked for in {tmp_path}, where"):
        check(Path("data/mine"), kind)
    (tmp_path / "data").touch()
    with pytest.raises(UserError, match=rf"{tmp_path}/data is not a data folder: it is a file\."):
        check(tmp_path / "data", kind)


def test_an_image_of_both_splits_is_a_problem_and_nothing_is_learned_from_it(make_folder_data):
    root = make_folder_data()
    (root / "train.txt").write_text("image_00\nimage_01\nimage_02\n")
    (root / "val.txt").write_text("image_01\nimage_03\n")
    (text,) = check(root, "folder")["in_both_splits"]
    assert text.startswith("image_01 is in both splits, train and val")
    assert call(root, "--format", "folder").exit_code == 2
    with pytest.raises(UserError, match="image_01 is in both splits, train and val"):
        FolderConfig(path=str(root)).build()


def test_a_validation_image_among_vocs_training_images_is_found_too(voc):
    (voc / "ImageSets" / "Segmentation" / "val.txt").write_text("v\na\n")
    assert len(check(voc, "voc")["in_both_splits"]) == 1
    with pytest.raises(UserError, match="a is in both splits"):
        VocConfig(path=str(voc)).build()


def test_equal_names_in_the_two_folders_of_ade_are_two_images(tmp_path):
    for part in ("training", "validation"):
        save(tmp_path / "annotations" / part / "1.png", 0, 150)
        save(tmp_path / "images" / part / "1.jpg", 90)
    assert not check(tmp_path, "ade")["in_both_splits"]
    assert AdeConfig(path=str(tmp_path)).build().train.names == ["1"]


# ---- what is no mistake -----------------------------------------------------------------------------------------


def test_images_without_a_mask_are_counted_and_named(make_folder_data):
    root = make_folder_data(count=10)
    for name in ("more", "other/a", "other/b", "other/c"):
        save(root / "images" / f"{name}.jpg", 90)
    note = "images without a mask are left out: 4 (images/more.jpg, images/other/a.jpg, images/other/b.jpg and 1 more)"
    assert check(root, "folder")["notes"] == [note]
    printed = call(root, "--format", "folder")
    assert printed.exit_code == 0
    assert "images without a mask are left out: 4" in printed.stdout


def test_an_image_that_a_list_names_without_its_mask_is_missed_not_left_out(make_folder_data):
    root = make_folder_data(count=10)
    (root / "train.txt").write_text("image_00\nimage_01\nimage_02\n")
    (root / "val.txt").write_text("image_03\nimage_04\nimage_05\n")
    (root / "masks" / "image_01.png").unlink()
    found = check(root, "folder")
    assert len(found["missing"]) == 1
    assert found["notes"] == []


def test_images_of_voc_for_other_tasks_are_no_matter(voc):
    save(voc / "JPEGImages" / "2012_000001.jpg", 90)
    assert not any("without a mask" in note for note in check(voc, "voc")["notes"])


def test_classes_without_an_image_are_noted(make_folder_data):
    root = make_folder_data(count=10)
    with (root / "classes.txt").open("a") as file:
        file.write("unicorn\n")
    assert check(root, "folder", "folder/3-1")["notes"] == [
        "no image of the split train holds unicorn",
        "no image of the split val holds unicorn",
        "no training image for step 1",
    ]


def test_classes_that_a_scenario_leaves_out_are_not_missed(voc):
    notes = check(voc, "voc", "voc_animals/2-1")["notes"]
    assert "no image of the split train holds cat, cow, dog and 3 more" in notes


# ---- the command ------------------------------------------------------------------------------------------------


def test_the_command_ends_with_0_if_all_is_well(voc):
    result = call(voc, "--format", "voc", "--scenario", "voc/15-5")
    assert result.exit_code == 0, result.output
    assert "Nothing is wrong." in result.stdout
    assert "voc/15-5 overlap" in result.stdout
    assert result.stderr == ""


def test_its_json_has_the_keys_that_programs_read(voc):
    result = call(voc, "--format", "voc", "--scenario", "voc/15-5", "--setting", "disjoint", "--json")
    report = json.loads(result.stdout)
    assert set(report) == {
        *("path", "format", "images", "masks", "saliency_maps", "splits", "classes_per_image", "images_per_class"),
        *("missing", "unreadable", "size_mismatches", "unknown_values", "in_both_splits", "notes"),
        *("scenario", "setting", "classes_per_step", "images_per_step"),
    }
    assert (report["scenario"], report["setting"], report["images_per_step"]) == ("voc/15-5", "disjoint", [4, 0])


def test_problems_are_listed_up_to_some_and_counted_and_end_with_2(voc):
    names = [f"more {number:02d}" for number in range(MAX_LISTED + 5)]
    (voc / "ImageSets" / "Segmentation" / "train.txt").write_text("\n".join(names))
    result = call(voc, "--format", "voc")
    assert result.exit_code == 2
    count = 3 * len(names)  # image, mask and map of each
    assert f"Missing: {count}" in result.stdout
    assert f"... and {count - MAX_LISTED} more" in result.stdout
    assert result.stderr == f"ipseg: {count} problems in {voc}.\n"
    whole = call(voc, "--format", "voc", "--json")
    assert whole.exit_code == 2
    assert len(json.loads(whole.stdout)["missing"]) == count


def test_a_wrong_tree_ends_with_2(tmp_path):
    result = call(tmp_path, "--format", "folder", "--json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("ipseg: ")
    assert call(tmp_path, "--format", "vocc").exit_code == 2
    assert call(tmp_path).exit_code == 2


def test_a_class_in_brackets_is_shown_as_it_is_written(make_folder_data):
    printed = call(make_folder_data(classes=("[red]", "[/b] cow")), "--format", "folder", "--scenario", "folder/1-1")
    assert printed.exit_code == 0, printed.output
    assert printed.stdout.count("[red]") == printed.stdout.count("[/b] cow") == 2  # among the classes, and in a step


def test_a_setting_that_is_not_the_datas_is_refused(voc):
    refused = call(voc, "--format", "voc", "--set", "training.epochs=1")
    assert refused.exit_code == 2
    assert "settings here are data.*" in refused.stderr


@pytest.mark.parametrize("change", ["data.path=elsewhere", "data.name=folder"])
def test_what_the_command_itself_says_is_not_set_again(voc, change):
    refused = call(voc, "--format", "voc", "--set", change)
    assert refused.exit_code == 2
    assert "the folder is the command's argument, and its kind --format" in refused.stderr


def test_nothing_is_written_into_the_data(voc):
    before = {path: path.stat().st_mtime_ns for path in voc.rglob("*")}
    assert call(voc, "--format", "voc").exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in voc.rglob("*")} == before


# ---- real photographs -------------------------------------------------------------------------------------------

SHARED = Path(os.environ.get("IPSEG_SHARED", Path(__file__).resolve().parents[2].parent / "shared"))
ANIMALS = SHARED / "data" / "voc_animals"


@pytest.mark.slow
@pytest.mark.skipif(not ANIMALS.is_dir(), reason=f"{ANIMALS} is missing; IPSEG_SHARED names the folder that holds it")
@pytest.mark.parametrize(
    ("setting", "images"), [("overlap", [1262, 1177, 444, 588, 299]), ("disjoint", [1129, 937, 229, 537, 299])]
)
def test_voc_animals_is_whole_and_has_the_known_steps(setting, images):
    found = check(ANIMALS, "voc", "voc_animals/2-1", setting)
    assert found["images_per_step"] == images
    assert not any(found[kind] for kind in PROBLEM_KINDS)
