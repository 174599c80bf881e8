"""A step sees its own classes: not the old ones, not the future ones, in any setting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipseg.data.dataset import present_classes
from ipseg.data.step_dataset import StepDataset
from ipseg.errors import UserError
from ipseg.scenario import Scenario, ScenarioConfig

CLASSES = ("ant", "bee", "cat", "dog", "emu")


class Masks:
    """A split whose images are nothing but their masks."""

    def __init__(self, masks: list[np.ndarray]) -> None:
        self.masks = masks
        self.names = [f"image {index}" for index in range(len(masks))]

    def image(self, index: int) -> np.ndarray:
        return np.repeat(self.masks[index][..., None], 3, axis=2)

    def mask(self, index: int) -> np.ndarray:
        return self.masks[index]

    def saliency(self, index: int) -> np.ndarray:
        return self.masks[index] > 0

    def class_presence(self) -> list[frozenset[int]]:
        return [present_classes(mask) for mask in self.masks]


def masks() -> st.SearchStrategy[list[np.ndarray]]:
    value = st.sampled_from([0, 1, 2, 3, 4, 5, 255])
    row = st.lists(value, min_size=6, max_size=6).map(lambda values: np.array([values], dtype=np.uint8))
    return st.lists(row, min_size=1, max_size=12)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    subset = draw(st.none() | st.lists(st.sampled_from(CLASSES), min_size=1, unique=True).map(tuple))
    base = draw(st.integers(1, len(subset or CLASSES)))
    config = ScenarioConfig(
        name=draw(st.sampled_from(["joint", f"{base}-1", f"{base}-2"])),
        setting=draw(st.sampled_from(["overlap", "disjoint"])),
        order=draw(st.none() | st.integers(0, 9)),
        classes=subset,
    )
    return config.build("toy", CLASSES)


@given(scenarios(), masks())
def test_a_step_sees_no_class_but_its_own(scenario, masks):
    split = Masks(masks)
    for step in scenario.steps:
        try:
            view = StepDataset(split, scenario, step)
        except UserError:
            assert not any(scenario.selects(step, found) for found in split.class_presence())
            continue
        own = {1 + scenario.order.index(name): scenario.data_classes.index(name) + 1 for name in step.new}
        for position in range(len(view)):
            sample, mask = view.sample(position), split.mask(view.indices[position])
            assert set(np.unique(sample.labels)) <= {0, 255, *own}
            for label, value in own.items():
                assert np.array_equal(sample.labels == label, mask == value)
            assert np.array_equal(sample.labels == 255, mask == 255)
            assert sample.full is None
            assert sample.stored is None
            assert set(view.classes_in(position)) == {name for name in step.new if _holds(mask, name)}
            assert view.classes_in(position)
            if scenario.setting == "disjoint":
                assert not any(_holds(mask, name) for name in step.future)


def _holds(mask: np.ndarray, name: str) -> bool:
    return bool((mask == CLASSES.index(name) + 1).any())


def one(*values: int) -> np.ndarray:
    return np.array([values], dtype=np.uint8)


def test_old_classes_are_shown_only_to_an_oracle_and_future_ones_to_nobody():
    scenario = ScenarioConfig(name="2-1").build("toy", CLASSES)
    split = Masks([one(1, 3, 5, 0, 255)])
    view = StepDataset(split, scenario, scenario.steps[1])
    assert view.sample(0).labels.tolist() == [[0, 3, 0, 0, 255]]
    assert view.sample(0).full is None
    oracle = StepDataset(split, scenario, scenario.steps[1], oracle=True)
    assert oracle.sample(0).labels.tolist() == [[0, 3, 0, 0, 255]]
    assert oracle.sample(0).full.tolist() == [[1, 3, 0, 0, 255]]


def test_a_step_without_images_says_which_classes_it_looked_for():
    scenario = ScenarioConfig(name="4-1").build("toy", CLASSES)
    with pytest.raises(UserError, match=r"step 1 of toy/4-1 \(overlap\) has no image: none of the 1 .* holds emu\."):
        StepDataset(Masks([one(1, 2)]), scenario, scenario.steps[1])
    disjoint = ScenarioConfig(name="4-1", setting="disjoint").build("toy", CLASSES)
    with pytest.raises(UserError, match="without a future class"):
        StepDataset(Masks([one(1, 5)]), disjoint, disjoint.steps[0])


def test_an_image_and_a_mask_of_different_sizes_are_named():
    class Wrong(Masks):
        def image(self, index: int) -> np.ndarray:
            return np.zeros((4, 7, 3), dtype=np.uint8)

    scenario = ScenarioConfig(name="joint").build("toy", CLASSES)
    view = StepDataset(Wrong([one(1, 2)]), scenario, scenario.steps[0])
    with pytest.raises(
        UserError, match="image 0: its image 7x4, its mask 2x1, its saliency map 2x1; they must be equal"
    ):
        view.sample(0)
