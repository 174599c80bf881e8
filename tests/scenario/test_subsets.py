"""Some classes of a data set under a name of their own: the others are background."""

from __future__ import annotations

import pytest

from ipseg.errors import UserError
from ipseg.scenario import SUBSETS, VOC, ScenarioConfig, describe

ANIMALS = ("cat", "cow", "dog", "horse", "person", "sheep")


@pytest.mark.parametrize(
    ("split", "sizes"),
    [("2-1", [2, 1, 1, 1, 1]), ("3-1", [3, 1, 1, 1]), ("3-3", [3, 3]), ("5-1", [5, 1]), ("joint", [6])],
)
def test_the_animals_of_voc_are_learned_in_the_order_of_the_data_set(split, sizes):
    scenario = describe(f"voc_animals/{split}")
    assert scenario.name == f"voc_animals/{split}"
    assert scenario.order == ANIMALS == SUBSETS["voc_animals"][1]
    assert [len(step.new) for step in scenario.steps] == sizes


def test_all_other_classes_of_voc_are_background_in_every_table():
    scenario = ScenarioConfig(name="voc_animals/3-3", unseen="ignore").build("voc", VOC)
    others = [value for value, name in enumerate(VOC, start=1) if name not in ANIMALS]
    for step in scenario.steps:
        for table in (scenario.training_table(step), scenario.evaluation_table(step)):
            assert not table[others].any()
    assert scenario.evaluation_table(scenario.steps[-1])[[8, 10, 12, 13, 15, 17]].tolist() == [1, 2, 3, 4, 5, 6]


def test_an_image_belongs_to_a_step_by_the_subset_alone():
    scenario = ScenarioConfig(name="voc_animals/5-1", setting="disjoint").build("voc", VOC)
    cat_and_car, cat_and_sheep, car = {8, 7}, {8, 17}, {7}
    assert scenario.images_per_step([cat_and_car, cat_and_sheep, car]) == [1, 1]


def test_a_finished_run_finds_its_scenario_by_the_subsets_name():
    made = ScenarioConfig(name="voc_animals/2-1").build("voc", VOC)
    assert ScenarioConfig(name="voc_animals/2-1").build("voc_animals", VOC) == made


def test_classes_and_order_choose_among_the_subset():
    scenario = ScenarioConfig(name="voc_animals/1-1", classes=("cow", "cat"), order=("cow", "cat")).build("voc", VOC)
    assert scenario.order == ("cow", "cat")
    with pytest.raises(UserError, match=r'no class "car"'):
        ScenarioConfig(name="voc_animals/1-1", classes=("cat", "car")).build("voc", VOC)


def test_a_subset_of_other_data_is_refused():
    with pytest.raises(UserError, match=r'"voc_animals/2-1", but the data set is ade'):
        ScenarioConfig(name="voc_animals/2-1").build("ade", ["wall"])
    with pytest.raises(UserError, match=r'no class "cat".*the subset voc_animals'):
        ScenarioConfig(name="voc_animals/2-1").build("voc", ["bird"])
