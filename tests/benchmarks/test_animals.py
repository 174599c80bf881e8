"""benchmarks/animals: the data of the results on photographs, and what decides them."""

from __future__ import annotations

import json

import numpy as np
import oracles
import pytest
import torch
from make_animals import main
from PIL import Image

from ipseg.data.voc import VocConfig
from ipseg.errors import WRONG

CAT, PERSON = 8, 15


@pytest.fixture
def voc(tmp_path):
    """Three images: a cat for training, a person, a cat for validation; all left halves are salient."""
    root = tmp_path / "VOC2012"
    for folder in ("JPEGImages", "SegmentationClassAug", "saliency_map", "ImageSets/Segmentation"):
        (root / folder).mkdir(parents=True)
    for name, value in (("one", CAT), ("two", PERSON), ("three", CAT)):
        Image.new("RGB", (500, 375)).save(root / "JPEGImages" / f"{name}.jpg")
        mask = np.zeros((375, 500), np.uint8)
        mask[:, :250] = value
        Image.fromarray(mask).save(root / "SegmentationClassAug" / f"{name}.png")
        Image.fromarray(mask > 0).save(root / "saliency_map" / f"{name}.png")
    for file, names in (("train_aug", "one\ntwo\n"), ("val", "three\n")):
        (root / "ImageSets" / "Segmentation" / f"{file}.txt").write_text(names)
    return root


def test_images_with_an_animal_are_taken_and_shrunk_with_masks_and_maps(voc, tmp_path):
    assert main([str(voc), "--out", str(tmp_path / "animals"), "--side", "160"]) == 0
    made = VocConfig(path=str(tmp_path / "animals"), saliency="given").build()
    assert (list(made.train.names), list(made.val.names)) == (["one"], ["three"])
    assert made.train.image(0).shape == (120, 160, 3)
    assert set(np.unique(made.train.mask(0)).tolist()) == {0, CAT}
    assert (made.train.saliency(0) == (np.arange(160) < 80)).all()


def test_a_folder_that_exists_and_a_side_of_nothing_are_refused(voc, tmp_path, capsys):
    assert main([str(voc), "--out", str(tmp_path)]) == WRONG
    assert main([str(voc), "--out", str(tmp_path / "new"), "--side", "0"]) == WRONG
    assert "--side" in capsys.readouterr().err


def test_oracles_replace_one_part_and_leave_the_others(tiny_run, tmp_path):
    out = tmp_path / "oracles.json"
    assert oracles.main([str(tiny_run), "--out", str(out), "--device", "cpu"]) == 0
    (found,) = json.loads(out.read_text())["runs"]
    recorded = json.loads((tiny_run / "results.json").read_text())["final"]["miou"]["all"]
    assert found["miou"]["as it is"]["all"] == pytest.approx(recorded)
    assert found["miou"]["both"]["all"] >= found["miou"]["true foreground"]["all"]
    assert list(found["miou"]) == list(oracles.WAYS)


def test_a_known_foreground_leaves_the_choice_of_its_class():
    scores = torch.tensor([[0.9, 0.2], [0.1, 0.7], [0.3, 0.1]])[None, :, None]  # two pixels
    assert oracles.on_objects(scores, torch.tensor([[[2, 0]]])).tolist() == [[[2, 0]]]
