from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import ipseg
from commands import call, fails
from ipseg import UserError
from ipseg.apps import explain_sheet
from ipseg.apps.explain import explain, save_sheet
from ipseg.apps.explain_sheet import Panel, Sheet, draw
from ipseg.data.scenes.dataset import ScenesConfig

pytestmark = pytest.mark.slow

SCENES = ScenesConfig(size=(64, 64), classes=4, train=24, val=8)


@pytest.fixture
def photo(tmp_path) -> Path:
    """An image of the user's."""
    Image.fromarray(SCENES.build().val.image(1)).save(tmp_path / "photo.png")
    return tmp_path / "photo.png"


def panels(sheet: Sheet) -> dict[str, Any]:
    """What is drawn, by its caption."""
    return {panel.caption: panel.values for row in sheet.rows.values() for panel in row}


def test_a_sheet_shows_labels_heads_posterior_and_both_results(tiny_run):
    sheet = explain(tiny_run, "val/000001", step=1)
    assert sheet.notes == []
    assert set(panels(sheet)) == {
        "image x", "y: labels of step 1", "S(x): saliency", "f_t-1(x): model of step 0",
        "y~p: permanent branch", "y~t: branch of step 1",
        "c'_b  background", "c'_u  unknown", "c_f  other", "cow", "bus", "horse",
        "pixels alone", "image posterior", "result: pixels x posterior", "ground truth",
    }  # fmt: skip


def test_the_results_on_the_sheet_are_those_of_the_model(tiny_run):
    drawn = panels(explain(tiny_run, "val/000001", step=1))
    result = ipseg.load(tiny_run, 1).predict(SCENES.build().val.image(1))
    assert np.array_equal(drawn["pixels alone"], result.pixel_labels)
    assert np.array_equal(drawn["result: pixels x posterior"], result.labels)
    assert drawn["image posterior"] == pytest.approx(result.posterior)


def test_the_label_maps_follow_equation_5(tiny_run):
    drawn, split = panels(explain(tiny_run, "train/000002", step=1)), SCENES.build().train
    mask, salient = split.mask(2), split.saliency(2)
    old = ipseg.load(tiny_run, 0).predict(split.image(2)).labels > 0
    horse = mask == 3
    permanent, temporary = drawn["y~p: permanent branch"], drawn["y~t: branch of step 1"]
    assert np.array_equal(permanent == explain_sheet.IGNORED, horse | old)
    assert np.array_equal(permanent == explain_sheet.UNKNOWN_THING, ~horse & ~old & salient)
    assert np.array_equal(permanent == explain_sheet.PURE, ~horse & ~old & ~salient)
    assert np.array_equal(temporary == 3, horse)  # its learned index
    assert np.array_equal(temporary == explain_sheet.OTHER, ~horse & salient)
    assert np.array_equal(temporary == explain_sheet.PURE, ~horse & ~salient)


def test_a_step_is_shown_no_label_but_its_own(tiny_run):
    drawn = panels(explain(tiny_run, "train/000002", step=1))
    assert set(np.unique(drawn["y: labels of step 1"])) <= {0, 3, 255}


def test_an_image_is_named_with_or_without_its_split(tiny_run):
    bare, full = (panels(explain(tiny_run, name))["ground truth"] for name in ("000001", "val/000001"))
    assert np.array_equal(bare, full)


def test_an_own_image_has_no_label_maps(tiny_run, photo):
    sheet = explain(tiny_run, str(photo))
    assert "The label maps are left out" in sheet.notes[0]
    assert not {"y~p: permanent branch", "ground truth"} & set(panels(sheet))
    assert "image posterior" in panels(sheet)


def test_the_base_step_has_no_previous_model(tiny_run):
    drawn = panels(explain(tiny_run, "val/000001", step=0))
    assert not [caption for caption in drawn if caption.startswith("f_t-1")]
    assert "y~t: branch of step 0" in drawn


def test_without_decoupling_and_posterior_there_is_one_label_map_and_one_result(tiny_settings, tmp_path):
    method = {"name": "ipseg", "image_posterior": False, "decoupling": False}
    ipseg.train(tiny_settings | {"method": method, "scenario": {"name": "3-1"}}, tmp_path / "run", quiet=True)
    drawn = panels(explain(tmp_path / "run", "val/000001"))
    assert {"y~: one map, coupled", "result"} <= set(drawn)
    assert not {"y~p: permanent branch", "c_f  other", "image posterior"} & set(drawn)


def test_in_the_official_variant_both_label_maps_hold_the_classes(tiny_settings, tmp_path):
    settings = tiny_settings | {"method": {"name": "ipseg", "variant": "official"}, "scenario": {"name": "joint"}}
    ipseg.train(settings, tmp_path / "run", quiet=True)
    drawn = panels(explain(tmp_path / "run", "val/000001"))
    truth = drawn["ground truth"]
    permanent, temporary = (drawn[f"y~: {name}, all classes"] for name in ("permanent", "step 0"))
    for labels, other in ((permanent, explain_sheet.UNKNOWN_THING), (temporary, explain_sheet.OTHER)):
        assert np.array_equal(labels[truth > 0], truth[truth > 0])
        assert set(np.unique(labels[truth == 0])) <= {other, explain_sheet.PURE, explain_sheet.IGNORED}


def test_of_many_heads_and_classes_the_strongest_are_drawn_and_a_note_says_so():
    rng = np.random.default_rng(0)
    heads = {
        f"head of step {step}": {name: rng.random((8, 8), np.float32) for name in ["c_f", "c'_b", *"abcdefg"]}
        for step in range(9)
    }
    heads["head of step 3"]["g"][0, 0] = 1.0  # the strongest class of the strongest head
    rows, notes = explain_sheet.head_rows(heads)
    assert len(rows) == explain_sheet.MAX_HEADS
    assert [len(row) for row in rows.values()] == [1 + explain_sheet.MAX_CLASSES] * len(rows)
    assert "g" in [panel.caption for panel in rows["head of step 3"]]
    assert notes == ["Of 9 heads at most 6 are drawn, with 4 classes each: the strongest."]
    assert explain_sheet.head_rows({"head of step 0": {"cow": np.zeros((8, 8), np.float32)}})[1] == []


def test_every_special_color_and_class_is_named_in_the_legend(tiny_run):
    figure = draw(explain(tiny_run, "val/000001"))
    names = [text.get_text().split("  ")[0] for legend in figure.legends for text in legend.get_texts()]
    assert names == ["c'_b", "c'_u", "c_f", "ignored", "cow", "bus", "horse", "car"]


def sheet_of(values: Any, *, classes: tuple[str, ...] = (), caption: str = "", title: str = "") -> Sheet:
    image = np.zeros((20, 26, 3), np.uint8)
    rows = {"row": [Panel(caption, values)]}
    return Sheet(image=image, classes=("background", *classes), title=title, rows=rows)


def test_label_maps_hold_every_possible_index(tmp_path):
    every = np.arange(260).repeat(2).reshape(20, 26)
    save_sheet(draw(sheet_of(every)), tmp_path / "a.png")


@pytest.mark.parametrize("name", ["$\\frac$", "_hidden", "a\nb", "üéßøяα", "x" * 500])
def test_names_are_drawn_as_text_whatever_they_are(tmp_path, name):
    sheet = sheet_of({name: 0.5}, classes=(name,), caption=name, title=name)
    save_sheet(draw(sheet), tmp_path / "a.png")
    (legend,) = draw(sheet).legends
    assert len(legend.get_texts()) == 1


# ---- the command ------------------------------------------------------------------------------------------------


def test_the_command_writes_a_png_and_says_what_it_leaves_out(tiny_run, photo, tmp_path):
    out = tmp_path / "new" / "why.png"
    result = call("explain", tiny_run, photo, "--out", out)
    assert result.exit_code == 0, result.output
    assert "label maps are left out" in result.output
    with Image.open(out) as sheet:
        assert sheet.format == "PNG"
        assert sheet.width > 800


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["val/999999", "--out", "why.png"], 'no image "val/999999"'),
        (["val/000001", "--out", "why.jpg"], "let the name end with .png"),
        (["val/000001", "--out", "why.png", "--step", "7"], "has no step 7"),
        (["PHOTO", "--out", "PHOTO"], "would overwrite"),
    ],
)
def test_a_wrong_call_is_refused_and_nothing_is_written(tiny_run, photo, monkeypatch, words, problem):
    monkeypatch.chdir(photo.parent)
    before = photo.read_bytes()
    assert problem in fails("explain", tiny_run, *(photo if word == "PHOTO" else word for word in words))
    assert [path.name for path in photo.parent.iterdir()] == ["photo.png"]
    assert photo.read_bytes() == before


def test_nothing_is_drawn_into_the_run(tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    assert "inside the run directory" in fails("explain", run, "val/000001", "--out", run / "new" / "why.png")
    assert not (run / "new").exists()


def test_only_ipseg_is_explained(tiny_settings, tmp_path):
    settings = tiny_settings | {"method": {"name": "finetune"}, "scenario": {"name": "joint"}}
    ipseg.train(settings, tmp_path / "run", quiet=True)
    with pytest.raises(UserError, match="a run of the method finetune"):
        explain(tmp_path / "run", "val/000001")
