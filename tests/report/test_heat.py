"""Heat maps as tables: which cell says what."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ipseg.report.groups import drawn, sections_of
from ipseg.report.heat import confusion_map, forgetting_map, iou_over_steps
from ipseg.report.lookalikes import Confusion, look_alikes


def texts(heat) -> dict[str, list[str]]:
    return {name: [cell.text for cell in cells] for name, cells in heat.rows}


def rows(*results):
    return drawn(sections_of(results)[0])


def test_a_class_has_a_cell_after_every_step_from_its_own_on(make_run):
    (row,) = rows(make_run(quality=0.5, keep=0.5))
    found = texts(iou_over_steps(row, ["background", "person", "cat", "sofa"], [0, 1, 2]))
    assert found == {
        "background": ["90", "90", "90"],
        "person": ["50", "25", "12"],
        "cat": ["", "50", "25"],
        "sofa": ["", "", "50"],
    }


def test_a_class_that_one_seeds_validation_lacks_has_the_mean_of_the_others(make_run):
    def without(run, *names):
        steps = (replace(step, iou={**step.iou, **dict.fromkeys(names)}) for step in run.steps)
        return replace(run, steps=tuple(steps))

    seeds = [make_run(quality=0.4, keep=1), make_run(quality=0.6, keep=1, seed=1)]
    (row,) = rows(without(seeds[0], "person", "car"), without(seeds[1], "car"))
    found = texts(iou_over_steps(row, ["background", "person", "car", "<b>dog</b>"], [2]))
    assert found == {"background": ["90"], "person": ["60"], "car": ["–"], "<b>dog</b>": ["50"]}


def test_a_run_that_learned_at_once_fills_the_last_step_alone(make_run, gallery):
    _, joint = rows(make_run(), make_run("joint", steps=(gallery.names[1:],)))
    assert joint.level
    assert texts(iou_over_steps(joint, ["person", "sofa"], [0, 1, 2])) == {
        "person": ["", "", "60"],
        "sofa": ["", "", "60"],
    }


def test_forgetting_has_a_column_a_run_and_its_mean_below(make_run):
    heat = forgetting_map(
        rows(make_run("a", 0.6, 0.5), make_run("b", 0.6, 1.0)), ["background", "person", "cat", "bus"]
    )
    assert heat.columns == ("a", "b")
    found = texts(heat)
    assert found["person"] == ["45.0", "0.0"]
    assert "bus" not in found  # learned last
    assert list(found)[-1] == "mean"
    tones = {name: cells[0].tone for name, cells in heat.rows}
    assert (tones["person"], tones["background"]) == ("bad", "good")


def test_one_step_alone_forgets_nothing(make_run):
    assert forgetting_map(rows(make_run(steps=(("cat",),))), ["background", "cat"]) is None


def test_pairs_that_the_text_names_are_marked_in_the_matrix(make_run):
    (row,) = rows(make_run())
    confusion = Confusion(("background", "cow", "horse"), np.array([[90, 5, 5], [0, 70, 30], [0, 20, 80]]))
    heat = confusion_map(row, confusion, look_alikes(confusion))
    marked = [(name, heat.columns[i]) for name, cells in heat.rows for i, cell in enumerate(cells) if cell.marked]
    assert marked == [("cow", "horse"), ("horse", "cow")]
    assert texts(heat)["cow"] == ["", "70", "30"]
