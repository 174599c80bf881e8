"""One iteration, plain and recorded: the same losses, the same weights."""

from __future__ import annotations

import pytest
import torch

from ipseg.data.loader import BatchLoader
from ipseg.data.memory import ReplayMemory
from ipseg.data.step_dataset import StepDataset
from ipseg.errors import UserError
from ipseg.training.experiment import run
from ipseg.training.iteration import CudaGraphIteration, Iteration
from ipseg.training.recipe import Recipe, make_recipe
from ipseg.training.system import seed_all

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def begun(recipe: Recipe, device: str) -> tuple[Iteration, BatchLoader]:
    """The base step of a recipe and its batches."""
    seed_all(0)
    splits = recipe.data.build()
    scenario = recipe.scenario.build(splits.name, splits.classes)
    method, training = recipe.method.build(recipe.model), recipe.training
    method.begin_step(scenario.steps[0])
    method.network.to(torch.device(device), memory_format=torch.channels_last)
    loader = BatchLoader(
        StepDataset(splits.train, scenario, scenario.steps[0]),
        ReplayMemory([], splits.train, ()),
        method.plan(training.batch_size, 0),
        crop=training.crop,
        scales=training.scale,
        flip=True,
        seed=0,
        device=torch.device(device),
        cache_bytes=1 << 30,
    )
    return Iteration(method, training), loader


def losses(recipe: Recipe, device: str, iterations: int, *, recorded: bool = False) -> list[float]:
    """The losses of the first iterations of the base step."""
    iterate, loader = begun(recipe, device)
    learn = CudaGraphIteration(iterate) if recorded else iterate
    found = []
    with loader.batches(range(iterations)) as batches:
        for iteration, batch in enumerate(batches):
            seed_all(0, 0, iteration)
            iterate.set_rate(1 - iteration / iterations)
            outcome = learn(batch)
            assert outcome.finite
            assert outcome.labeled
            found.append(sum(float(loss) for loss in outcome.losses.values()))
    return found


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_fused_optimizer_learns_what_a_plain_one_learns(tiny_settings, optimizer):
    tiny_settings["training"] |= {"optimizer": optimizer, "lr": 0.001}
    plain, fused = (
        losses(make_recipe(tiny_settings | {"training": tiny_settings["training"] | {"fused": choice}}), "cpu", 5)
        for choice in (False, True)
    )
    assert fused == pytest.approx(plain, rel=1e-4)


def test_each_group_learns_at_its_multiple_of_the_rate(tiny_settings):
    recipe = make_recipe(tiny_settings)
    splits = recipe.data.build()
    method = recipe.method.build(recipe.model)
    method.begin_step(recipe.scenario.build(splits.name, splits.classes).steps[0])
    iterate = Iteration(method, recipe.training)
    iterate.set_rate(0.5)
    rates = [group["lr"] for group in iterate.optimizer.param_groups]
    assert rates == pytest.approx([0.5 * recipe.training.lr * group.factor for group in method.parameter_groups()])


def test_a_recorded_iteration_is_not_called_deterministic(tiny_settings, tmp_path):
    tiny_settings["training"]["graphs"] = True
    with pytest.raises(UserError, match=r"training\.graphs"):
        run(make_recipe(tiny_settings | {"deterministic": True}), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_without_a_gpu_a_recording_is_an_ordinary_run(tiny_settings, tmp_path):
    tiny_settings |= {"scenario": {"name": "joint"}}
    tiny_settings["training"] |= {"graphs": True, "epochs": 0.2}
    assert run(make_recipe(tiny_settings), tmp_path / "run", quiet=True).steps


def test_on_the_cpu_no_image_is_preloaded(tiny_settings):
    _, loader = begun(make_recipe(tiny_settings), "cpu")
    assert loader.samples.preloaded is None


@gpu
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_recorded_iteration_learns_what_a_plain_one_learns(tiny_settings, optimizer):
    tiny_settings["training"] |= {"optimizer": optimizer, "lr": 0.001, "graphs": True}
    plain, recorded = (losses(make_recipe(tiny_settings), "cuda", 10, recorded=choice) for choice in (False, True))
    assert recorded == pytest.approx(plain, rel=1e-3)


@gpu
def test_batches_and_learning_never_wait_for_the_gpu(tiny_settings, request):
    request.addfinalizer(lambda: torch.cuda.set_sync_debug_mode("default"))
    iterate, loader = begun(make_recipe(tiny_settings), "cuda")
    with loader.batches(range(6)) as batches:
        for iteration, batch in enumerate(batches):
            iterate(batch)
            if iteration == 2:  # by now memory is allocated and algorithms are chosen
                torch.cuda.set_sync_debug_mode("error")
