"""Named scenarios, and any other split of a known data set."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ipseg.errors import UserError
from ipseg.scenario import ADE, DATASETS, NAMED, VOC, describe, named_scenarios


def test_the_class_lists_are_those_of_the_data_sets():
    assert len(VOC) == len(set(VOC)) == 20
    assert len(ADE) == len(set(ADE)) == 150
    assert (VOC[0], VOC[14], VOC[19]) == ("aeroplane", "person", "tvmonitor")
    assert (ADE[0], ADE[12], ADE[99], ADE[100], ADE[149]) == ("wall", "person", "buffet", "poster", "flag")


def test_every_named_scenario_can_be_described():
    scenes = tuple(f"shape {i}" for i in range(10))
    listed = named_scenarios(DATASETS | {"scenes": scenes})
    assert list(listed) == [f"{data}/{split}" for data, splits in NAMED.items() for split in splits]
    assert all(scenario.name == name for name, scenario in listed.items())
    assert [len(step.new) for step in listed["scenes/6-2"].steps] == [6, 2, 2]
    assert [len(step.new) for step in listed["voc/joint"].steps] == [20]


def test_only_scenarios_of_the_given_data_sets_are_listed():
    assert {name.split("/")[0] for name in named_scenarios()} == {"voc", "voc_animals", "ade"}


def test_a_split_without_a_name_works_too():
    scenario = describe("voc/15-2", "disjoint")
    assert scenario.setting == "disjoint"
    assert [step.new for step in scenario.steps[1:]] == [("pottedplant", "sheep"), ("sofa", "train"), ("tvmonitor",)]


def test_a_misspelled_data_set_is_answered_with_the_nearest_one():
    with pytest.raises(UserError, match=r'no data set "vok"\. Did you mean voc\? Valid: ade, voc, voc_animals\.'):
        describe("vok/15-1")


def test_a_split_without_its_data_set_is_answered_with_a_whole_name():
    with pytest.raises(UserError, match=r'no scenario "15-1"\. Did you mean voc/15-1\?'):
        describe("15-1")


@pytest.mark.parametrize(("name", "path"), [("folder/2-1", "data/mine"), ("coco/60-20", "coco")])
def test_a_data_set_whose_classes_are_in_its_files_is_answered_with_the_command_that_reads_them(name, path):
    kind = name.split("/")[0]
    with pytest.raises(UserError, match=rf'the classes of "{kind}" stand in its') as caught:
        describe(name)
    assert f"`ipseg data check {path} --format {kind} --scenario {name}`" in str(caught.value)


def test_a_name_like_nothing_is_answered_without_a_guess():
    with pytest.raises(UserError, match=r'no scenario "x"\. A scenario is DATASET/BASE-INCREMENT'):
        describe("x")


def test_scenarios_need_no_torch():
    code = "import sys, ipseg.scenario; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
