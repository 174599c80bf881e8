from __future__ import annotations

import io
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

import ipseg
from ipseg import UserError
from ipseg.apps.model import Result, as_array
from ipseg.config import to_dict
from ipseg.evaluation.results import RunResult
from ipseg.training.recipe import make_recipe


@pytest.fixture(scope="module")
def model(tiny_run):
    return ipseg.load(tiny_run)


def photo(height: int = 50, width: int = 70) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def files(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*")}


# ---- load -------------------------------------------------------------------------------------------------------


def test_load_takes_the_last_finished_step_and_names_its_classes(model):
    assert model.step == 2
    assert model.classes == ("background", "cow", "bus", "horse", "car")


def test_load_of_an_earlier_step_knows_only_its_classes(tiny_run):
    model = ipseg.load(tiny_run, step=0)
    assert model.classes == ("background", "cow", "bus")
    assert model.predict(photo()).scores.shape == (3, 50, 70)


@pytest.mark.parametrize("step", [3, -1])
def test_a_step_out_of_range_is_told_with_the_valid_ones(tiny_run, step):
    with pytest.raises(UserError, match=rf"has no step {step}: steps 0 to 2 are finished"):
        ipseg.load(tiny_run, step=step)


@pytest.mark.parametrize("step", ["x", "1", 1.0])
def test_a_step_that_is_no_whole_number_is_told(tiny_run, step):
    with pytest.raises(UserError, match=rf"a step is a whole number, not {step!r}; of .* steps 0 to 2 are finished"):
        ipseg.load(tiny_run, step=step)


def test_a_run_without_a_finished_step_is_told(tiny_run, tmp_path):
    for name in ("run.json", "recipe.yaml"):
        shutil.copy(tiny_run / name, tmp_path / name)
    with pytest.raises(UserError, match="has no finished step yet"):
        ipseg.load(tmp_path)


def test_a_folder_that_is_no_run_is_told(tmp_path):
    with pytest.raises(UserError, match="is not a run's folder"):
        ipseg.load(tmp_path)


def test_a_model_loads_and_predicts_when_its_data_is_gone(make_folder_data, tiny_settings, tmp_path):
    data = make_folder_data()
    settings = tiny_settings | {"data": {"name": "folder", "path": str(data)}, "scenario": {"name": "joint"}}
    ipseg.train(settings, tmp_path / "run", quiet=True)
    shutil.rmtree(data)
    assert ipseg.load(tmp_path / "run").predict(photo()).classes == ("background", "red", "green", "blue")


def test_loading_and_predicting_leave_the_run_as_it_is(tiny_run):
    before = files(tiny_run)
    ipseg.load(tiny_run).predict(photo())
    assert files(tiny_run) == before


# ---- predict ----------------------------------------------------------------------------------------------------


def test_a_prediction_fits_the_image(model):
    result = model.predict(photo())
    assert result.labels.shape == result.pixel_labels.shape == (50, 70)
    assert result.labels.dtype == np.uint8
    assert result.scores.shape == (5, 50, 70)
    assert result.unknown is not None
    assert result.unknown.shape == (50, 70)
    assert np.array_equal(result.scores.argmax(0), result.labels)
    assert list(result.posterior or {}) == ["cow", "bus", "horse", "car"]


@pytest.mark.parametrize("size", [(1, 1), (1, 200), (33, 5), (64, 64)])
def test_images_of_any_size_are_labeled(model, size):
    assert model.predict(photo(*size)).labels.shape == size


def test_a_file_a_pillow_image_and_an_array_give_the_same_labels(model, tmp_path):
    Image.fromarray(photo()).save(tmp_path / "photo.png")
    of_array = model.predict(photo())
    for same in (Image.fromarray(photo()), tmp_path / "photo.png", str(tmp_path / "photo.png")):
        assert np.array_equal(model.predict(same).scores, of_array.scores)


def test_pixels_that_may_not_be_written_are_labeled_without_a_warning(model):
    pixels = np.asarray(Image.fromarray(photo()))
    assert not pixels.flags.writeable
    assert np.array_equal(model.predict(pixels).scores, model.predict(photo()).scores)  # a warning would be an error


@pytest.mark.parametrize(("kind", "top"), [(np.uint16, 65535), (np.float32, 1)])
def test_a_deep_image_is_the_same_by_path_and_as_a_pillow_image(tmp_path, kind, top):
    deep = Image.fromarray((np.linspace(0, top, 12).reshape(3, 4)).astype(kind))
    deep.save(tmp_path / "deep.tif")
    assert np.array_equal(as_array(deep), as_array(tmp_path / "deep.tif"))
    assert as_array(deep).mean() == pytest.approx(127.5, abs=1)


def test_exif_rotation_is_honored_in_files_and_pillow_images(model, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise by a quarter
    Image.fromarray(photo()).save(tmp_path / "turned.png", exif=exif)
    upright = model.predict(np.ascontiguousarray(np.rot90(photo(), -1)))
    with Image.open(tmp_path / "turned.png") as opened:
        assert np.array_equal(model.predict(opened).scores, upright.scores)
    assert np.array_equal(model.predict(tmp_path / "turned.png").scores, upright.scores)
    assert upright.labels.shape == (70, 50)


@pytest.mark.parametrize("wrong", [np.zeros((4, 4)), np.zeros((4, 4, 3)), np.zeros((0, 4, 3), np.uint8), 7])
def test_what_is_no_image_is_told(model, wrong):
    with pytest.raises(UserError, match="an image is"):
        model.predict(wrong)


@pytest.mark.parametrize("mode", ["RGB", "F"])
@pytest.mark.parametrize("size", [(0, 0), (4, 0)])
def test_a_pillow_image_without_pixels_is_told(model, mode, size):
    with pytest.raises(UserError, match=rf"an image is at least 1 x 1; this Pillow image is {size[0]} x 0"):
        model.predict(Image.new(mode, size))


def test_classes_are_present_by_the_posterior_or_without_one_by_the_pixels():
    labels = np.array([[0, 1]], dtype=np.uint8)
    names = ("background", "cow", "bus")
    scores = np.zeros((3, 1, 2), np.float32)
    image = np.zeros((1, 2, 3), np.uint8)
    assert Result(image, names, labels, scores, labels, {"cow": 0.2, "bus": 0.9}, None).present == ("bus",)
    assert Result(image, names, labels, scores, labels, None, None).present == ("cow",)


def test_settings_of_inference_change_the_scores_and_others_are_refused(model, tiny_run):
    plain = model.predict(photo()).scores
    changed = ipseg.load(tiny_run, method={"alpha_bc": 0.1}).predict(photo()).scores
    assert np.allclose(changed[0] * 9, plain[0], rtol=1e-4)
    with pytest.raises(UserError, match=r"training.lr is part of how .* was trained"):
        ipseg.load(tiny_run, training={"lr": 1})
    same = yaml.safe_load((tiny_run / "recipe.yaml").read_text())["training"]["lr"]
    assert np.array_equal(ipseg.load(tiny_run, training={"lr": same}).predict(photo()).scores, plain)


# ---- train ------------------------------------------------------------------------------------------------------


def test_train_takes_settings_a_recipe_or_a_file_and_gives_results(tiny_settings, tmp_path):
    result = ipseg.train(tiny_settings, tmp_path / "one", scenario={"name": "joint"}, quiet=True)
    assert len(result.steps) == 1
    recipe = make_recipe(tiny_settings | {"scenario": {"name": "joint"}})
    again = ipseg.train(recipe, tmp_path / "two", seed=0, quiet=True)
    assert again.final() == result.final()
    written = tmp_path / "one" / "recipe.yaml"
    assert ipseg.train(written, tmp_path / "three", quiet=True).final() == result.final()
    assert to_dict(make_recipe(to_dict(recipe))) == to_dict(recipe)


def test_settings_are_keywords_of_every_kind(tiny_settings, tiny_run, tmp_path):
    changes = {"scenario": {"name": "joint"}, "training": {"lr": 1e-5, "crop": [32, 48]}, "device": "cpu"}
    result = ipseg.train(tiny_settings, tmp_path / "run", quiet=True, **changes)
    assert len(result.steps) == 1
    written = yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text())
    assert (written["training"]["lr"], written["training"]["crop"], written["device"]) == (1e-5, [32, 48], "cpu")
    with pytest.raises(UserError, match=r"--set model.width=8: model.width is fixed"):
        ipseg.extend(tiny_run, tmp_path, "sheep", tmp_path / "more", model={"width": 8})
    with pytest.raises(UserError, match=r"model.width is part of how"):
        ipseg.load(tiny_run, model={"width": 8})
    with pytest.raises(UserError, match="a setting is a number, a text, a list"):
        ipseg.load(tiny_run, seed=object())


# ---- results ----------------------------------------------------------------------------------------------------


def test_images_come_in_many_forms(model):
    pixels = photo()
    plain = model.predict(pixels).labels
    tensor = torch.from_numpy(pixels.copy()).permute(2, 0, 1)
    alpha = np.dstack([pixels, np.full(pixels.shape[:2], 255, np.uint8)])
    for image in (tensor, tensor.float() / 255, alpha, Image.fromarray(alpha)):
        assert np.array_equal(model.predict(image).labels, plain)
    gray = pixels[..., 0]
    twice = model.predict([gray, torch.from_numpy(gray.copy())[None]])
    assert np.array_equal(twice[0].labels, twice[1].labels)
    assert np.array_equal(twice[0].labels, model.predict(np.dstack([gray] * 3)).labels)


@pytest.mark.parametrize(
    ("image", "problem"),
    [
        (torch.zeros(4, 8, 8), r"\(4, 8, 8\) of torch.float32"),
        (torch.zeros(3, 8, 8, dtype=torch.int32), "of torch.int32"),
        (torch.full((3, 8, 8), 2.0), "no normalization"),
        (torch.full((3, 8, 8), torch.nan), "no normalization"),
        (np.zeros((8, 8, 2), np.uint8), r"\(8, 8, 2\)"),
        (7, "not int"),
    ],
)
def test_an_array_that_is_no_image_is_refused(model, image, problem):
    with pytest.raises(UserError, match=problem):
        model.predict(image)


def test_a_result_draws_saves_and_describes_itself(model, tmp_path):
    result = model.predict(photo())
    height, width = result.labels.shape
    assert repr(result).startswith(f"Result({width} x {height}, ")
    assert repr(model).startswith(f"Model({type(model.method).__name__}, step {model.step}, ")
    result.save(tmp_path / "labels.png")
    assert np.array_equal(np.asarray(Image.open(tmp_path / "labels.png")), result.labels)
    result.save(tmp_path / "labels.png")  # its own file is replaced
    with Image.open(io.BytesIO(result._repr_png_())) as drawn:
        assert drawn.width >= width
    (tmp_path / "mine.png").write_bytes(b"somebody else's")
    with pytest.raises(UserError, match="is not replaced"):
        result.save(tmp_path / "mine.png")


def test_evaluate_compare_and_explain_are_functions_too(tiny_run):
    again = ipseg.evaluate(tiny_run, quiet=True)
    assert again.miou == RunResult.read(tiny_run / "results.json").steps[-1].miou
    (table,) = ipseg.compare(tiny_run)
    assert len(table.rows) == 1
    assert ipseg.explain(tiny_run, "val/000000").axes
