"""Anybody with Pascal VOC can make the data that the photographs' results were measured on."""

from __future__ import annotations

import numpy as np
import pytest
from make_animals import main
from PIL import Image

from ipseg.data.voc import VocConfig
from ipseg.errors import WRONG

CAT, PERSON = 8, 15


@pytest.fixture
def voc(tmp_path):
    root = tmp_path / "VOC2012"
    for folder in ("JPEGImages", "SegmentationClassAug", "ImageSets/Segmentation"):
        (root / folder).mkdir(parents=True)
    for name, value in (("one", CAT), ("two", PERSON), ("three", CAT)):
        Image.new("RGB", (500, 375)).save(root / "JPEGImages" / f"{name}.jpg")
        mask = np.zeros((375, 500), np.uint8)
        mask[100:200, 100:300] = value
        Image.fromarray(mask).save(root / "SegmentationClassAug" / f"{name}.png")
    (root / "ImageSets" / "Segmentation" / "train_aug.txt").write_text("one\ntwo\n")
    (root / "ImageSets" / "Segmentation" / "val.txt").write_text("three\n")
    return root


def test_pictures_with_an_animal_are_taken_and_shrunk(voc, tmp_path, capsys):
    assert main([str(voc), "--out", str(tmp_path / "animals")]) == 0
    assert "1 pictures in train, 1 pictures in val" in capsys.readouterr().out
    made = VocConfig(path=str(tmp_path / "animals"), saliency="none").build()
    assert (list(made.train.names), list(made.val.names)) == (["one"], ["three"])
    assert made.train.image(0).shape == (240, 320, 3)
    assert set(np.unique(made.train.mask(0)).tolist()) == {0, CAT}


def test_maps_of_what_stands_out_come_along_and_any_side_will_do(voc, tmp_path):
    (voc / "saliency_map").mkdir()
    salient = np.zeros((375, 500), bool)
    salient[:, :250] = True
    for name in ("one", "two", "three"):
        Image.fromarray(salient).save(voc / "saliency_map" / f"{name}.png")
    assert main([str(voc), "--out", str(tmp_path / "animals"), "--side", "160"]) == 0
    made = VocConfig(path=str(tmp_path / "animals"), saliency="given").build()
    assert made.train.image(0).shape == (120, 160, 3)
    assert (made.train.saliency(0) == (np.arange(160) < 80)).all()


def test_a_side_of_nothing_is_refused(voc, tmp_path, capsys):
    assert main([str(voc), "--out", str(tmp_path / "animals"), "--side", "0"]) == WRONG
    assert "--side" in capsys.readouterr().err


def test_what_is_there_is_never_overwritten(voc, tmp_path, capsys):
    assert main([str(voc), "--out", str(tmp_path)]) == WRONG
    assert "is there already" in capsys.readouterr().err
