"""The contract has room for what comes later: rebuilt layers, prototypes, proposals.

Each kind is a miniature in later_kinds.py. All run through the engine that runs ours, which knows nothing of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import later_kinds as kinds
import numpy as np
import pytest
import torch

import ipseg
from ipseg.apps.model import as_tensor
from ipseg.data.batch import StepBatch
from ipseg.errors import UserError
from ipseg.evaluation.results import RunResult
from ipseg.methods.registry import method_config
from ipseg.scenario import Scenario
from ipseg.training import experiment
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import Recipe, make_recipe
from ipseg.training.tensors import load_tensors

pytestmark = pytest.mark.slow

KINDS = ("Rebuilt", "Prototypes", "Proposals")
STEPS = range(3)
PHOTOGRAPH = np.random.default_rng(0).integers(0, 256, (41, 70, 3), dtype=np.uint8)  # of no data set

every_kind = pytest.mark.parametrize("run", KINDS, indirect=True)
on = pytest.mark.parametrize


def recipe_of(kind: str) -> Recipe:
    return make_recipe(
        {
            "data": {"name": "scenes", "size": [64, 64], "classes": 4, "train": 20, "val": 2},
            "scenario": {"name": "2-1"},
            "model": {"backbone": {"name": "test_resnet"}, "width": 8, "rates": [1]},
            "method": {"name": f"later_kinds:{kind}Config", "replay_share": 0.5, "later_lr": 1},
            "memory": {"size": 4},
            "training": {
                "epochs": 1,
                "later_epochs": 2,
                "batch_size": 4,
                "crop": [64, 64],
                "checkpoint_seconds": 0,
                "workers": 0,
            },
            "device": "cpu",
        }
    )


@dataclass
class Run:
    """A run that nobody disturbed, and what its model said of the photograph after each step."""

    kind: str
    path: Path
    recipe: Recipe
    result: RunResult | None = None
    said: list[np.ndarray] = field(default_factory=list)


@pytest.fixture(scope="module")
def run(request, tmp_path_factory) -> Run:
    made = Run(request.param, tmp_path_factory.mktemp("later") / request.param, recipe_of(request.param))

    def ask(method: Any, *_: Any) -> None:
        made.said.append(method.predict(as_tensor(PHOTOGRAPH, torch.device("cpu"))).scores[0].numpy())

    made.result = experiment.run(made.recipe, made.path, quiet=True, after_step=ask)
    return made


def saved(path: Path, step: int) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    return load_tensors(path / f"step_{step:02d}" / "weights.safetensors", "weights")


# ---- every kind ----------------------------------------------------------------------------------------------------


@every_kind
def test_it_learns_every_step_through_the_engine_that_runs_ours(run):
    assert run.result.complete
    assert [len(said) for said in run.said] == [3, 4, 5]  # background, two classes, then one more a step


@every_kind
def test_a_model_read_from_disk_says_of_a_photograph_what_the_live_one_said(run):
    for step in STEPS:
        again = ipseg.load(run.path, step, device="cpu").predict(PHOTOGRAPH)
        assert np.array_equal(again.labels, run.said[step].argmax(0))
        assert np.allclose(again.scores, run.said[step], atol=1e-6)


class Killed(Exception):  # noqa: N818
    """The end of a process."""


def dying(loss: Callable[..., Any]) -> Callable[..., Any]:
    """It is no more when it shall learn step 1 for the third time."""
    learned = []

    def until_then(method: Any, batch: StepBatch) -> Any:
        learned.append(method.step.index)
        if learned.count(1) == 3:
            raise Killed
        return loss(method, batch)

    return until_then


def dying_after(measure: Callable[..., Any]) -> Callable[..., Any]:
    """It is no more when step 2 is learned and saved, but not measured."""

    def until_then(method: Any, *others: Any) -> Any:
        if method.step.index == 2:
            raise Killed
        return measure(method, *others)

    return until_then


@every_kind
def test_killed_in_a_step_and_again_before_the_next_is_measured_it_ends_with_the_same_bits(run, tmp_path, monkeypatch):
    path, method = tmp_path / "cut", getattr(kinds, run.kind)
    with monkeypatch.context() as patch:
        patch.setattr(method, "loss", dying(method.loss))
        with pytest.raises(Killed):
            experiment.run(run.recipe, path, quiet=True)
    assert (path / "step_01" / "checkpoint.safetensors").is_file()
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "measure", dying_after(experiment.measure))
        with pytest.raises(Killed):
            experiment.run(run.recipe, path, resume=True, quiet=True)
    assert (path / "step_02" / "weights.safetensors").is_file()
    assert experiment.run(run.recipe, path, resume=True, quiet=True) == run.result
    for step in STEPS:
        (weights, facts), (whole, whole_facts) = saved(path, step), saved(run.path, step)
        assert facts == whole_facts
        assert weights.keys() == whole.keys()
        assert all(torch.equal(weights[name], whole[name]) for name in whole)


# ---- and each is what it says --------------------------------------------------------------------------------------


def build(kind: str, scenario: Scenario, steps: int = 2) -> Any:
    torch.manual_seed(0)
    method = method_config({"name": f"later_kinds:{kind}Config"}).build(recipe_of(kind).model)
    for step in scenario.steps[:steps]:
        method.begin_step(step)
    return method


def test_branches_and_the_layer_they_become_say_the_same_and_the_next_step_builds_on_it(scenario, batch):
    method = build("Rebuilt", scenario)
    method.prepare(iter([]))
    method.train_mode()
    learning = [p for group in method.parameter_groups() for p in group.parameters]
    torch.stack(list(method.loss(batch).values())).sum().backward()
    assert all(parameter.grad is not None for parameter in learning)
    torch.optim.SGD(learning, lr=0.5).step()
    images = batch.inputs.images
    before = method.predict(images).scores
    kept = method.layer[0].kept.weight.clone()
    method.end_step(iter([]))
    assert torch.allclose(method.predict(images).scores, before, atol=1e-5)
    merged = method.layer[0].weight.clone()
    assert not torch.equal(merged, kept)
    method.begin_step(scenario.steps[2])
    method.prepare(iter([]))
    assert torch.equal(method.layer[0].kept.weight, merged)
    assert not method.layer[0].kept.weight.requires_grad


@on("run", ["Rebuilt"], indirect=True)
def test_what_a_rebuilt_network_no_longer_has_is_not_read_from_older_steps(run):
    norm = "encoder.decoder.views.1.1.weight"
    assert norm in saved(run.path, 0)[0]
    assert norm in saved(run.path, 1)[1]["gone"]
    assert norm not in RunFolder(run.path).weights(2)
    assert not [name for name in RunFolder(run.path).weights(2) if "learning" in name]


def test_branches_that_are_built_too_early_train_but_are_refused_when_they_are_read(tmp_path, monkeypatch):
    """Why `prepare` builds them: the docs say so."""
    begin, build = kinds.Rebuilt.begin_step, kinds.Rebuilt.prepare
    monkeypatch.setattr(kinds.Rebuilt, "begin_step", lambda self, step: (begin(self, step), build(self, ())))
    monkeypatch.setattr(kinds.Rebuilt, "prepare", lambda *_: None)
    experiment.run(recipe_of("Rebuilt"), tmp_path / "run", quiet=True)
    with pytest.raises(UserError, match="the weights do not fit the recipe's network"):
        ipseg.load(tmp_path / "run", step=1, device="cpu")


@on("run", ["Prototypes"], indirect=True)
def test_prototypes_of_old_classes_stay_as_their_step_left_them(run):
    sums, counts = ([RunFolder(run.path).weights(step)[name] for step in STEPS] for name in ("sums", "counts"))
    assert [len(each) for each in counts] == [3, 4, 5]
    assert (counts[2][1:] > 0).all()
    for before, after in ((0, 1), (1, 2)):
        assert torch.equal(sums[before], sums[after][: len(sums[before])])


def test_a_prototype_is_the_mean_over_one_pass_with_the_trained_network(scenario, batch):
    method = build("Prototypes", scenario)
    method.loss(batch)
    running = method.means()[3].clone()
    method.end_step(iter([batch]))
    seen = method.network(batch.inputs.images, batch.inputs.boxes).stages[-1]
    labels = torch.nn.functional.interpolate(batch.inputs.labels[:, None].float(), seen.shape[-2:])[:, 0]
    assert torch.allclose(method.means()[3], seen.movedim(1, -1)[labels == 3].mean(0), atol=1e-5)
    assert not torch.allclose(method.means()[3], running, atol=1e-5)  # that was of batch statistics


@on("run", ["Proposals"], indirect=True)
def test_all_pixels_of_a_region_have_one_label_and_the_proposer_never_learns(run):
    method = ipseg.load(run.path, device="cpu").method
    image = as_tensor(PHOTOGRAPH, torch.device("cpu"))
    regions = method.network.proposer(image, torch.tensor([[0.0, 0.0, 41.0, 70.0]]))
    labels = method.predict(image).labels
    assert regions.unique().numel() > 2
    assert all(labels[regions == region].unique().numel() == 1 for region in regions.unique())
    for step in STEPS[1:]:
        assert not [name for name in saved(run.path, step)[0] if name.startswith("proposer")]
