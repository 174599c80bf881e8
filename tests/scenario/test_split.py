"""What a step may see, for any classes, order, subset and split."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipseg.config import build, field_docs
from ipseg.errors import UserError
from ipseg.scenario import BACKGROUND, IGNORE, MAX_CLASSES, Scenario, ScenarioConfig

ANIMALS = ("bird", "cat", "cow", "dog", "horse", "sheep")


@st.composite
def scenarios(draw: st.DrawFn, setting: str | None = None) -> Scenario:
    data = tuple(f"class {i}" for i in range(draw(st.integers(1, 30))))
    learned = draw(st.lists(st.sampled_from(data), min_size=1, unique=True))
    subset = draw(st.sampled_from([None, tuple(learned)]))
    orders = st.none() | st.integers(0, 99) | st.permutations(subset or data).map(tuple)
    base = draw(st.integers(1, len(subset or data)))
    name = draw(st.sampled_from(["joint", f"{base}-{draw(st.integers(1, 8))}"]))
    return ScenarioConfig(
        name=name,
        setting=setting or draw(st.sampled_from(["overlap", "disjoint"])),
        order=draw(orders),
        classes=subset,
        unseen=draw(st.sampled_from(["background", "ignore"])),
    ).build("drawn", data)


def shown(scenario: Scenario, table: np.ndarray, label: int) -> set[str]:
    """The data-set classes that a table turns into this label."""
    return {name for value, name in enumerate(scenario.data_classes, start=1) if table[value] == label}


def sizes(name: str, classes: int = 20) -> list[int]:
    scenario = ScenarioConfig(name=name).build("drawn", [f"c{i}" for i in range(classes)])
    return [len(step.new) for step in scenario.steps]


@given(scenarios())
def test_a_step_sees_no_class_but_its_own(scenario):
    for step in scenario.steps:
        table = scenario.training_table(step)
        for position, name in enumerate(scenario.order, start=1):
            assert shown(scenario, table, position) == ({name} & set(step.new))
        assert shown(scenario, table, 0) == set(scenario.data_classes) - set(step.new)


@given(scenarios())
def test_steps_deal_out_every_class_once_and_in_order(scenario):
    assert sum((step.new for step in scenario.steps), ()) == scenario.order
    assert [step.index for step in scenario.steps] == list(range(len(scenario.steps)))
    assert all(step.new for step in scenario.steps)


@given(scenarios())
def test_old_new_and_future_are_the_order_cut_in_three(scenario):
    for step in scenario.steps:
        assert step.old + step.new + step.future == scenario.order
        assert step.seen == step.old + step.new
    assert scenario.steps[0].old == ()
    assert scenario.steps[-1].future == ()


@given(scenarios())
def test_evaluation_shows_seen_classes_and_never_a_future_one(scenario):
    for step in scenario.steps:
        table = scenario.evaluation_table(step)
        for position, name in enumerate(scenario.order, start=1):
            assert shown(scenario, table, position) == ({name} & set(step.seen))
        assert shown(scenario, table, IGNORE) == (set(step.future) if scenario.unseen == "ignore" else set())


@given(scenarios())
def test_background_and_ignore_stay_what_they_are_in_every_table(scenario):
    tables = [make(step) for step in scenario.steps for make in (scenario.training_table, scenario.evaluation_table)]
    for table in tables:
        assert table.shape == (256,)
        assert table.dtype == np.uint8
        assert table[0] == 0
        assert set(table[len(scenario.data_classes) + 1 :]) == {IGNORE}


@given(scenarios(setting="overlap"), st.data())
def test_a_disjoint_step_takes_some_of_the_images_of_the_overlapping_one(overlap, data):
    disjoint = ScenarioConfig(name=overlap.name, setting="disjoint", order=overlap.order, classes=overlap.order).build(
        "drawn", overlap.data_classes
    )
    present = data.draw(st.sets(st.integers(1, len(overlap.data_classes))))
    names = {overlap.data_classes[value - 1] for value in present}
    for step in overlap.steps:
        assert overlap.selects(step, present) == bool(names & set(step.new))
        assert disjoint.selects(step, present) == bool(names & set(step.new) and not names & set(step.future))
    assert sum(disjoint.selects(step, present) for step in disjoint.steps) == bool(names & set(overlap.order))


def test_a_small_scenario_reads_as_one_would_write_it_down():
    scenario = ScenarioConfig(
        name="2-1", setting="disjoint", order=("dog", "bird", "cow"), classes=("bird", "cow", "dog"), unseen="ignore"
    ).build("voc", ANIMALS)
    second = scenario.steps[1]
    assert scenario.name == "voc/2-1"
    #                                                bird cat cow dog horse sheep
    assert scenario.training_table(scenario.steps[0])[:7].tolist() == [0, 2, 0, 0, 1, 0, 0]
    assert scenario.training_table(second)[:7].tolist() == [0, 0, 0, 3, 0, 0, 0]
    assert scenario.evaluation_table(scenario.steps[0])[:7].tolist() == [0, 2, 0, 255, 1, 0, 0]
    assert scenario.evaluation_table(second)[:7].tolist() == [0, 2, 0, 3, 1, 0, 0]
    assert scenario.oracle_table(scenario.steps[0])[:7].tolist() == [
        0,
        2,
        0,
        0,
        1,
        0,
        0,
    ]  # how it is measured is no matter
    dog_and_cat, dog_and_cow, cat = {4, 2}, {4, 3}, {2}
    assert scenario.images_per_step([dog_and_cat, dog_and_cow, cat]) == [1, 1]
    assert scenario.to_json() == {
        "name": "voc/2-1",
        "setting": "disjoint",
        "steps": [
            {"new": ["dog", "bird"], "old": [], "future": ["cow"]},
            {"new": ["cow"], "old": ["dog", "bird"], "future": []},
        ],
    }


def test_background_and_ignore_among_the_values_of_an_image_do_not_matter():
    scenario = ScenarioConfig(name="5-1").build("voc", ANIMALS)
    assert not scenario.selects(scenario.steps[1], {0, 255})
    assert scenario.selects(scenario.steps[1], {0, 6, 255})


def test_a_value_that_stands_for_no_class_is_ignored_and_chooses_no_image():
    scenario = ScenarioConfig(name="5-1").build("voc", ANIMALS)
    for step in scenario.steps:
        assert not scenario.selects(step, {7})
        assert scenario.training_table(step)[7] == 255


def test_the_last_step_takes_what_is_left():
    assert sizes("15-2") == [15, 2, 2, 1]
    assert sizes("15-1") == [15, 1, 1, 1, 1, 1]
    assert sizes("20-3") == [20]
    assert sizes("joint") == [20]


def test_a_subset_without_an_order_is_learned_in_the_order_of_the_data_set():
    scenario = ScenarioConfig(name="1-1", classes=("sheep", "bird")).build("voc", ANIMALS)
    assert scenario.order == ("bird", "sheep")


def test_a_seed_shuffles_the_same_way_every_time():
    def order(seed: int) -> tuple[str, ...]:
        return ScenarioConfig(name="joint", order=seed).build("voc", ANIMALS).order

    # random() of seed 0 gives .84 .76 .42 .26 .51 .40; another order here would change what a recipe means.
    assert order(0) == ("dog", "sheep", "cow", "horse", "cat", "bird")
    assert order(0) == order(0) != order(1)


def test_a_byte_has_room_for_253_classes():
    names = [f"c{i}" for i in range(MAX_CLASSES)]
    scenario = ScenarioConfig(name="joint").build("big", names)
    assert scenario.evaluation_table(scenario.steps[0]).tolist() == [*range(254), 255, 255]
    with pytest.raises(UserError, match="big has 254 classes; valid: 1 to 253"):
        ScenarioConfig(name="joint").build("big", [*names, "one more"])
    with pytest.raises(UserError, match="has 0 classes"):
        ScenarioConfig(name="joint").build("empty", [])


def test_every_setting_explains_itself():
    assert set(field_docs(ScenarioConfig)) == {"name", "setting", "order", "classes", "unseen", "steps"}


def test_settings_come_from_yaml_values():
    config = build(ScenarioConfig, {"name": "2-1", "order": list(ANIMALS), "classes": None}, "scenario")
    assert config.order == ANIMALS
    with pytest.raises(UserError, match=r"scenario\.setting.*Did you mean overlap"):
        build(ScenarioConfig, {"name": "2-1", "setting": "overlapp"}, "scenario")


@pytest.mark.parametrize("name", ["voc/7-1", "7-1", "0-1", "3-0", "voc/3-0"])
def test_a_split_that_does_not_fit_says_how_many_classes_there_are(name):
    with pytest.raises(UserError, match=r'scenario "voc/.*" does not fit: the number of classes to learn is 6\.'):
        ScenarioConfig(name=name).build("voc", ANIMALS)


def test_a_split_must_fit_the_subset_and_not_the_data_set():
    with pytest.raises(UserError, match="the number of classes to learn is 2"):
        ScenarioConfig(name="3-1", classes=("cat", "dog")).build("voc", ANIMALS)


def test_a_misspelled_scenario_is_answered_with_the_nearest_one():
    with pytest.raises(UserError) as caught:
        ScenarioConfig(name="voc/15-2x").build("voc", ANIMALS)
    assert str(caught.value) == (
        'no scenario "voc/15-2x". Did you mean voc/15-1? A scenario is DATASET/BASE-INCREMENT: voc/15-1, ade/100-10, '
        "scenes/6-2. `ipseg scenarios` lists the named ones."
    )


@pytest.mark.parametrize(
    "name", ["", "voc/", "15", "15-", "-1", "15-1-1", "15--1", "a-b", "1.5-1", "9" * 5000 + "-1", "²-1"]
)
def test_a_malformed_name_is_no_scenario(name):
    with pytest.raises(UserError, match='no scenario "voc/'):
        ScenarioConfig(name=name).build("voc", ANIMALS)


def test_no_scenario_of_another_data_set_is_offered():
    with pytest.raises(UserError, match=r'no scenario "mine/15_1"\. A scenario is'):
        ScenarioConfig(name="15_1").build("mine", ANIMALS)


def test_a_scenario_of_another_data_set_is_refused():
    with pytest.raises(UserError, match=r'"ade/2-1", but the data set is voc\. Write voc/2-1'):
        ScenarioConfig(name="ade/2-1").build("voc", ANIMALS)


def test_unknown_classes_are_answered_with_the_nearest_one():
    with pytest.raises(UserError, match=r'no class "hors"\. Did you mean horse\?.*scenario\.classes'):
        ScenarioConfig(name="1-1", classes=("cat", "hors")).build("voc", ANIMALS)
    with pytest.raises(UserError, match=r'no class "shep"\. Did you mean sheep\?.*scenario\.order'):
        ScenarioConfig(name="1-1", order=("shep",)).build("voc", ANIMALS)


def test_an_order_names_every_class_to_learn_once():
    with pytest.raises(UserError, match=r"scenario\.order leaves out cat, cow;"):
        ScenarioConfig(name="1-1", order=("bird", "dog", "horse", "sheep")).build("voc", ANIMALS)
    with pytest.raises(UserError, match=r"scenario\.order names bird more than once"):
        ScenarioConfig(name="1-1", order=(*ANIMALS, "bird")).build("voc", ANIMALS)
    with pytest.raises(UserError, match=r'no class "cow"'):
        ScenarioConfig(name="1-1", classes=("cat", "dog"), order=("dog", "cat", "cow")).build("voc", ANIMALS)


def test_a_subset_is_neither_empty_nor_repeats_itself():
    with pytest.raises(UserError, match=r"scenario\.classes is empty"):
        ScenarioConfig(name="1-1", classes=()).build("voc", ANIMALS)
    with pytest.raises(UserError, match=r"scenario\.classes names cat more than once"):
        ScenarioConfig(name="1-1", classes=("cat", "cat")).build("voc", ANIMALS)


def test_a_data_set_with_ambiguous_classes_is_refused():
    with pytest.raises(UserError, match="class list of mine names cat more than once"):
        ScenarioConfig(name="1-1").build("mine", ["cat", "dog", "cat"])
    with pytest.raises(UserError, match='has a class "background"'):
        ScenarioConfig(name="1-1").build("mine", [BACKGROUND, "dog"])


@pytest.mark.parametrize("wrong", [{"setting": "both"}, {"unseen": "hidden"}, {"order": -1}])
def test_values_that_mean_nothing_are_refused_when_the_settings_are_made(wrong):
    with pytest.raises(UserError, match=f"scenario.{next(iter(wrong))}"):
        ScenarioConfig(name="1-1", **wrong)


@pytest.mark.parametrize("name", ["Background", "_background_", "__BACKGROUND__", " background"])
def test_the_background_is_no_class_however_a_tool_writes_it(name):
    with pytest.raises(UserError, match=f'the data set drawn has a class "{name}"; background is mask value 0'):
        ScenarioConfig(name="1-1").build("drawn", (name, "cat"))
    assert ScenarioConfig(name="1-1").build("drawn", ("back ground", "backgrounds")).order  # these are others
