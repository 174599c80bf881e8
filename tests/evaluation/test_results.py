"""Results of a run: what is derived from the steps, and the file they stand in."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from ipseg.errors import UserError
from ipseg.evaluation.metrics import miou_groups
from ipseg.evaluation.results import RunResult, StepResult, forgetting


def step(index: int, new: tuple[str, ...], iou: dict[str, float | None], **rest) -> StepResult:
    later = [name for name in iou if name not in ("background", "cat", "dog")]
    return StepResult(step=index, new=new, iou=iou, miou=miou_groups(iou, ["cat", "dog"], later), images=7, **rest)


STEPS = (
    step(0, ("cat", "dog"), {"background": 0.9, "cat": 0.6, "dog": 0.6}),
    step(1, ("cow",), {"background": 0.8, "cat": 0.7, "dog": 0.3, "cow": 0.6}),
    step(
        2,
        ("sheep",),
        {"background": 0.8, "cat": 0.5, "dog": None, "cow": 0.8, "sheep": 0.3},
        image_accuracy={"all": {"posterior": 0.5, "pixel": 0.25, "both": None}},
    ),
)
COUNTED = step(0, ("cat", "dog"), {"background": 0.9, "cat": 0.5, "dog": None}, confusion={"cat": {"cat": 7, "dog": 7}})
RUN = RunResult(
    name="IPSeg", method="ipseg", scenario="voc/2-1", setting="overlap", seed=3, steps=STEPS, oracle=("labels",),
    info={"steps": 3},
)  # fmt: skip


def test_forgetting_is_the_best_earlier_iou_minus_the_last():
    lost = forgetting(STEPS)
    assert lost == {
        "background": pytest.approx(0.1),
        "cat": pytest.approx(0.2),  # best after step 1, not after its own
        "dog": None,  # not in the last validation
        "cow": pytest.approx(-0.2),  # got better
    }


def test_a_class_of_the_last_step_cannot_be_forgotten_yet():
    assert "sheep" not in forgetting(STEPS)
    assert forgetting(STEPS[:1]) == {}


def test_final_is_the_last_step_the_average_over_steps_and_the_forgetting():
    final = RUN.final()
    assert final["miou"] == STEPS[-1].miou
    assert final["average"] == pytest.approx((0.7 + 0.6 + 0.6) / 3)
    assert final["forgetting_mean"] == pytest.approx((0.1 + 0.2 - 0.2) / 3)


def test_an_extended_run_has_no_average_and_forgetting_over_steps_that_were_measured_differently():
    """Its last step has no dog: that folder does not annotate it."""
    extended = replace(RUN, scenario="folder/grown")
    assert not extended.measured_alike
    final = extended.final()
    assert final["miou"] == STEPS[-1].miou
    assert (final["average"], final["forgetting_mean"]) == (None, None)
    assert set(final["forgetting"].values()) == {None}
    other_images = replace(extended, steps=(STEPS[0], replace(STEPS[1], images=9)))
    assert other_images.final()["average"] is None


def test_an_extended_run_that_was_measured_alike_has_both():
    steps = STEPS[:2]
    extended, ordinary = (replace(RUN, scenario=name, steps=steps) for name in ("folder/grown", "voc/2-1"))
    assert extended.measured_alike
    assert extended.final() == ordinary.final()
    assert extended.final()["average"] is not None


def test_a_run_without_steps_has_no_final():
    empty = RunResult(name="n", method="m", scenario="s", setting="overlap", seed=0, steps=())
    assert empty.final() == {}
    assert replace(empty, scenario="folder/grown").final() == {}


def test_a_run_is_complete_when_every_step_is_measured():
    assert RUN.complete
    unfinished = RunResult(
        name="n", method="m", scenario="s", setting="overlap", seed=0, steps=STEPS[:2], info={"steps": 3}
    )
    assert not unfinished.complete


def test_what_is_written_is_read_back(tmp_path):
    path = tmp_path / "results.json"
    RUN.write(path)
    assert RunResult.read(path) == RUN
    assert json.loads(path.read_text())["final"] == RUN.final()


def test_a_confusion_matrix_is_written_and_read(tmp_path):
    path = tmp_path / "results.json"
    counted = replace(RUN, steps=(COUNTED,))
    counted.write(path)
    assert RunResult.read(path) == counted


def test_results_of_a_newer_format_are_refused(tmp_path):
    path = tmp_path / "results.json"
    path.write_text(json.dumps(RUN.to_json() | {"version": 3}))
    with pytest.raises(UserError, match="format 3, this ipseg reads up to 2"):
        RunResult.read(path)


def test_results_of_version_1_are_read_and_have_no_confusion(tmp_path):
    path = tmp_path / "results.json"
    old = RUN.to_json() | {"version": 1}
    old["steps"] = [{key: value for key, value in step.items() if key != "confusion"} for step in old["steps"]]
    path.write_text(json.dumps(old))
    assert RunResult.read(path) == RUN
    assert RunResult.read(path).steps[-1].confusion is None


@pytest.mark.parametrize(
    "change",
    [
        {"step": "2"},
        {"iou": "x"},
        {"iou": {"cat": "x"}},
        {"miou": {"all": 0.5, "base": [1]}},
        {"miou": {"all": float("nan")}},
        {"miou": {"all": 68.1}},
        {"image_accuracy": "x"},
        {"image_accuracy": {"all": 0.5}},
        {"image_f1": {"all": {"both": "x"}}},
        {"images": "x"},
        {"images": -1},
        {"images": True},
        {"confusion": "x"},
        {"confusion": {"cat": {"cat": 0.5}}},
        {"confusion": {"cat": {"cat": -7}}},
    ],
    ids=str,
)
def test_a_step_s_values_are_of_their_kinds(change):
    """Told by the value's name, wherever a step is read."""
    plain = RUN.to_json()
    whole = plain | {"steps": [plain["steps"][0] | change]}
    for read in (lambda: RunResult.from_json(whole), lambda: replace(COUNTED, **change)):
        with pytest.raises(TypeError, match=next(iter(change))):
            read()


@pytest.mark.parametrize(
    "text", ["", "{", '{"version": 1', "\x00", '{"name": "IPSeg"}', "[1]", '{"version": "x"}', "[" * 100_000]
)
def test_damaged_results_are_refused(tmp_path, text):
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(UserError, match="the file of results is damaged"):
        RunResult.read(path)


def test_missing_results_are_named(tmp_path):
    with pytest.raises(UserError, match="missing"):
        RunResult.read(tmp_path / "results.json")


def test_result_types_need_no_torch():
    code = "import sys, ipseg.evaluation.results, ipseg.evaluation.metrics; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
