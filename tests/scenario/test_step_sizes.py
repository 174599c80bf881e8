"""Images per step against the published lists, which say for every image the classes in it."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from ipseg.scenario import Setting, describe


def lists_folder() -> Path:
    """The `data/lists` folder of the shared material: in $IPSEG_SHARED, or beside the repository."""
    beside = Path(__file__).resolve().parents[2].parent / "shared"
    return Path(os.environ.get("IPSEG_SHARED", beside)) / "data" / "lists"


@cache
def presence(file: str) -> list[frozenset[int]]:
    path = lists_folder() / file
    if not path.is_file():
        pytest.skip(f"{path} is missing; IPSEG_SHARED names the folder that holds data/lists")
    lines = path.read_text(encoding="utf-8").splitlines()
    return [frozenset(int(value) for value in line.split()[1:]) for line in lines]


@pytest.mark.parametrize(
    ("name", "setting", "images"),
    [
        ("voc/19-1", "overlap", [10410, 548]),
        ("voc/19-1", "disjoint", [10034, 548]),
        ("voc/15-5", "overlap", [9568, 2145]),
        ("voc/15-5", "disjoint", [8437, 2145]),
        ("voc/15-1", "overlap", [9568, 487, 299, 491, 500, 548]),
        ("voc/15-1", "disjoint", [8437, 378, 299, 420, 500, 548]),
        ("voc/2-2", "overlap", [1072, 1151, 1039, 2080, 1345, 1701, 925, 4236, 790, 1048]),
        ("ade/100-50", "overlap", [20192, 9390]),
        ("ade/100-10", "overlap", [20192, 1710, 2294, 2747, 4279, 2844]),
    ],
)
def test_steps_have_as_many_images_as_published(name: str, setting: Setting, images: list[int]):
    images_of = presence("voc_train_aug.txt" if name.startswith("voc") else "ade_train.txt")
    assert describe(name, setting).images_per_step(images_of) == images


@pytest.mark.parametrize(
    ("file", "images"),
    [("voc_train_aug.txt", 10582), ("voc_val.txt", 1449), ("ade_train.txt", 20210), ("ade_val.txt", 2000)],
)
def test_the_lists_are_whole(file: str, images: int):
    assert len(presence(file)) == images


def test_validation_images_with_a_seen_class_are_as_many_as_published():
    scenario = describe("voc/15-1")
    images_of = presence("voc_val.txt")
    seen = [scenario.evaluation_table(step) for step in scenario.steps]
    counts = [sum(any(table[value] for value in present) for present in images_of) for table in seen]
    assert counts == [1240, 1277, 1329, 1353, 1421, 1449]
