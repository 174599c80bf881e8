"""Data that does not annotate every class the model knows, as an extended run's:
only what it can decide is measured."""

from __future__ import annotations

import numpy as np
import torch

from ipseg.methods.base import Prediction
from ipseg.scenario import ScenarioConfig
from ipseg.training.distributed import DistributedContext
from ipseg.training.evaluate import EvaluationConfig, evaluate


class OneImage:
    """Two rows: background, then sheep (value 1)."""

    names = ("a",)

    def image(self, _index):
        return np.zeros((2, 4, 3), np.uint8)

    def mask(self, _index):
        return np.array([[0, 0, 0, 0], [1, 1, 1, 1]], np.uint8)


class Says:
    """A method that always says these labels."""

    def __init__(self, labels: list[list[int]]) -> None:
        self.labels = torch.tensor(labels)

    def predict_batch(self, batch):
        scores = torch.zeros(1, 3, *batch.images.shape[-2:])
        scores[:, 0] = 0.1
        for row, labels in enumerate(self.labels.tolist()):
            for column, label in enumerate(labels):
                scores[0, label, row, column] = 1.0
        return Prediction(scores, scores)


def measured(labels: list[list[int]], absent: str = "skip"):
    scenario = ScenarioConfig(name="grown", steps=(("cow",), ("sheep",))).build("folder", ["sheep"])
    config = EvaluationConfig(absent=absent)
    return evaluate(
        Says(labels), OneImage(), scenario, scenario.steps[1], config, DistributedContext(torch.device("cpu"))
    )


def test_an_old_class_on_what_such_data_calls_background_is_not_counted():
    result = measured([[0, 0, 1, 1], [2, 2, 2, 2]])
    assert result.iou == {"background": 1.0, "cow": None, "sheep": 1.0}


def test_an_old_class_on_the_new_one_is_a_miss_and_the_new_one_on_background_a_false_alarm():
    assert measured([[0, 0, 0, 0], [1, 1, 2, 2]]).iou["sheep"] == 0.5
    assert measured([[2, 2, 2, 2], [2, 2, 2, 2]]).iou["sheep"] == 0.5


def test_groups_do_not_speak_for_classes_that_are_not_annotated():
    result = measured([[0, 0, 0, 0], [2, 2, 2, 2]], absent="zero")
    assert result.iou["cow"] is None
    assert result.miou["base"] is None
    assert result.miou["new"] == 1.0
    assert result.image_accuracy["base"]["both"] is None
    assert result.image_accuracy["all"]["both"] == 1.0


class HalfAnnotated(OneImage):
    """The right half of the sheep is not labeled."""

    def mask(self, _index):
        return np.array([[0, 0, 0, 0], [1, 1, 255, 255]], np.uint8)


def test_what_is_seen_in_pixels_that_do_not_count_is_not_held_against_an_image():
    scenario = ScenarioConfig(name="2-1").build("folder", ["sheep", "cow", "dog"])
    says = Says([[0, 0, 0, 0], [1, 1, 2, 2]])
    dist = DistributedContext(torch.device("cpu"))
    found = evaluate(says, HalfAnnotated(), scenario, scenario.steps[0], EvaluationConfig(), dist)
    assert found.image_accuracy["all"]["both"] == 1.0
