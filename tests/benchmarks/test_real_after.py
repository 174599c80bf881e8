"""What benchmarks/real measures on finished runs, and draws."""

from __future__ import annotations

import json
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ipseg.apps.evaluate import evaluate_again
from ipseg.evaluation.results import RunResult
from ipseg.training.experiment import run
from ipseg.training.recipe import make_recipe

pytestmark = pytest.mark.slow  # together; they are scripts beside the library

NAMES = "after", "figures", "maps", "moments", "oracles", "wrong_pixels"
AFTER, FIGURES, MAPS, MOMENTS, ORACLES, WRONG_PIXELS = map(import_module, NAMES)


@pytest.fixture(scope="module")
def joint_run(make_tiny, tmp_path_factory) -> Path:
    settings = make_tiny() | {"name": "joint", "method": {"name": "joint"}, "scenario": {"name": "joint"}}
    path = tmp_path_factory.mktemp("runs") / "joint"
    run(make_recipe(settings), path, quiet=True)
    return path


@pytest.fixture(scope="module")
def measured(tiny_run, joint_run, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("after") / "after.json"
    assert AFTER.main([str(tiny_run), str(joint_run), "--out", str(out), "--device", "cpu"]) == 0
    return out


def entry(out: Path, path: Path) -> dict[str, Any]:
    return json.loads(out.read_text())["runs"][path.as_posix()]


def test_the_runs_own_settings_give_the_recorded_numbers(measured, tiny_run, joint_run):
    for path in (tiny_run, joint_run):
        found, recorded = entry(measured, path), RunResult.read(path / "results.json")
        final = recorded.steps[-1]
        assert found["miou"] == {group: final.miou[group] for group in ("all", "base", "new")}
        for curve, own in (found["own"] or {}).items():
            assert [point["all"] for point in found["curves"][curve] if point["value"] == own] == [final.miou["all"]]
        for step, accuracy in zip(recorded.steps, found["image_accuracy"], strict=True):
            assert accuracy == {"step": step.step, **(step.image_accuracy or {})}


@pytest.mark.parametrize(("curve", "value"), [("alpha_nf", 1.0), ("alpha_bc", 0.5)])
def test_other_settings_give_what_evaluating_with_them_gives(measured, tiny_run, curve, value):
    (point,) = [point for point in entry(measured, tiny_run)["curves"][curve] if point["value"] == value]
    again = evaluate_again(tiny_run, None, [f"method.{curve}={value}"], quiet=True)
    assert point == {"value": value, **{group: again.miou[group] for group in ("all", "base", "new")}}


def test_every_wrong_pixel_is_counted_once_under_its_true_class(measured, tiny_run, joint_run):
    for path in (tiny_run, joint_run):
        found = entry(measured, path)
        confusion = RunResult.read(path / "results.json").steps[-1].confusion or {}
        wrong = {true: sum(row.values()) - row.get(true, 0) for true, row in confusion.items()}
        assert found["pixels"] == {true: sum(row.values()) for true, row in confusion.items()}
        for reading in AFTER.READINGS:
            for which in ("true", "winning"):
                counted = {true: sum(bins) for true, bins in found["wrong"][reading][which].items()}
                assert counted == {true: count for true, count in wrong.items() if count}
        for row in found["wrong"]["normalized"]["mean"].values():
            assert sum(row.values()) == pytest.approx(1, abs=0.001)


def test_what_is_measured_is_not_measured_again_and_what_is_unfinished_is_named(measured, tiny_run, tmp_path, capsys):
    unfinished, out = tmp_path / "cut", tmp_path / "after.json"
    shutil.copytree(tiny_run, unfinished)
    results = json.loads((unfinished / "results.json").read_text())
    (unfinished / "results.json").write_text(json.dumps(results | {"steps": results["steps"][:2]}))
    shutil.copy(measured, out)
    assert AFTER.main([str(unfinished), str(tmp_path / "none"), str(tiny_run), "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert "cut is not finished (2 of 3 steps)" in said.err
    assert "none is not a run's folder" in said.err
    assert "measured before" in said.out
    assert out.read_text() == measured.read_text()


def test_the_file_does_not_go_into_a_run(tiny_run, capsys):
    assert AFTER.main([str(tiny_run), "--out", str(tiny_run / "after.json")]) == 2
    assert "lies in the run" in capsys.readouterr().err


def test_joint_is_split_as_those_that_learned_in_steps(measured):
    rows = FIGURES.rows_of(json.loads(measured.read_text())["runs"])
    stepped, joint = rows["ipseg"][0], rows["joint"][0]
    assert joint["new"] == []
    assert WRONG_PIXELS.truths(joint, rows) == WRONG_PIXELS.truths(stepped, rows)


def test_joint_is_a_line_beside_the_image_accuracy_of_those_that_learned_in_steps(measured):
    rows = FIGURES.rows_of(json.loads(measured.read_text())["runs"])
    base, every = FIGURES.image_accuracy({name: rows[name] for name in ("ipseg", "joint")}).axes
    assert [len(axes.lines) for axes in (base, every)] == [3, 4]  # posterior, pixel and both; joint
    assert FIGURES.image_accuracy({"joint": rows["joint"]}) is None


def test_the_number_of_the_own_setting_stands_at_its_ring_and_the_name_at_the_end(measured):
    runs = FIGURES.rows_of(json.loads(measured.read_text())["runs"])["ipseg"]
    panels = FIGURES.alphas({"ipseg": runs}).axes
    for axes, curve in zip(panels, FIGURES.CURVES, strict=True):
        points = runs[0]["curves"][curve]
        own = next(point for point in points if point["value"] == runs[0]["own"][curve])
        (number,) = [text for text in axes.texts if text.get_text() == f"{100 * own['all']:.1f}"]
        assert number.xy == (own["value"], 100 * own["all"])
    assert "ipseg" in [text.get_text() for text in panels[-1].get_legend().get_texts()]


def test_rows_of_fewer_steps_do_not_cut_off_the_others(measured):
    (run,) = FIGURES.rows_of(json.loads(measured.read_text())["runs"])["ipseg"]
    shorter = run | {"image_accuracy": run["image_accuracy"][:2]}
    panels = FIGURES.image_accuracy({"long": [run], "short": [shorter]}).axes
    assert [round(axes.get_xlim()[1], 1) for axes in panels] == [2.2, 2.2, 1.2, 1.2]


def test_seeds_are_one_row_and_two_runs_of_one_seed_are_not():
    def made(seed: int, scenario: str = "toy/2-1", name: str = "a") -> dict[str, Any]:
        return {"name": name, "scenario": scenario, "setting": "overlap", "set": [], "seed": seed}

    assert set(FIGURES.rows_of({"x": made(0), "y": made(1), "z": made(0, "toy/joint", "joint")})) == {"a", "joint"}
    assert set(FIGURES.rows_of({"x": made(0), "y": made(1, "toy/3-1")})) == {"a 2-1", "a 3-1"}
    assert set(FIGURES.rows_of({"x": made(0), "y": made(0)})) == {"x", "y"}


def test_every_figure_is_drawn_and_a_wrong_row_is_named(measured, tmp_path, capsys):
    assert FIGURES.main([str(measured), "--out", str(tmp_path / "figures")]) == 0
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {f"{name}.png" for name in FIGURES.DRAWINGS}
    assert FIGURES.main([str(measured), "--out", str(tmp_path / "one"), "--only", "alphas"]) == 0
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["alphas.png"]
    assert FIGURES.main([str(measured), "--out", str(tmp_path), "--runs", "ipsg"]) == 2
    assert "Did you mean ipseg" in capsys.readouterr().err


def test_oracles_replace_one_part_and_leave_the_others(tiny_run, joint_run, tmp_path, capsys):
    out = tmp_path / "oracles.json"
    assert ORACLES.main([str(joint_run), str(tiny_run), "--out", str(out), "--device", "cpu"]) == 0
    assert f"{joint_run}: left out" in capsys.readouterr().err
    ((name, found),) = json.loads(out.read_text())["runs"].items()
    assert name == tiny_run.as_posix()
    again = shutil.copytree(tiny_run, tmp_path / "again" / tiny_run.name)  # as another sweep calls it
    assert ORACLES.main([str(again), "--out", str(out), "--device", "cpu"]) == 0
    assert [*json.loads(out.read_text())["runs"]] == [tiny_run.as_posix(), again.as_posix()]
    final = RunResult.read(tiny_run / "results.json").steps[-1]
    assert found["miou"]["as it is"]["all"] == final.miou["all"]
    assert set(found["miou"]) == set(ORACLES.WAYS)


def test_heads_with_decoders_of_their_own_are_measured_too(make_tiny, tmp_path):
    path, out = tmp_path / "own", tmp_path / "after.json"
    run(make_recipe(make_tiny() | {"method": {"name": "ipseg_lda"}}), path, quiet=True)
    assert AFTER.main([str(path), "--out", str(out), "--device", "cpu"]) == 0
    found = entry(out, path)
    assert found["miou"]["all"] == found["recorded"]


def test_a_told_posterior_says_the_truth_or_divides_by_the_largest():
    real = torch.nn.Identity()
    real.sizes = [2, 1]
    told, logits = ORACLES.Told(real), torch.tensor([[0.2, 0.4, 0.1]]).logit()
    assert torch.equal(told(logits), logits)
    told.relative = True
    assert torch.allclose(told(logits).sigmoid(), torch.tensor([[0.5, 1.0, 0.25]]), atol=1e-5)
    told.truth = torch.tensor([[True, False, True]])
    assert told(logits).sigmoid().tolist() == [[1.0, pytest.approx(0, abs=1e-9), 1.0]]


def test_a_known_foreground_leaves_the_choice_of_its_class():
    scores = torch.tensor([[[[0.9, 0.9, 0.1]], [[0.1, 0.2, 0.3]], [[0.3, 0.1, 0.2]]]])
    truth = torch.tensor([[[2, 1, 0]]])
    assert ORACLES.among(scores, truth).tolist() == [[[2, 1, 0]]]


# ---- label maps -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def maps(tiny_run, joint_run, tmp_path_factory) -> Path:
    """Of two runs, looked at one after the other."""
    out = tmp_path_factory.mktemp("maps") / "maps.npz"
    for path in (tiny_run, joint_run):
        assert MAPS.main(["look", str(path), "--device", "cpu", "--out", str(out)]) == 0
    return out


def test_label_maps_of_runs_are_kept_together(maps):
    classes, found = MAPS.read(maps)
    assert len(found) == 3
    truth = found[MAPS.TRUTH]
    assert len(truth) == len(classes) - 1
    for labeled in found.values():
        assert [labels.shape for labels in labeled.values()] == [labels.shape for labels in truth.values()]
        assert all(set(np.unique(labels)) <= {*range(len(classes)), 255} for labels in labeled.values())


def test_maps_are_of_one_picture_a_class_in_which_it_is_as_large_as_usual(tiny_run):
    opened = AFTER.Opened.of(tiny_run, torch.device("cpu"), [])
    val, order = opened.splits.val, opened.scenario.order
    chosen = MAPS.typical(opened.splits, opened.scenario)
    assert len(set(chosen)) == len(order)
    for index, name in zip(chosen, order, strict=True):
        value = 1 + opened.splits.classes.index(name)
        shares = [(val.mask(i) == value).mean() for i, shown in enumerate(val.class_presence()) if value in shown]
        assert (val.mask(index) == value).mean() >= np.median(shares)  # just so, or the next that is not shown yet


def test_label_maps_are_drawn_beside_the_truth(maps, tmp_path):
    for words in ([], ["--runs", list(MAPS.read(maps)[1])[-1]]):
        out = tmp_path / f"maps{len(words)}.png"
        assert MAPS.main(["draw", str(maps), *words, "--out", str(out)]) == 0
        assert out.stat().st_size > 1000


def test_runs_whose_maps_cannot_be_had_are_named(tiny_run, maps, tmp_path, capsys):
    (tmp_path / "results.json").write_bytes((tiny_run / "results.json").read_bytes())
    alone = ["look", str(tmp_path / "results.json"), "--device", "cpu", "--out", str(tmp_path / "maps.npz")]
    assert MAPS.main(alone) == 2
    assert "there are only its results" in capsys.readouterr().err
    assert MAPS.main(["draw", str(maps), "--runs", "ipsg", "--out", str(tmp_path / "maps.png")]) == 2
    assert "Did you mean ipseg" in capsys.readouterr().err


def test_what_is_no_file_of_maps_is_named(tmp_path, capsys):
    text, empty = tmp_path / "text.npz", tmp_path / "empty.npz"
    text.write_text("hello")
    np.savez(empty)
    for path in (text, empty, tmp_path / "none.npz"):
        assert MAPS.main(["draw", str(path), "--out", str(tmp_path / "maps.png")]) == 2
        assert f"{path} cannot be read as label maps" in capsys.readouterr().err


def test_maps_of_other_pictures_are_not_mixed(tiny_run, maps, tmp_path, capsys):
    classes, found = MAPS.read(maps)
    first = next(iter(found[MAPS.TRUTH]))
    fewer = tmp_path / "maps.npz"
    np.savez(fewer, **{MAPS.CLASSES: np.array(classes), f"{MAPS.TRUTH}/{first}": found[MAPS.TRUTH][first]})
    before = fewer.read_bytes()
    assert MAPS.main(["look", str(tiny_run), "--device", "cpu", "--out", str(fewer)]) == 2
    assert "is of other classes or pictures" in capsys.readouterr().err
    assert fewer.read_bytes() == before


def test_average_precision_is_that_of_the_textbook():
    scores, truth = torch.tensor([0.9, 0.1, 0.8, 0.4]), torch.tensor([True, False, False, True])
    assert MOMENTS.average_precision(scores, truth) == pytest.approx((1 / 1 + 2 / 3) / 2)


def test_a_posterior_from_moments_is_judged_on_drawn_scenes(tmp_path, monkeypatch):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "base: scenes_3-1_ipseg\n"
        "data: {train: 120, val: 1, size: [48, 48]}\n"
        "model: {backbone: {name: resnet10t, weights: none}, width: 8}\n"
        "training: {crop: [48, 48]}\n"
    )
    monkeypatch.setattr(MOMENTS, "RECIPE", recipe)
    MOMENTS.main(["--out", str(tmp_path / "out.json"), "--device", "cpu"])
    found = json.loads((tmp_path / "out.json").read_text())["average_precision"]
    shrunk = ["shrunk 0.5", "shrunk 1.0", "shrunk 2.0", "shrunk 4.0"]
    assert list(found) == [*shrunk, "100 pictures", "old absent", "old wrong"]
    assert all(0 <= value <= 1 and len(row) == 6 + 1 for row in found.values() for value in row.values())


def test_guesses_of_old_classes_leave_the_steps_own_alone():
    labels = torch.rand(50, 4) < 0.5
    looked = MOMENTS.Looked([(torch.zeros(50, 1), labels)] * 2, (labels, labels), [])
    (_, first), (_, absent) = MOMENTS.guessed(looked, [0, 3], None)
    assert torch.equal(first, labels)
    assert torch.equal(absent, labels & torch.tensor([False, False, False, True]))
    (_, first), (_, wrong) = MOMENTS.guessed(looked, [0, 3], 0.5)
    assert torch.equal(first, labels)
    assert torch.equal(wrong[:, 3], labels[:, 3])
    assert (wrong & ~labels).any()
    assert not (labels & ~wrong).any()
