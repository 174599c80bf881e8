"""`ipseg report`: a page of whatever runs still have, and a sentence for what they have not."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from commands import call
from ipseg.apps.gallery import spread_over_data
from ipseg.apps.report import report
from ipseg.data.dataset import DatasetSplits
from ipseg.errors import UserError
from ipseg.training.experiment import run
from ipseg.training.recipe import make_recipe

pytestmark = pytest.mark.slow

SHARED = Path(os.environ.get("IPSEG_SHARED", Path(__file__).parents[3] / "shared"))


def written(paths, place: Path, **options) -> str:
    report(paths, place / "page.html", device="cpu", **options)
    return (place / "page.html").read_text(encoding="utf-8")


def left_out(page: str) -> str:
    return page.rsplit("Not shown", maxsplit=1)[-1] if "Not shown" in page else ""


@pytest.fixture(scope="module")
def whole(tiny_run, tmp_path_factory) -> str:
    return written([tiny_run], tmp_path_factory.mktemp("page"), images=2, title="A <title>")


def test_a_run_with_all_its_files_has_every_section(whole):
    assert "<h1>A &lt;title&gt;</h1>" in whole
    for heading in ("Results", "Class IoU", "Confusions", "Predictions", "Provenance"):
        assert f">{heading}" in whole
    assert left_out(whole) == ""


def test_every_image_is_there_after_every_step_with_its_errors_counted(whole):
    views = [len(re.findall(rf'alt="ipseg after step {step}: [^"]*% wrong"', whole)) for step in range(3)]
    assert views == [2, 2, 2]


def test_the_page_says_with_what_it_was_made(whole):
    facts = whole.split("Provenance")[1]
    assert "torch " in facts
    assert "resnet10t" in facts


def test_the_page_says_which_images_were_measured(whole, tiny_run, tmp_path):
    assert "8 validation" in whole
    held_out = tmp_path / "run"
    shutil.copytree(tiny_run, held_out)
    recipe = held_out / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("held_out: 0.0", "held_out: 0.5"))
    page = written([held_out], tmp_path, images=2)
    assert "held-out training" in page
    measured = make_recipe(yaml.safe_load(recipe.read_text())).splits().val
    printed = re.findall(r"<h4>([^<]*)</h4>", page)
    assert len(set(printed) & set(measured.names)) == 2, printed  # and they are what is looked at


def test_no_path_of_the_machine_is_on_the_page(whole, tiny_run):
    assert str(tiny_run) not in whole
    assert str(Path.home()) not in whole


def test_results_alone_make_a_page(tiny_run, tmp_path):
    (tmp_path / "results.json").write_bytes((tiny_run / "results.json").read_bytes())
    page = written([tmp_path / "results.json"], tmp_path)
    assert "Predictions of ipseg: there are only its results" in left_out(page)


def test_what_many_runs_lack_for_one_reason_is_said_once(tiny_run, tmp_path):
    results = json.loads((tiny_run / "results.json").read_text())
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.json").write_text(json.dumps(results | {"name": name}))
    left = left_out(written([tmp_path / "one" / "results.json", tmp_path / "two" / "results.json"], tmp_path))
    assert "Predictions of one, two: " in left
    assert left.count("Predictions of") == 1


def test_weights_that_are_gone_or_damaged_leave_the_predictions_out(tiny_run, tmp_path):
    mine = shutil.copytree(tiny_run, tmp_path / "mine")
    weights = mine / "step_01" / "weights.safetensors"
    weights.write_bytes(b"broken")
    assert "Predictions of ipseg: " in left_out(written([mine], tmp_path))
    weights.unlink()
    assert "Predictions of ipseg: its weights are not there." in left_out(written([mine], tmp_path))


def test_data_that_is_gone_takes_the_predictions_with_it(names_only, tmp_path):
    shutil.rmtree(tmp_path / "old")
    assert "Predictions of old: the data cannot be read" in left_out(written([names_only], tmp_path))


def test_a_page_without_a_gallery_has_no_images(tiny_run, tmp_path):
    page = written([tiny_run], tmp_path, images=0)
    assert "data:image/webp" not in page
    assert "Predictions: --gallery 0 leaves them out." in left_out(page)


def test_steps_of_version_1_have_no_matrix_and_say_so(tiny_run, tmp_path):
    mine = shutil.copytree(tiny_run, tmp_path / "mine")
    old = json.loads((mine / "results.json").read_text()) | {"version": 1}
    for step in old["steps"]:
        step.pop("confusion")
    (mine / "results.json").write_text(json.dumps(old))
    assert "Confusion matrix of ipseg: the results do not have it." in left_out(written([mine], tmp_path))


def test_what_evaluation_counted_is_what_its_iou_is_of(tiny_run):
    for step in json.loads((tiny_run / "results.json").read_text())["steps"]:
        for name, iou in step["iou"].items():
            row = step["confusion"][name]
            column = sum(other.get(name, 0) for other in step["confusion"].values())
            union = sum(row.values()) + column - row.get(name, 0)
            assert iou is None or iou == pytest.approx(row.get(name, 0) / union)


def test_an_unfinished_seed_is_not_taken_for_the_finished_one(tiny_run, tmp_path):
    half = shutil.copytree(tiny_run, tmp_path / "half")
    shutil.rmtree(half / "step_02")
    values = json.loads((half / "results.json").read_text()) | {"seed": 7}
    values["steps"] = values["steps"][:2]
    (half / "results.json").write_text(json.dumps(values))
    page = written([tiny_run, half], tmp_path, images=1)
    assert len(re.findall(r'alt="ipseg after step \d: ', page)) == 3
    assert len(re.findall(r'alt="ipseg \(seed 7: 2 of 3 steps\) after step \d: ', page)) == 2


class Split:
    """Images of one row, each class as many pixels wide as its size says."""

    def __init__(self, *images: dict[int, int]) -> None:
        self.images, self.names = images, tuple(map(str, range(len(images))))

    def class_presence(self):
        return [frozenset(image) for image in self.images]

    def mask(self, index):
        image = self.images[index]
        return np.repeat([*image, 0], [*image.values(), 20 - sum(image.values())])


def chosen(count: int, *images: dict[int, int]) -> list[int]:
    splits = DatasetSplits("x", ("cow", "horse", "cat"), Split(), Split(*images))
    return spread_over_data(splits, type("Scenario", (), {"order": ("cow", "horse", "cat")}), count)


def test_the_gallery_is_spread_over_the_split_and_over_the_classes():
    """Neighbors may be frames of one video: an image of every part of the split, with classes that are rare so far."""
    cow, horse, other = {1: 5}, {2: 5}, {9: 5}
    assert chosen(2, cow, other, cow, horse) == [0, 3]
    assert chosen(4, cow, cow, cow, cow) == [0, 1, 2, 3]
    assert chosen(9, cow, horse) == [0, 1]
    assert chosen(4) == []


def test_in_a_part_of_the_split_a_clear_image_with_few_classes_is_chosen():
    assert chosen(1, {1: 1}, {1: 9}) == [1]
    assert chosen(1, {1: 5, 2: 5}, {1: 5}) == [0]
    assert chosen(1, {1: 3, 2: 1}, {1: 3, 2: 3}) == [1]


def test_the_command_writes_the_page_and_refuses_what_it_cannot_write(tiny_run, tmp_path):
    done = call("report", tiny_run, "--gallery", "0", "--out", tmp_path / "a.html")
    assert done.exit_code == 0, done.output
    assert "--gallery 0 leaves them out" in (tmp_path / "a.html").read_text()
    for out, why in ((tmp_path, "is a folder"), (tmp_path / "no" / "a.html", "is missing")):
        with pytest.raises(UserError, match=why):
            report([tiny_run], out)
    with pytest.raises(UserError, match="no results in"):
        report([tmp_path / "nowhere"], tmp_path / "b.html")


def test_images_that_cannot_be_read_are_left_out_and_the_page_says_so(names_only, tmp_path):
    for folder in ("images", "masks"):
        for path in (tmp_path / "old" / folder).iterdir():
            path.write_text("no image")
    report([names_only], tmp_path / "a.html")
    assert "is not a readable" in (tmp_path / "a.html").read_text()


def test_masks_of_another_size_leave_out_the_predictions_alone(names_only, tmp_path):
    for path in (tmp_path / "old" / "masks").iterdir():
        with Image.open(path) as mask:
            mask.resize((7, 5)).save(path)
    report([names_only], tmp_path / "a.html")
    assert "mask 7x5" in (tmp_path / "a.html").read_text()


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "data" / "voc_animals").is_dir(), reason="needs the photographs of voc_animals")
def test_photographs_are_shown_with_the_predictions_of_every_step(tiny_settings, tmp_path):
    photographs, few = SHARED / "data" / "voc_animals", tmp_path / "few"
    lists = photographs / "ImageSets" / "Segmentation"
    names = {split: (lists / f"{split}.txt").read_text().split()[:24] for split in ("train", "val")}
    for folder, ending in (("JPEGImages", "jpg"), ("SegmentationClassAug", "png"), ("saliency_map", "png")):
        (few / folder).mkdir(parents=True)
        for name in names["train"] + names["val"]:
            shutil.copy(photographs / folder / f"{name}.{ending}", few / folder)
    (few / "ImageSets" / "Segmentation").mkdir(parents=True)
    for split, listed in names.items():
        (few / "ImageSets" / "Segmentation" / f"{split}.txt").write_text("\n".join(listed) + "\n")
    settings = tiny_settings | {"data": {"name": "voc", "path": str(few)}, "scenario": {"name": "voc_animals/3-3"}}
    run(make_recipe(settings), tmp_path / "run", quiet=True)
    page = written([tmp_path / "run"], tmp_path, images=2)
    assert page.split(">Predictions<")[1].split("<h3>")[0].count("<img") == 2 * (2 + 2)
    assert len(re.findall(r'alt="ipseg after step 1: [^"]*% wrong"', page)) == 2


@pytest.mark.parametrize("key", ["started", "git", "versions", "platform"])
def test_an_odd_description_of_a_run_leaves_a_page(tiny_run, tmp_path, key):
    mine = shutil.copytree(tiny_run, tmp_path / "mine")
    values = json.loads((mine / "run.json").read_text()) | {key: 5}
    (mine / "run.json").write_text(json.dumps(values))
    assert "seeds" in written([mine], tmp_path, images=0)
