"""Images with sizes of their own: few wait for others of their size, and cuDNN does not search its fastest way."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ipseg.methods.base import Prediction
from ipseg.methods.ipseg import IPSeg
from ipseg.scenario import ScenarioConfig
from ipseg.training.distributed import DistributedContext
from ipseg.training.evaluate import WAITING, EvaluationConfig, batches, evaluate
from ipseg.training.experiment import run
from ipseg.training.recipe import make_recipe


class TwoImages:
    """Of two sizes, all background."""

    names = ("a", "b")

    def image(self, index):
        return np.zeros((32, 32 + 32 * index, 3), np.uint8)

    def mask(self, index):
        return np.zeros((32, 32 + 32 * index), np.uint8)


class Notes:
    """A method that notes whether the search is on."""

    def __init__(self) -> None:
        self.searching: list[bool] = []

    def predict_batch(self, batch):
        self.searching.append(torch.backends.cudnn.benchmark)
        scores = torch.zeros(len(batch), 2, *batch.images.shape[-2:])
        return Prediction(scores, scores)


class ManySizes(TwoImages):
    """No two alike; it notes how many were read."""

    names = tuple(map(str, range(40)))

    def __init__(self) -> None:
        self.read = 0

    def image(self, index):
        self.read += 1
        return super().image(index)


def test_of_many_sizes_no_more_images_wait_than_some_batches_have():
    scenario = ScenarioConfig(name="1-1").build("folder", ["cow"])
    dataset, config = ManySizes(), EvaluationConfig(batch_size=2, workers=0)
    shown, waiting = 0, []
    for batch in batches(dataset, scenario, scenario.steps[0], config, DistributedContext(torch.device("cpu"))):
        waiting.append(dataset.read - shown)
        shown += len(batch)
    assert shown == len(dataset.names)
    assert max(waiting) <= (WAITING + 2) * config.batch_size + 1  # and two batches are read ahead


@pytest.mark.parametrize(("view", "searches"), [("whole", [False, False]), ("center_crop", [True])])
def test_cudnn_searches_only_where_images_have_one_size(monkeypatch, view, searches):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    scenario = ScenarioConfig(name="1-1").build("folder", ["cow"])
    method = Notes()
    config = EvaluationConfig(view=view, crop=32)
    evaluate(method, TwoImages(), scenario, scenario.steps[0], config, DistributedContext(torch.device("cpu")))
    assert method.searching == searches
    assert torch.backends.cudnn.benchmark


def test_a_run_labels_images_without_a_search(monkeypatch, tiny_settings, tmp_path):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)  # a run sets it: it is put back afterwards
    searching = []

    def predict(method, *args):
        searching.append(torch.backends.cudnn.benchmark)
        return plain(method, *args)

    plain = IPSeg.predict
    monkeypatch.setattr(IPSeg, "predict", predict)
    run(make_recipe(tiny_settings), tmp_path / "run", quiet=True)
    assert torch.backends.cudnn.benchmark  # while it learned
    assert searching
    assert not any(searching)
