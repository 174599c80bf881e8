"""Data sets in files, end to end: the photographs of voc_animals where they are there, and a tree like ADE20K's."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ipseg.data.registry import data_config
from ipseg.scenario import ScenarioConfig
from ipseg.training.experiment import run
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import make_recipe

ROOT = Path(__file__).parents[2]
STEPS = {
    "overlap": {
        "2-1": [1262, 1177, 444, 588, 299],
        "3-1": [2406, 444, 588, 299],
        "3-3": [2406, 1065],
        "5-1": [2893, 299],
        "joint": [3131],
    },
    "disjoint": {
        "2-1": [1129, 937, 229, 537, 299],
        "3-1": [2066, 229, 537, 299],
        "3-3": [2066, 1065],
        "5-1": [2832, 299],
        "joint": [3131],
    },
}
"""Training images of voc_animals, as its own README counts them."""


@pytest.fixture
def voc_animals() -> Path:
    """Photographs: in $IPSEG_SHARED, or in a folder `shared` beside the repository."""
    beside = Path(__file__).resolve().parents[2].parent / "shared"
    path = Path(os.environ.get("IPSEG_SHARED", beside)) / "data" / "voc_animals"
    if not path.is_dir():
        pytest.skip(f"{path} is missing; IPSEG_SHARED names the folder that holds data/voc_animals")
    return path


@pytest.mark.slow
def test_the_steps_of_voc_animals_have_as_many_images_as_its_authors_counted(voc_animals, tmp_path, monkeypatch):
    monkeypatch.setenv("IPSEG_CACHE", str(tmp_path))
    splits = data_config({"name": "voc", "path": str(voc_animals)}).build()
    assert (len(splits.train.names), len(splits.val.names)) == (3131, 445)
    presence = splits.train.class_presence()
    for setting, counts in STEPS.items():
        for split, images in counts.items():
            scenario = ScenarioConfig(name=f"voc_animals/{split}", setting=setting).build(splits.name, splits.classes)
            assert scenario.images_per_step(presence) == images, (setting, split)


def write_ade(root: Path, rng: np.random.Generator) -> Path:
    """15 training images of 32 x 40 pixels: 10 classes each of their own, 9 others, and other things."""
    for part, count in (("training", 15), ("validation", 2)):
        for folder in ("images", "annotations"):
            (root / folder / part).mkdir(parents=True)
        for index in range(count):
            own = range(10 * index + 1, 10 * index + 11)
            tiles = rng.permutation([*own, *rng.integers(1, 151, 9), 0]).reshape(4, 5)
            mask = tiles.repeat(8, 0).repeat(8, 1).astype(np.uint8)
            image = np.stack([mask, 255 - mask, mask // 2], -1)
            Image.fromarray(image).save(root / "images" / part / f"ADE_{part}_{index:08d}.jpg")
            Image.fromarray(mask).save(root / "annotations" / part / f"ADE_{part}_{index:08d}.png")
    return root


@pytest.mark.slow
@pytest.mark.parametrize("other", ["background", "ignore"])
def test_a_tree_like_ade_goes_through_100_10(tiny_settings, tmp_path, other):
    root = write_ade(tmp_path / "ADEChallengeData2016", np.random.default_rng(0))
    tiny_settings["data"] = {"name": "ade", "path": str(root), "other": other}
    tiny_settings["scenario"] = {"name": "ade/100-10"}
    tiny_settings["training"] |= {"crop": [32, 32], "batch_size": 8}
    result = run(make_recipe(tiny_settings), tmp_path / "run", quiet=True)
    assert result.complete
    assert [len(step.new) for step in result.steps] == [100, 10, 10, 10, 10, 10]
    assert len(result.steps[-1].iou) == 151
    # Where 0 is ignored there is no background to be right about; where it is predicted it is wrong.
    assert other == "background" or not result.steps[-1].iou["background"]


def test_a_run_on_a_subset_is_opened_again_with_its_scenario(tiny_settings, tmp_path):
    """And the classes of VOC that are not in it are background."""
    root = tmp_path / "voc"
    for folder in ("JPEGImages", "SegmentationClassAug", "ImageSets/Segmentation"):
        (root / folder).mkdir(parents=True)
    values = [8, 10, 12, 13, 15, 17, 20]  # the animals, and a screen
    for part in ("train", "val"):
        for value in values:
            mask = np.full((32, 32), value, dtype=np.uint8)
            mask[:, :8], mask[:, 8:16] = 0, 20
            Image.fromarray(mask).save(root / "SegmentationClassAug" / f"{part}{value}.png")
            Image.fromarray(np.stack([mask * 9] * 3, -1)).save(root / "JPEGImages" / f"{part}{value}.jpg")
        names = "".join(f"{part}{value}\n" for value in values)
        (root / "ImageSets" / "Segmentation" / f"{part}.txt").write_text(names)
    tiny_settings["data"] = {"name": "voc", "path": str(root)}
    tiny_settings["scenario"] = {"name": "voc_animals/5-1"}
    tiny_settings["training"] |= {"crop": [32, 32]}
    recipe = make_recipe(tiny_settings)
    result = run(recipe, tmp_path / "run", quiet=True)
    assert list(result.steps[-1].iou) == ["background", "cat", "cow", "dog", "horse", "person", "sheep"]
    assert RunFolder.open(tmp_path / "run").scenario(recipe).name == "voc_animals/5-1"
