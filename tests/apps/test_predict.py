from __future__ import annotations

import errno
import os
import shutil
import weakref
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import ipseg
from commands import call, fails
from ipseg import UserError
from ipseg.apps import model as model_module
from ipseg.apps import predict as predict_module
from ipseg.apps.model import Model
from ipseg.apps.predict import choose_names
from ipseg.data.image_io import read_image


def photograph(path: Path, seed: int = 0, size: tuple[int, int] = (40, 60)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)).save(path)
    return path


def written(out: Path) -> set[str]:
    return {path.name for path in out.iterdir()}


def test_an_image_gives_a_label_map_an_overlay_and_the_names(tiny_run, tmp_path):
    photo, out = photograph(tmp_path / "photo.jpg"), tmp_path / "out"
    result = call("predict", tiny_run, photo, "--out", out)
    assert result.exit_code == 0, result.output
    assert written(out) == {"photo.png", "photo_overlay.png", "classes.txt"}
    with Image.open(out / "photo.png") as labels:
        assert labels.mode == "P"
        assert np.array_equal(np.array(labels), ipseg.load(tiny_run).predict(photo).labels)
    assert (out / "classes.txt").read_text() == "0 background\n1 cow\n2 bus\n3 horse\n4 car\n"


def test_the_posterior_and_the_map_are_said_for_every_image(tiny_run, tmp_path):
    photos = [photograph(tmp_path / "photos" / name, seed) for seed, name in enumerate(["a.png", "b.jpg"])]
    output = call("predict", tiny_run, tmp_path / "photos", "--out", tmp_path / "out").output
    assert all(f"{photo}: posterior: " in output for photo in photos)
    assert output.count("| map: ") == 2


def test_probabilities_and_unknown_objects_come_on_request(tiny_run, tmp_path):
    photo, out = photograph(tmp_path / "photo.jpg"), tmp_path / "out"
    assert call("predict", tiny_run, photo, "--out", out, "--probabilities", "--unknown").exit_code == 0
    expected = ipseg.load(tiny_run).predict(photo)
    with np.load(out / "photo_scores.npz") as scores:
        assert scores["scores"].dtype == np.float16
        assert np.allclose(scores["scores"], expected.scores, atol=1e-3)
        assert tuple(scores["names"]) == expected.classes
    with Image.open(out / "photo_unknown.png") as unknown:
        assert unknown.mode == "L"
        assert np.abs(np.array(unknown) / 255 - expected.unknown).max() < 0.003


def test_an_earlier_step_and_other_settings_of_inference_are_used(tiny_run, tmp_path):
    photo, out = photograph(tmp_path / "photo.jpg"), tmp_path / "out"
    result = call("predict", tiny_run, photo, "--out", out, "--step", 0, "--set", "method.alpha_nf=1")
    assert result.exit_code == 0, result.output
    assert (out / "classes.txt").read_text() == "0 background\n1 cow\n2 bus\n"
    refused = call("predict", tiny_run, photo, "--out", out, "--set", "model.width=8")
    assert refused.exit_code == 2
    assert "model.width is part of how" in refused.stderr


def test_images_turned_by_exif_come_out_upright(tiny_run, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 8
    Image.new("RGB", (60, 40), "green").save(tmp_path / "turned.jpg", exif=exif)
    call("predict", tiny_run, tmp_path / "turned.jpg", "--out", tmp_path / "out")
    with Image.open(tmp_path / "out" / "turned.png") as labels:
        assert labels.size == (40, 60)


def test_images_of_one_name_from_two_folders_both_stay(tiny_run, tmp_path):
    photograph(tmp_path / "a" / "x.jpg", 0, (40, 60))
    photograph(tmp_path / "b" / "x.png", 1, (50, 30))
    out = tmp_path / "out"
    result = call("predict", tiny_run, tmp_path / "a", tmp_path / "b", "--out", out)
    assert result.exit_code == 0
    assert f"{tmp_path / 'b' / 'x.png'} -> x_2.png: " in result.output
    assert [read_image(out / name).shape[:2] for name in ("x.png", "x_2.png")] == [(40, 60), (50, 30)]


def test_a_name_that_is_another_ones_overlay_is_numbered(tmp_path):
    images = [photograph(tmp_path / name) for name in ("x.jpg", "x_overlay.jpg", "X.png")]
    assert list(choose_names(images, tmp_path / "out").values()) == ["x", "x_overlay_2", "X_2"]


def test_a_file_named_twice_is_labeled_once(tiny_run, tmp_path):
    photo = photograph(tmp_path / "photos" / "x.jpg")
    output = call("predict", tiny_run, photo, tmp_path / "photos", "--out", tmp_path / "out").output
    assert output.count("posterior:") == 1


def test_an_input_is_never_overwritten(tiny_run, tmp_path):
    photo = photograph(tmp_path / "photo.png")
    before = photo.read_bytes()
    result = call("predict", tiny_run, photo, "--out", tmp_path)
    assert result.exit_code == 2
    assert "would overwrite the image" in result.stderr
    assert photo.read_bytes() == before
    assert written(tmp_path) == {"photo.png"}


def test_an_input_is_not_overwritten_through_a_link_either(tmp_path):
    photo = photograph(tmp_path / "photo.png")
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(UserError, match="would overwrite"):
        choose_names([photo], tmp_path / "link")


def test_the_class_names_of_a_data_folder_are_never_overwritten(tiny_run, tmp_path):
    photo = photograph(tmp_path / "images" / "photo.jpg")
    (tmp_path / "classes.txt").write_text("red\n")
    result = call("predict", tiny_run, photo, "--out", tmp_path)
    assert result.exit_code == 2
    assert (tmp_path / "classes.txt").read_text() == "red\n"
    assert written(tmp_path) == {"images", "classes.txt"}


def test_a_file_that_is_not_of_predict_is_never_overwritten(tiny_run, tmp_path):
    photo, other = photograph(tmp_path / "pics" / "photo.jpg"), photograph(tmp_path / "pics" / "photo.png", seed=1)
    before = other.read_bytes()
    result = call("predict", tiny_run, photo, "--out", tmp_path / "pics")
    assert result.exit_code == 2
    assert f"{other} is not of ipseg predict and would be overwritten. Choose another folder" in result.stderr
    assert other.read_bytes() == before
    assert written(tmp_path / "pics") == {"photo.jpg", "photo.png"}


def test_labeling_again_replaces_what_was_written_before(tiny_run, tmp_path):
    photo = photograph(tmp_path / "photo.jpg")
    codes = [call("predict", tiny_run, photo, "--out", tmp_path / "out").exit_code for _ in range(2)]
    assert codes == [0, 0]


def test_labeling_again_removes_what_a_killed_process_left(tiny_run, tmp_path):
    photograph(tmp_path / "a.png")
    (tmp_path / "out").mkdir()
    for number, head in enumerate((b"", b"\x89PNG\r\n", b"PK\x03\x04", b"0 background\n")):
        (tmp_path / "out" / f".ipseg-{number:016x}.tmp").write_bytes(head)
    assert call("predict", tiny_run, tmp_path / "a.png", "--out", tmp_path / "out").exit_code == 0
    assert not list((tmp_path / "out").glob(".*"))


def test_a_user_s_image_stays_in_a_folder_that_predict_has_written_to(tiny_run, tmp_path):
    photos, mine = tmp_path / "photos", photograph(tmp_path / "photos" / "b.png", seed=1)
    before = mine.read_bytes()
    assert call("predict", tiny_run, photograph(photos / "a.jpg"), "--out", photos).exit_code == 0
    message = fails("predict", tiny_run, photograph(tmp_path / "other" / "b.jpg"), "--out", photos)
    assert f"{mine} is not of ipseg predict and would be overwritten" in message
    assert mine.read_bytes() == before
    assert written(photos) == {"a.jpg", "a.png", "a_overlay.png", "b.png", "classes.txt"}


def test_every_image_that_predict_writes_says_so_where_it_begins(tiny_run, tmp_path):
    out = tmp_path / "out"
    assert call("predict", tiny_run, photograph(tmp_path / "a.jpg"), "--out", out, "--unknown").exit_code == 0
    for path in out.glob("*.png"):
        assert b"Software\0ipseg predict" in path.read_bytes()[:100]


def test_scores_are_replaced_only_beside_a_label_map_of_ours(tiny_run, tmp_path):
    photo, out = photograph(tmp_path / "a.jpg"), tmp_path / "out"
    words = ["predict", tiny_run, photo, "--out", out, "--probabilities"]
    assert [call(*words).exit_code for _ in range(2)] == [0, 0]
    (out / "a.png").unlink()
    before = (out / "a_scores.npz").read_bytes()
    assert "a_scores.npz is not of ipseg predict" in fails(*words)
    assert (out / "a_scores.npz").read_bytes() == before


def test_label_maps_keep_the_names_of_their_classes(tiny_run, tmp_path):
    a, b, out = photograph(tmp_path / "a.jpg"), photograph(tmp_path / "b.jpg"), tmp_path / "out"
    for step in (0, 2):  # more classes go on where the fewer ended
        assert call("predict", tiny_run, a, "--out", out, "--step", step).exit_code == 0
    message = fails("predict", tiny_run, b, "--out", out, "--step", 0)
    assert "is of a model with other classes: it lists 3 horse, and this one has no such label." in message
    (out / "classes.txt").write_text("0 background\n1 cow\n2 sheep\n")
    assert "it lists 2 sheep, and this one has 2 bus." in fails("predict", tiny_run, b, "--out", out)
    assert (out / "classes.txt").read_text() == "0 background\n1 cow\n2 sheep\n"
    assert "b.png" not in written(out)


def test_a_method_without_a_map_of_unknown_objects_says_so_before_anything_is_written(tiny_settings, tmp_path):
    settings = tiny_settings | {"method": {"name": "finetune"}, "scenario": {"name": "joint"}}
    ipseg.train(settings, tmp_path / "run", quiet=True)
    out = tmp_path / "out"
    message = fails("predict", tmp_path / "run", photograph(tmp_path / "a.jpg"), "--out", out, "--unknown")
    assert "the run's method has no map of unknown objects" in message
    assert not out.exists()


@pytest.mark.parametrize("place", ["", "labels"])
def test_nothing_is_written_into_the_run(tiny_run, tmp_path, place):
    shutil.copytree(tiny_run, tmp_path / "run")
    before = written(tmp_path / "run")
    message = fails("predict", tmp_path / "run", photograph(tmp_path / "a.jpg"), "--out", tmp_path / "run" / place)
    assert "inside the run directory" in message
    assert written(tmp_path / "run") == before


def test_a_broken_image_is_reported_and_the_others_are_labeled(tiny_run, tmp_path):
    photograph(tmp_path / "photos" / "a.png")
    (tmp_path / "photos" / "b.png").write_bytes(b"not an image")
    photograph(tmp_path / "photos" / "c.png")
    result = call("predict", tiny_run, tmp_path / "photos", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "b.png is not a readable image" in result.stderr
    assert "Traceback" not in result.output
    assert {"a.png", "c.png"} <= written(tmp_path / "out")
    assert "b.png" not in written(tmp_path / "out")


def test_what_macos_leaves_beside_photographs_is_not_labeled(tiny_run, tmp_path):
    photograph(tmp_path / "photos" / "a.jpg")
    (tmp_path / "photos" / "._a.jpg").write_bytes(b"\0\5\x16\7")
    assert call("predict", tiny_run, tmp_path / "photos", "--out", tmp_path / "out").exit_code == 0
    assert written(tmp_path / "out") == {"a.png", "a_overlay.png", "classes.txt"}


def test_links_to_nothing_and_pipes_are_left_out_and_named(tiny_run, tmp_path):
    photograph(tmp_path / "photos" / "a.jpg")
    (tmp_path / "photos" / "gone.png").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "photos" / "pipe.png")
    result = call("predict", tiny_run, tmp_path / "photos", "--out", tmp_path / "out")
    assert result.exit_code == 0
    assert all(f"{name}.png: left out, it is no file" in result.output for name in ("gone", "pipe"))
    assert written(tmp_path / "out") == {"a.png", "a_overlay.png", "classes.txt"}


def test_images_in_folders_below_are_left_out_and_that_is_said(tiny_run, tmp_path):
    photograph(tmp_path / "photos" / "a.jpg")
    photograph(tmp_path / "photos" / "day 1" / "b.jpg")
    result = call("predict", tiny_run, tmp_path / "photos", "--out", tmp_path / "out")
    assert "left out are images in folders below it: 1, the first in" in result.output
    assert written(tmp_path / "out") == {"a.png", "a_overlay.png", "classes.txt"}


def test_a_half_image_is_broken_too(tiny_run, tmp_path):
    whole = photograph(tmp_path / "whole.png", size=(200, 200)).read_bytes()
    (tmp_path / "half.png").write_bytes(whole[: len(whole) // 2])
    assert (
        "half.png is not a readable image"
        in call("predict", tiny_run, tmp_path / "half.png", "--out", tmp_path / "out").stderr
    )


def test_what_is_not_there_is_told_before_anything_is_written(tiny_run, tmp_path):
    out = tmp_path / "out"
    assert "is neither an image nor a folder" in call("predict", tiny_run, tmp_path / "no.jpg", "--out", out).stderr
    assert "is not a run's folder" in call("predict", tmp_path, tmp_path, "--out", out).stderr
    assert "has no step 9" in call("predict", tiny_run, tmp_path, "--out", out, "--step", 9).stderr
    assert "torch sees no GPU" in call("predict", tiny_run, tmp_path, "--out", out, "--device", "cuda:7").stderr or (
        "GPUs here" in call("predict", tiny_run, tmp_path, "--out", out, "--device", "cuda:7").stderr
    )
    assert not out.exists()


def test_a_damaged_weight_file_is_told(tiny_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    weights = run / "step_01" / "weights.safetensors"
    data = bytearray(weights.read_bytes())
    data[-3] ^= 255
    weights.write_bytes(data)
    result = call("predict", run, photograph(tmp_path / "x.jpg"), "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "the weights file of step 1 is damaged" in result.stderr


# ---- one image that fails does not stop the others ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "error"),
    [
        (MemoryError(), "b.png needs more memory than there is"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "b.png needs more memory than there is"),
        (ZeroDivisionError("of ours"), "b.png could not be labeled (ZeroDivisionError: of ours)"),
        (PermissionError(13, "Permission denied", "b.png"), "b.png cannot be used (Permission denied)"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_image_that_fails_in_any_way_is_listed_and_the_others_are_labeled(
    tiny_run, tmp_path, monkeypatch, problem, error
):
    for name in "abc":
        photograph(tmp_path / "photos" / f"{name}.png")
    predict = Model.predict

    def failing(model, image, **options):
        calls.append(image)
        if len(calls) == 2:
            raise problem
        return predict(model, image, **options)

    calls: list[object] = []
    monkeypatch.setattr(Model, "predict", failing)
    message = fails("predict", tiny_run, tmp_path / "photos", "--out", tmp_path / "out")
    assert "1 of the images were not labeled:" in message
    assert error in message
    assert {"a.png", "c.png"} <= written(tmp_path / "out")
    assert "b.png" not in written(tmp_path / "out")


def test_a_full_disk_stops_all_images(tiny_run, tmp_path, monkeypatch):
    for name in "ab":
        photograph(tmp_path / "photos" / f"{name}.png")

    def full(*_args: object, **_options: object) -> None:
        calls.append(1)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    calls: list[int] = []
    monkeypatch.setattr(Image.Image, "save", full)
    assert "the disk is full" in fails("predict", tiny_run, tmp_path / "photos", "--out", tmp_path / "out")
    assert calls == [1]


# ---- large images ---------------------------------------------------------------------------------------------------


@pytest.fixture
def small_tiles(monkeypatch) -> None:
    """As if small images were large."""
    for name, value in {"MAX_PIXELS": 5000, "TILE_SIDE": 0, "MIN_TILE_SIDE": 64}.items():
        monkeypatch.setattr(model_module, name, value)


@pytest.mark.usefixtures("small_tiles")
def test_a_large_image_is_labeled_tile_by_tile_and_alike(tiny_run, tmp_path, monkeypatch):
    photo, model = photograph(tmp_path / "photo.png", size=(200, 150)), ipseg.load(tiny_run)
    tiled = model.predict(photo)
    monkeypatch.setattr(model_module, "MAX_PIXELS", 10**9)
    whole = model.predict(photo)
    assert np.array_equal(tiled.labels, whole.labels)
    assert np.allclose(tiled.scores, whole.scores, atol=1e-5)
    assert np.allclose(tiled.unknown, whole.unknown, atol=1e-5)
    assert np.array_equal(tiled.pixel_labels, whole.pixel_labels)
    assert tiled.posterior == pytest.approx(whole.posterior, abs=1e-5)


@pytest.mark.usefixtures("small_tiles")
def test_the_scores_of_a_tile_are_freed_before_the_next_is_predicted(tiny_run, tmp_path, monkeypatch):
    photo, model, seen = photograph(tmp_path / "photo.png", size=(200, 150)), ipseg.load(tiny_run), []
    predict = model.method.predict

    def watched(image):
        assert all(prediction() is None for prediction in seen)
        prediction = predict(image)
        seen.append(weakref.ref(prediction))
        return prediction

    monkeypatch.setattr(model.method, "predict", watched)
    model.predict(photo, scores=False, unknown=False)
    assert len(seen) > 1


@pytest.mark.usefixtures("small_tiles")
def test_the_command_labels_a_large_image_and_keeps_scores_only_on_request(tiny_run, tmp_path):
    photo = photograph(tmp_path / "photo.png", size=(200, 150))
    done = call("predict", tiny_run, photo, "--out", tmp_path / "out", "--unknown")
    assert done.exit_code == 0, done.output
    assert written(tmp_path / "out") == {"photo.png", "photo_overlay.png", "photo_unknown.png", "classes.txt"}
    bare = ipseg.load(tiny_run).predict(photo, scores=False, unknown=False)
    assert bare.scores is bare.pixel_labels is bare.unknown is None
    assert call("predict", tiny_run, photo, "--out", tmp_path / "more", "--probabilities").exit_code == 0
    with np.load(tmp_path / "more" / "photo_scores.npz") as scores:
        assert scores["scores"].shape == (5, 200, 150)


def test_many_classes_make_smaller_tiles(tiny_run, tmp_path, monkeypatch):
    """Scores of 150 classes take more memory than the network."""
    seen = []
    monkeypatch.setattr(model_module, "MAX_SCORES", 5 * 64 * 64)
    model = ipseg.load(tiny_run)
    predict = model.method.predict
    monkeypatch.setattr(model.method, "predict", lambda image: seen.append(image.shape) or predict(image))
    model.predict(photograph(tmp_path / "photo.png", size=(130, 100)))
    assert len(seen) == 6


def test_an_absurdly_large_image_is_refused_with_the_limit_and_the_next_is_labeled(tiny_run, tmp_path, monkeypatch):
    for name, size in {"a": (100, 100), "b": (40, 40)}.items():
        photograph(tmp_path / "photos" / f"{name}.png", size=size)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 4000)
    message = fails("predict", tiny_run, tmp_path / "photos", "--out", tmp_path / "out")
    assert "a.png is too large: at most 0 megapixels are read. Scale it down, or cut it up." in message
    assert "b.png" in written(tmp_path / "out")


def test_an_image_that_pillow_warns_of_is_labeled_without_a_word_about_attacks(
    tiny_run, tmp_path, monkeypatch, recwarn
):
    photo = photograph(tmp_path / "photo.png", size=(70, 100))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 4000)
    assert call("predict", tiny_run, photo, "--out", tmp_path / "out").exit_code == 0
    assert not [one for one in recwarn if one.category is Image.DecompressionBombWarning]


def test_scores_that_would_fill_the_memory_are_refused(tiny_run, tmp_path, monkeypatch):
    monkeypatch.setattr(predict_module, "SCORE_BYTES", 1000)
    photo = photograph(tmp_path / "photo.png")
    message = fails("predict", tiny_run, photo, "--out", tmp_path / "out", "--probabilities")
    assert "--probabilities: the scores of" in message
    assert "Leave the option out" in message
