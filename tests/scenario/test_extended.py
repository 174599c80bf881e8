"""Steps that are listed: what `ipseg extend` writes."""

from __future__ import annotations

import pytest

from ipseg.config import build
from ipseg.errors import UserError
from ipseg.scenario import ScenarioConfig

STEPS = [["cat", "dog"], ["horse"], ["sheep"]]


def extended(**changes):
    return build(ScenarioConfig, {"name": "grown", "steps": STEPS} | changes, "scenario")


def test_the_steps_are_as_listed_and_old_classes_need_no_data():
    scenario = extended().build("folder", ["goat", "sheep", "cat"])
    assert [step.new for step in scenario.steps] == [("cat", "dog"), ("horse",), ("sheep",)]
    assert scenario.steps[2].old == ("cat", "dog", "horse")
    assert scenario.name == "folder/grown"


def test_mask_values_are_the_new_datas_and_labels_the_old_order():
    scenario = extended().build("folder", ["goat", "sheep", "cat"])
    assert scenario.training_table(scenario.steps[2])[:4].tolist() == [0, 0, 4, 0]
    assert scenario.evaluation_table(scenario.steps[2])[:4].tolist() == [0, 0, 4, 1]
    assert scenario.images_per_step([{1}, {2, 3}, {3}]) == [2, 0, 1]


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": None},
        {"steps": []},
        {"name": "2-1"},
        {"order": 3},
        {"classes": ["cat"]},
        {"steps": [["cat"], []]},
        {"steps": [["cat"], ["cat"]]},
        {"steps": [["background"]]},
        {"steps": [["_Background_"]]},
        {"steps": [[f"c{i}" for i in range(255)]]},
    ],
)
def test_steps_that_say_nothing_or_something_twice_are_refused(changes):
    with pytest.raises(UserError, match=r"scenario\.steps"):
        extended(**changes)
