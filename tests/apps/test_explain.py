from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import ipseg
from commands import call, fails
from ipseg import UserError
from ipseg.apps import explain_sheet
from ipseg.apps.explain import explain
from ipseg.apps.explain_sheet import Head, View
from ipseg.data.scenes.dataset import ScenesConfig

pytestmark = pytest.mark.slow


@pytest.fixture
def own(tmp_path) -> dict[str, Path]:
    """A picture with its ground truth and saliency, as files."""
    split = ScenesConfig(size=(64, 64), classes=4, train=24, val=8).build().val
    paths = {name: tmp_path / f"{name}.png" for name in ("image", "mask", "saliency")}
    Image.fromarray(split.image(1)).save(paths["image"])
    Image.fromarray(split.mask(1)).save(paths["mask"])
    Image.fromarray(split.saliency(1).astype(np.uint8) * 255).save(paths["saliency"])
    return paths


@pytest.fixture
def drawn(monkeypatch) -> dict[str, np.ndarray]:
    """Every label map that is painted, by its caption, and every heat map."""
    maps: dict[str, np.ndarray] = {}
    real_painted, real_heat, real_bars = explain_sheet.painted, explain_sheet.heat, explain_sheet.bars

    def painted(view, labels, caption):
        maps[caption] = np.asarray(labels)
        return real_painted(view, labels, caption)

    def heat(scores, name):
        maps[name] = scores
        return real_heat(scores, name)

    def bars(view, posterior, caption):
        maps[caption] = np.array(list(posterior.values()))
        return real_bars(view, posterior, caption)

    for function in (painted, heat, bars):
        monkeypatch.setattr(explain_sheet, function.__name__, function)
    return maps


def test_a_sheet_shows_labels_heads_posterior_and_both_results(tiny_run, drawn):
    sheet, notes = explain(tiny_run, "val/000001", step=1)
    assert sheet.width > 800
    assert notes == []
    assert set(drawn) == {
        "y: what step 1 may see", "S(x): saliency", "f_t-1(x): model of step 0",
        "y~p: permanent branch", "y~t: branch of step 1",
        "c'_b  background", "c'_u  unknown", "c_f  other", "cow", "bus", "horse",
        "pixels alone", "image posterior", "result: pixels x posterior", "ground truth",
    }  # fmt: skip


def test_the_results_on_the_sheet_are_those_of_the_model(tiny_run, drawn):
    explain(tiny_run, "val/000001", step=1)
    split = ScenesConfig(size=(64, 64), classes=4, train=24, val=8).build().val
    result = ipseg.load(tiny_run, 1).predict(split.image(1))
    assert np.array_equal(drawn["pixels alone"], result.pixel_labels)
    assert np.array_equal(drawn["result: pixels x posterior"], result.labels)
    assert np.allclose(drawn["image posterior"], list((result.posterior or {}).values()))


def test_the_label_maps_follow_equation_5(tiny_run, drawn):
    explain(tiny_run, "train/000002", step=1)
    split = ScenesConfig(size=(64, 64), classes=4, train=24, val=8).build().train
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


def test_a_step_is_shown_no_label_but_its_own(tiny_run, drawn):
    explain(tiny_run, "train/000002", step=1)
    assert set(np.unique(drawn["y: what step 1 may see"])) <= {0, 3, 255}


def test_a_picture_is_named_with_or_without_its_split(tiny_run, drawn):
    explain(tiny_run, "000001")
    bare = drawn["ground truth"].copy()
    explain(tiny_run, "val/000001")
    assert np.array_equal(bare, drawn["ground truth"])


def test_an_own_picture_needs_mask_and_saliency_for_the_label_maps(tiny_run, own, drawn, tmp_path):
    _, notes = explain(tiny_run, str(own["image"]))
    assert "The label maps are left out" in notes[0]
    assert "y~p: permanent branch" not in drawn
    _, notes = explain(tiny_run, str(own["image"]), mask=own["mask"], saliency=own["saliency"])
    of_files = {key: value.copy() for key, value in drawn.items()}
    assert notes == []
    explain(tiny_run, "val/000001")
    assert all(np.array_equal(of_files[key], drawn[key]) for key in drawn)


def test_an_own_mask_is_read_as_the_run_s_masks_are(make_folder_data, tiny_settings, drawn, tmp_path):
    data, photo = make_folder_data(), tmp_path / "photo.png"
    plain, colored = tmp_path / "plain.png", tmp_path / "colored.png"
    shutil.copy(data / "images" / "picture_00.png", photo)
    shutil.copy(data / "masks" / "picture_00.png", plain)
    in_colors(data)
    shutil.copy(data / "masks" / "picture_00.png", colored)
    settings = tiny_settings | {"data": {"name": "folder", "path": str(data)}, "scenario": {"name": "joint"}}
    ipseg.train(settings, tmp_path / "run", quiet=True)
    maps = tmp_path / "saliency.png"
    Image.new("L", (64, 48), 255).save(maps)

    def truth(mask: Path) -> np.ndarray:
        explain(tmp_path / "run", str(photo), mask=mask, saliency=maps)
        return drawn["ground truth"]

    assert np.array_equal(truth(colored), np.array(Image.open(plain)))
    shutil.rmtree(data)  # what is left is the byte a pixel that all masks may have
    assert np.array_equal(truth(plain), np.array(Image.open(plain)))
    with pytest.raises(UserError, match="has mode RGB"):
        truth(colored)


def in_colors(data: Path) -> None:
    """Give the masks of a data folder, and its list of classes, colors."""
    colors = np.array([[0, 0, 0], [200, 0, 0], [0, 200, 0], [0, 0, 200]], dtype=np.uint8)
    names = (data / "classes.txt").read_text().split()
    lines = [f"{name} {red} {green} {blue}" for name, (red, green, blue) in zip(names, colors[1:], strict=True)]
    (data / "classes.txt").write_text("\n".join(lines) + "\n")
    for path in (data / "masks").iterdir():
        Image.fromarray(colors[np.array(Image.open(path))]).save(path)


def test_the_base_step_has_no_previous_model(tiny_run, drawn):
    explain(tiny_run, "val/000001", step=0)
    assert not [caption for caption in drawn if caption.startswith("f_t-1")]
    assert "y~t: branch of step 0" in drawn


def test_without_decoupling_and_posterior_there_is_one_label_map_and_one_result(tiny_settings, tmp_path, drawn):
    method = {"name": "ipseg", "image_posterior": False, "decoupling": False}
    ipseg.train(tiny_settings | {"method": method, "scenario": {"name": "3-1"}}, tmp_path / "run", quiet=True)
    explain(tmp_path / "run", "val/000001")
    assert {"y~: one map, coupled", "result (no posterior)"} <= set(drawn)
    assert not {"y~p: permanent branch", "c_f  other", "image posterior"} & set(drawn)


def test_in_the_official_variant_both_label_maps_hold_the_classes(tiny_settings, tmp_path, drawn):
    settings = tiny_settings | {"method": {"name": "ipseg", "variant": "official"}, "scenario": {"name": "joint"}}
    ipseg.train(settings, tmp_path / "run", quiet=True)
    explain(tmp_path / "run", "val/000001")
    truth = drawn["ground truth"]
    permanent, temporary = (drawn[f"y~: {name} and all classes"] for name in ("permanent branch", "branch of step 0"))
    for labels, other in ((permanent, explain_sheet.UNKNOWN_THING), (temporary, explain_sheet.OTHER)):
        assert np.array_equal(labels[truth > 0], truth[truth > 0])
        assert set(np.unique(labels[truth == 0])) <= {other, explain_sheet.PURE, explain_sheet.IGNORED}


def test_of_many_heads_and_classes_the_strongest_are_drawn_and_that_is_said():
    rng = np.random.default_rng(0)
    heads = [
        Head(f"head of step {step}", {name: rng.random((8, 8)) for name in ["c_f", "c'_b", *"abcdefg"]})
        for step in range(9)
    ]
    heads[3].scores["g"][0, 0] = 1.0  # the strongest class of the strongest head
    rows, notes = explain_sheet.head_rows(heads)
    assert len(rows) == explain_sheet.MOST_HEADS
    assert "head of step 3" in rows
    assert all(len(row) == explain_sheet.COLUMNS for row in rows.values())
    assert notes[0] == "Of 9 heads the 6 with the highest class scores are drawn."
    assert "has 7 classes; the 4 with the highest scores are drawn" in notes[1]


def test_every_special_color_is_named_in_the_legend(tiny_run, monkeypatch):
    legends = []
    real = explain_sheet.with_legend
    monkeypatch.setattr(explain_sheet, "with_legend", lambda picture, e: legends.append(e) or real(picture, e))
    explain(tiny_run, "val/000001")
    names = [text for _, text in legends[0]]
    assert [name.split("  ")[0] for name in names] == ["c'_b", "c'_u", "c_f", "ignored", "cow", "bus", "horse", "car"]


def test_label_maps_hold_every_possible_index():
    view = View(np.zeros((4, 4, 3), np.uint8), ("background",), "")
    every = np.arange(260).repeat(2).reshape(20, 26)
    assert explain_sheet.painted(view, every, "all").size[0] == explain_sheet.WIDTH


BLANK = np.zeros((40, 40, 3), np.uint8)


@pytest.mark.parametrize(
    "draw",
    [
        lambda text: explain_sheet.sheet(View(BLANK, (), text), {"": [explain_sheet.scale()]}, []),
        lambda text: explain_sheet.photo(View(BLANK, (), ""), text),
        lambda text: explain_sheet.bars(View(BLANK, ("background", text), ""), {text: 0.5}, ""),
    ],
)
def test_letters_of_many_languages_are_drawn_as_themselves(draw):
    letters = "üéßøяα–\uffff"  # the last is drawn as a box, and so is all that a font lacks
    assert len({draw(letter).tobytes() for letter in letters}) == len(letters)


# ---- the command ------------------------------------------------------------------------------------------------


def test_the_command_writes_a_png_and_says_what_it_leaves_out(tiny_run, own, tmp_path):
    out = tmp_path / "new" / "why.png"
    result = call("explain", tiny_run, own["image"], "--out", out)
    assert result.exit_code == 0, result.output
    assert "label maps are left out" in result.output
    with Image.open(out) as sheet:
        assert sheet.format == "PNG"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["val/999999", "--out", "why.png"], 'no picture "val/999999"'),
        (["val/000001", "--out", "why.jpg"], "let the name end with .png"),
        (["val/000001", "--out", "why.png", "--step", "7"], "has no step 7"),
        (["val/000001", "--out", "why.png", "--mask", "x.png"], "go with a picture file"),
        (["IMAGE", "--out", "why.png", "--mask", "MASK"], "go together"),
        (["IMAGE", "--out", "IMAGE"], "would overwrite"),
    ],
)
def test_what_cannot_be_explained_is_told_and_nothing_is_written(tiny_run, own, monkeypatch, words, problem):
    tmp_path = own["image"].parent
    monkeypatch.chdir(tmp_path)
    before = own["image"].read_bytes()
    result = call(
        "explain", tiny_run, *({"IMAGE": own["image"], "MASK": own["mask"]}.get(word, word) for word in words)
    )
    assert result.exit_code == 2
    assert problem in result.stderr
    assert not (tmp_path / "why.png").exists()
    assert own["image"].read_bytes() == before


def test_nothing_is_drawn_into_the_run(tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    assert "lies in the run" in fails("explain", run, "val/000001", "--out", run / "new" / "why.png")
    assert not (run / "new").exists()


def test_a_mask_of_another_size_or_with_unknown_values_is_told(tiny_run, own, tmp_path):
    Image.new("L", (10, 10)).save(tmp_path / "small.png")
    with pytest.raises(UserError, match="must be equal"):
        explain(tiny_run, str(own["image"]), mask=tmp_path / "small.png", saliency=own["saliency"])
    Image.new("L", (64, 64), 77).save(tmp_path / "wrong.png")
    with pytest.raises(UserError, match=r"holds the values \[77\].* valid are 0 to 4 and 255"):
        explain(tiny_run, str(own["image"]), mask=tmp_path / "wrong.png", saliency=own["saliency"])


def test_only_ipseg_is_explained(tiny_settings, tmp_path):
    settings = tiny_settings | {"method": {"name": "finetune"}, "scenario": {"name": "joint"}}
    ipseg.train(settings, tmp_path / "run", quiet=True)
    with pytest.raises(UserError, match="a run of the method finetune"):
        explain(tmp_path / "run", "val/000001")
