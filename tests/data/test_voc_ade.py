"""The trees of Pascal VOC and ADE20K: what is read, what is chosen, what is said when something is not there."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from ipseg.data.ade import AdeConfig
from ipseg.data.registry import data_config
from ipseg.data.voc import VocConfig
from ipseg.errors import UserError
from ipseg.scenario import ADE, VOC


def save_mask(path, values) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    mask = Image.fromarray(np.array(values, dtype=np.uint8))
    mask.putpalette([7] * 768)  # its colors mean nothing
    mask.save(path)


def save_image(path, size=(3, 2)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size).save(path)


@pytest.fixture
def voc(tmp_path):
    """Three images; only the augmented masks and list have the third."""
    root = tmp_path / "VOC2012"
    for index, name in enumerate(("2007_1", "2008_2", "2011_3")):
        save_image(root / "JPEGImages" / f"{name}.jpg")
        save_mask(root / "SegmentationClassAug" / f"{name}.png", [[0, 15, 255], [0, index + 1, 0]])
        if index < 2:
            save_mask(root / "SegmentationClass" / f"{name}.png", [[0, 15, 255], [0, 0, 0]])
    lists = root / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("2007_1\n")
    (lists / "train_aug.txt").write_text("2007_1\n2011_3\n")
    (lists / "val.txt").write_text("2008_2\n")
    return root


def test_the_augmented_masks_and_list_of_voc_are_taken_where_they_are(voc):
    splits = data_config({"name": "voc", "path": str(voc)}).build()
    assert splits.classes == VOC
    assert list(splits.train.names) == ["2007_1", "2011_3"]
    assert list(splits.val.names) == ["2008_2"]
    assert splits.train.class_presence() == [{15, 1}, {15, 3}]
    assert splits.train.mask(0).tolist() == [[0, 15, 255], [0, 1, 0]]
    assert splits.train.image(0).shape == (2, 3, 3)


def test_without_the_augmented_masks_vocs_own_go_with_its_own_list(voc):
    (voc / "SegmentationClassAug").rename(voc / "elsewhere")
    splits = VocConfig(path=str(voc)).build()
    assert list(splits.train.names) == ["2007_1"]
    assert splits.train.class_presence() == [{15}]


def test_masks_and_lists_of_voc_can_be_chosen(voc):
    splits = VocConfig(path=str(voc), masks="SegmentationClassAug", train="val", val="train").build()
    assert list(splits.train.names) == ["2008_2"]
    assert list(VocConfig(path=str(voc), masks="SegmentationClass").build().train.names) == ["2007_1"]


@pytest.mark.parametrize("masks", ["SegmentationClassAug/", "./SegmentationClassAug"])
def test_the_augmented_list_goes_with_the_augmented_masks_however_their_folder_is_written(voc, masks):
    assert list(VocConfig(path=str(voc), masks=masks).build().train.names) == ["2007_1", "2011_3"]
    assert list(VocConfig(path=str(voc), masks=str(voc / masks)).build().train.names) == ["2007_1", "2011_3"]


def test_voc_takes_its_saliency_maps_by_name(voc):
    for name in ("2007_1", "2011_3"):
        save_mask(voc / "saliency_map" / f"{name}.png", [[0, 1, 1], [0, 255, 0]])
    splits = VocConfig(path=str(voc)).build()
    assert splits.train.saliency(1).tolist() == [[False, True, True], [False, True, False]]


@pytest.mark.parametrize("missing", ["JPEGImages", "SegmentationClass*", "ImageSets", "ImageSets/Segmentation/val.txt"])
def test_a_voc_tree_with_something_missing_is_answered_with_the_whole(voc, missing):
    for path in list(voc.glob(missing)):
        path.rename(voc.parent / path.name)
    with pytest.raises(
        UserError, match=r"(?s)(has no|missing|no images).*Expected:.*JPEGImages/.*ClassAug/.*train_aug\.txt"
    ):
        VocConfig(path=str(voc)).build()


def test_the_folder_above_is_answered_with_the_right_one(voc):
    with pytest.raises(UserError, match=r"Did you mean .*VOC2012\?"):
        VocConfig(path=str(voc.parent)).build()
    (voc.parent / "VOCdevkit").mkdir()
    voc.rename(voc.parent / "VOCdevkit" / "VOC2012")
    with pytest.raises(UserError, match=r"Did you mean .*VOCdevkit/VOC2012\?"):
        VocConfig(path=str(voc.parent)).build()


def test_an_empty_list_or_folder_of_voc_is_named(voc):
    (voc / "ImageSets" / "Segmentation" / "val.txt").write_text("\n")
    with pytest.raises(UserError, match=r"(?s)val\.txt names no images\. Expected"):
        VocConfig(path=str(voc)).build()
    for file in (voc / "SegmentationClassAug").iterdir():
        file.unlink()
    (voc / "ImageSets").rename(voc / "elsewhere")
    with pytest.raises(UserError, match=r"SegmentationClassAug names no images"):
        VocConfig(path=str(voc)).open()


def test_masks_alone_tell_which_classes_are_where(voc):
    (voc / "JPEGImages").rename(voc / "elsewhere")
    splits = VocConfig(path=str(voc)).open()
    assert splits.train.class_presence() == [{15, 1}, {15, 3}]
    with pytest.raises(UserError, match="2007_1 is missing"):
        splits.train.image(0)


def test_a_value_that_voc_does_not_have_is_refused(voc):
    save_mask(voc / "SegmentationClassAug" / "2007_1.png", [[0, 21, 255]])
    with pytest.raises(UserError, match=r"2007_1\.png holds the values \[21\].*0 to 20 and 255"):
        VocConfig(path=str(voc)).build().train.class_presence()


@pytest.fixture
def ade(tmp_path):
    root = tmp_path / "ADEChallengeData2016"
    for part, name, values in (
        ("training", "ADE_train_1", [[0, 1, 150]]),
        ("training", "ADE_train_2", [[3, 3, 3]]),
        ("validation", "ADE_val_1", [[0, 0, 13]]),
    ):
        save_image(root / "images" / part / f"{name}.jpg", (3, 1))
        save_mask(root / "annotations" / part / f"{name}.png", values)
    return root


def test_ade_is_read_with_other_things_as_background(ade):
    splits = data_config({"name": "ade", "path": str(ade)}).build()
    assert splits.classes == ADE
    assert list(splits.train.names) == ["ADE_train_1", "ADE_train_2"]
    assert splits.train.class_presence() == [{1, 150}, {3}]
    assert splits.val.mask(0).tolist() == [[0, 0, 13]]


def test_other_things_of_ade_are_ignored_on_request(ade):
    splits = AdeConfig(path=str(ade), other="ignore").build()
    assert splits.val.mask(0).tolist() == [[255, 255, 13]]
    assert splits.train.class_presence() == [{1, 150}, {3}]
    with pytest.raises(UserError, match=r"data\.other"):
        data_config({"name": "ade", "path": str(ade), "other": "ignored"})


@pytest.mark.parametrize("missing", ["images/training", "annotations/validation", "annotations"])
def test_an_ade_tree_with_something_missing_is_answered_with_the_whole(ade, missing):
    (ade / missing).rename(ade.parent / "elsewhere")
    with pytest.raises(UserError, match=r"(?s)(has no|missing|no images).*Expected:.*images/training/"):
        AdeConfig(path=str(ade)).build()


def test_an_ade_folder_without_masks_is_named(ade):
    (ade / "annotations" / "validation" / "ADE_val_1.png").unlink()
    with pytest.raises(UserError, match=r"annotations/validation names no images"):
        AdeConfig(path=str(ade)).build()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_maps_of_ade_lie_in_a_folder_for_each_part(ade, tmp_path, elsewhere):
    maps = tmp_path / "maps" if elsewhere else ade / "saliency_map"
    for name in ("ADE_train_1", "ADE_train_2"):
        save_mask(maps / "training" / f"{name}.png", [[0, 1, 255]])
    splits = AdeConfig(path=str(ade), saliency=str(maps) if elsewhere else "auto").build()
    assert splits.train.saliency_source.files.path("ADE_train_1") == maps / "training" / "ADE_train_1.png"
    assert splits.train.saliency(1).tolist() == [[False, True, True]]
