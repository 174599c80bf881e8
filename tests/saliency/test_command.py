"""`ipseg saliency`: maps are written where the data looks for them, whole, and only those that are missing."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from PIL import Image

import commands
from ipseg.apps import maps as app_module
from ipseg.apps.maps import plan_maps, write_maps
from ipseg.apps.train import describe_plan
from ipseg.data.folder import FolderConfig
from ipseg.data.image_io import read_labels
from ipseg.data.voc import VocConfig
from ipseg.errors import UserError
from ipseg.files import replacing
from ipseg.saliency.fallback import salient
from ipseg.training.recipe import make_recipe


def call(*words: object):
    return commands.call("saliency", *words)


def fails(*words: object) -> str:
    return commands.fails("saliency", *words)


@pytest.fixture
def bare(make_folder_data):
    """A folder of data without maps."""
    return make_folder_data(saliency=False)


def test_the_maps_of_a_model_are_those_that_the_data_then_gives(bare, reds):
    result = call(bare, "--model", reds())
    assert result.exit_code == 0, result.output
    assert f"12 maps written: {bare / 'saliency'}" in result.output
    splits = FolderConfig(path=str(bare), saliency="given").build()
    red = next(index for index, found in enumerate(splits.train.class_presence()) if 1 in found)
    hit = splits.train.saliency(red)
    assert hit[splits.train.mask(red) == 1].mean() > 0.8
    with Image.open(bare / "saliency" / "image_00.png") as opened:
        assert opened.mode == "1"


def test_the_fallback_writes_what_it_would_give_while_reading(bare):
    assert call(bare, "--fallback").exit_code == 0
    splits = FolderConfig(path=str(bare)).build()
    assert splits.train.saliency_source.mode == "given"
    for index in range(3):
        assert np.array_equal(splits.train.saliency(index), salient(splits.train.image(index)))


def test_what_is_there_is_kept_and_counted(bare):
    (bare / "saliency").mkdir()
    Image.new("1", (64, 48)).save(bare / "saliency" / "image_03.png")
    result = call(bare, "--fallback")
    assert "11 maps written, 1 existed already" in result.output
    assert not read_labels(bare / "saliency" / "image_03.png").any()
    assert "0 maps written, 12 existed already" in call(bare, "--fallback").output


def test_stopped_in_the_middle_it_goes_on_where_it_was(bare):
    job, seen = plan_maps(bare, "folder"), []

    def tires(image):
        seen.append(image)
        if len(seen) == 5:
            raise KeyboardInterrupt
        return salient(image)

    with pytest.raises(KeyboardInterrupt):
        write_maps(job, tires, quiet=True)
    assert len(list((bare / "saliency").iterdir())) == 4
    done = write_maps(plan_maps(bare, "folder"), salient, quiet=True)
    assert (done.written, done.skipped) == (8, 4)


def test_going_on_removes_what_a_killed_process_left_but_not_what_another_is_writing(bare):
    maps = bare / "saliency"
    maps.mkdir()
    left = [maps / f".ipseg-{number:016x}.tmp" for number in range(2)]
    left[0].touch()
    left[1].write_bytes((bare / "images" / "image_00.png").read_bytes()[:100])
    with replacing(maps / "image_00.png") as written:
        assert call(bare, "--fallback").exit_code == 0
        assert written.exists()
    assert not list(maps.glob(".*"))


def test_a_map_that_could_not_be_written_leaves_nothing_behind(bare, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(app_module.Pillow.Image, "save", full)
    assert "the disk is full" in fails(bare, "--fallback")
    assert list((bare / "saliency").iterdir()) == []


def test_a_broken_image_is_named_and_the_others_have_maps(bare):
    (bare / "images" / "image_04.png").write_bytes(b"broken")
    result = call(bare, "--fallback")
    assert result.exit_code == 2
    assert "image_04.png is not a readable image" in result.stderr
    assert len(list((bare / "saliency").iterdir())) == 11


def test_maps_of_a_voc_tree_go_where_it_has_them_or_elsewhere(bare, tmp_path):
    voc = tmp_path / "voc 2012"
    (voc / "ImageSets" / "Segmentation").mkdir(parents=True)
    (bare / "images").rename(voc / "JPEGImages")
    (bare / "masks").rename(voc / "SegmentationClassAug")
    names = sorted(path.stem for path in (voc / "JPEGImages").iterdir())
    for name, part in (("train", names[:9]), ("val", names[9:])):
        (voc / "ImageSets" / "Segmentation" / f"{name}.txt").write_text("\n".join(part))
    assert f": {voc / 'saliency_map'}" in call(voc, "--format", "voc", "--fallback").output
    assert len(list((voc / "saliency_map").iterdir())) == 12
    elsewhere = tmp_path / "own maps"
    assert f"data.saliency={elsewhere}" in call(voc, "--format", "voc", "--fallback", "--out", elsewhere).output
    train = VocConfig(path=str(voc), saliency=str(elsewhere)).build().train
    assert np.array_equal(train.saliency(0), salient(train.image(0)))


@pytest.mark.parametrize("name", ["all", "none", "given", "oracle", "auto", "fallback"])
def test_a_folder_of_maps_may_be_called_like_a_setting(bare, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    result = call(bare, "--fallback", "--out", name)
    maps = tmp_path / name
    assert f"12 maps written: {maps}\nuse them: --set data.saliency={maps}\n" in result.output
    assert len(list(maps.iterdir())) == 12
    assert not (bare / "saliency").exists()
    assert FolderConfig(path=str(bare), saliency=str(maps)).build().train.saliency_source.mode == "given"


@pytest.mark.parametrize("out", ["images", "masks", "images/maps", "masks/../images", "link", "."])
def test_maps_are_not_put_among_the_images_and_masks(bare, out):
    (bare / "link").symlink_to(bare / "masks")
    before = sorted(path for path in bare.rglob("*") if path.is_file())
    assert "Choose a folder for maps alone" in fails(bare, "--fallback", "--out", bare / out)
    assert sorted(path for path in bare.rglob("*") if path.is_file()) == before


def test_a_part_of_a_tree_where_maps_would_lie_among_images_is_found_too(bare, tmp_path):
    ade = tmp_path / "ade"
    for kind, own in (("images", "images"), ("annotations", "masks")):
        (ade / kind).mkdir(parents=True)
        for part in ("training", "validation"):
            shutil.copytree(bare / own, ade / kind / part)
    message = fails(ade, "--format", "ade", "--fallback", "--out", ade / "images")
    assert f"the data has its own files in {ade / 'images' / 'training'}" in message
    assert call(ade, "--format", "ade", "--fallback", "--out", ade / "maps").exit_code == 0


def test_one_detector_must_be_chosen(bare, tmp_path):
    for words in ([], ["--model", tmp_path / "x.onnx", "--fallback"]):
        assert "choose one: --model FILE.onnx" in fails(bare, *words)
    assert "--fallback has no settings" in fails(bare, "--fallback", "--threshold", 0.4)


def test_options_that_cannot_be_are_refused(bare, reds):
    assert "Did you mean u2net" in fails(bare, "--model", reds(), "--preset", "u2nett")
    assert "between 0 and 1" in fails(bare, "--model", reds(), "--threshold", 7)
    assert "expected one image, tensor(float)" in fails(bare, "--model", reds(shape=[1, 1, 16, 16]))
    assert "no key" in fails(bare, "--fallback", "--set", "data.trian=3")
    assert "settings here are those of the data" in fails(bare, "--fallback", "--set", "size=3")
    assert "is not a data folder" in fails(bare / "nowhere", "--fallback")
    assert not (bare / "saliency").exists()


def test_data_that_must_not_be_written_is_answered_with_another_place(bare, monkeypatch):
    def refuse(*_, **__):
        raise OSError(30, "Read-only file system")

    job = plan_maps(bare, "folder")
    monkeypatch.setattr(app_module, "replacing", refuse)
    with pytest.raises(UserError, match=r"cannot be written \(Read-only.*--out FOLDER"):
        write_maps(job, salient, quiet=True)


@pytest.mark.parametrize(
    ("setting", "message"), [("auto", "computed while reading, without a model"), ("all", "everything is salient")]
)
def test_a_dry_run_says_where_saliency_comes_from(bare, tiny_settings, setting, message):
    data = {"name": "folder", "path": str(bare), "saliency": setting}
    method = {"name": "ipseg", "variant": "official"}
    plan = describe_plan(make_recipe(tiny_settings | {"data": data, "method": method}), bare / "run")[0]
    assert f"# Saliency: {message}" in plan
