"""What every method must keep to, whoever wrote it: run over all that are registered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import torch

from ipseg.config import scopes
from ipseg.data.batch import StepBatch
from ipseg.data.dataset import Dataset, DatasetSplits
from ipseg.data.loader import BatchLoader
from ipseg.data.memory import LabelPolicy, MemoryConfig, ReplayMemory, load_memory, save_memory, update_memory
from ipseg.data.scenes.dataset import ScenesConfig
from ipseg.data.step_dataset import StepDataset
from ipseg.methods.base import Method, MethodConfig
from ipseg.methods.finetune import Finetune
from ipseg.methods.registry import METHODS, method_config
from ipseg.methods.softmax import SoftmaxMethod
from ipseg.models.backbone import BackboneConfig
from ipseg.models.network import ModelConfig
from ipseg.scenario import Scenario, ScenarioConfig
from ipseg.training import experiment, setup
from ipseg.training.recipe import Recipe, make_recipe
from ipseg.training.tensors import load_tensors

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
MODEL = ModelConfig(backbone=BackboneConfig(name="test_resnet"), width=8, posterior_width=16, rates=(1, 2))
SPLITS = ScenesConfig(classes=5, size=(64, 64), train=20, val=3, seed=3).build()

PLUGGED_IN: dict[str, dict[str, Any]] = {
    "mib_ewf": {"name": "mib", "fuse": "endpoints", "freeze_old_classifiers": True},
    "plop_ewf": {"name": "plop", "fuse": "endpoints", "freeze_old_classifiers": True},
    "plop_ucb": {"name": "plop", "pixel_weights": "ucb"},
    "ssul_ucb": {"name": "ssul", "pixel_weights": "ucb"},
}
"""Published systems that are settings of another."""
BACKGROUND_SHARED = {"mib", "mib_ewf", "plop", "plop_ewf", "plop_m", "plop_ucb", "reminder"}
"""New classes start as background."""

every_method = pytest.mark.parametrize("name", sorted({*METHODS, *PLUGGED_IN}))
every_incremental = pytest.mark.parametrize("name", sorted({*METHODS, *PLUGGED_IN} - {"joint"}))


def scenario_of(name: str) -> Scenario:
    """One class, then two, then two more; joint takes all at once."""
    return ScenarioConfig(name="joint" if name == "joint" else "1-2").build("scenes", SPLITS.classes)


def named(name: str) -> dict[str, Any]:
    """Settings of a method, or of a system that is plugged into one."""
    return PLUGGED_IN.get(name, {"name": name})


def build(name: str, steps: int = 1, seed: int = 0) -> Method:
    """A method on a small network, in the last of so many steps."""
    if method_config(named(name)).uses_regions:
        pytest.importorskip("skimage", reason="needs the extra regions")
    torch.manual_seed(seed)
    method = method_config(named(name)).build(MODEL)
    for step in scenario_of(name).steps[:steps]:
        method.begin_step(step)
    return method


class Hidden:
    """A split whose masks hold some classes only; everything else is as it was."""

    def __init__(self, split: Dataset, shown: set[int]) -> None:
        self.names, self.image, self.class_presence = split.names, split.image, split.class_presence
        self.saliency, self.regions = split.saliency, split.regions
        self._split, self._shown = split, shown

    def mask(self, index: int) -> np.ndarray:
        mask = self._split.mask(index)
        return np.where(np.isin(mask, [*self._shown, 255]), mask, 0).astype(np.uint8)


@pytest.fixture
def batches(tmp_path) -> Callable[..., list[StepBatch]]:
    """The first batches of step 1, with a memory of the base step, from the data as it is or from another split."""

    def make(name: str, split: Dataset = SPLITS.train, count: int = 2) -> list[StepBatch]:
        config, steps = MemoryConfig(size=6), scenario_of(name).steps
        labels, regions = method_config(named(name)).replayed_labels, method_config(named(name)).uses_regions
        folder, step = tmp_path / "memory", steps[min(1, len(steps) - 1)]
        if not folder.exists():
            base = StepDataset(SPLITS.train, scenario_of(name), steps[0], regions=regions)
            kept = update_memory(ReplayMemory([], SPLITS.train, ()), base, config, 0, lambda _: [])
            save_memory(kept, folder, base, config, labels)
        view = StepDataset(split, scenario_of(name), step, regions=regions)
        memory = load_memory(folder, split, LabelPolicy(labels, view))
        plan = build(name, 1 + step.index).plan(4, len(memory) if step.index else 0)
        loader = BatchLoader(view, memory, plan, crop=(64, 64), scales=(0.7, 1.5), flip=True, seed=0, device=CPU)
        return [loader[iteration] for iteration in range(count)]

    return make


def train(method: Method, batches: list[StepBatch]) -> list[dict[str, float]]:
    """The beginning of a step as the engine does it."""
    method.prepare(batches)
    return learn(method, batches)


def learn(method: Method, batches: list[StepBatch], lr: float = 0.01) -> list[dict[str, float]]:
    """Some iterations."""
    groups = [{"params": group.parameters, "lr": lr * group.factor} for group in method.parameter_groups()]
    optimizer, losses = torch.optim.SGD(groups, momentum=0.9, nesterov=True), []
    for iteration, batch in enumerate(batches):
        torch.manual_seed(iteration)  # dropout
        method.train_mode()
        parts = method.loss(batch)
        optimizer.zero_grad()
        torch.stack(list(parts.values())).sum().backward()
        optimizer.step()
        losses.append({key: part.item() for key, part in parts.items()})
    return losses


def state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# ---- what it says ---------------------------------------------------------------------------------------------------


@every_method
def test_it_grows_by_any_number_of_classes_and_labels_images_of_any_size(name):
    method = build(name, steps=0)
    for step in scenario_of(name).steps:
        method.begin_step(step)
        prediction = method.predict(torch.rand(2, 3, 33, 70))
        assert prediction.scores.shape == prediction.pixel.shape == (2, 1 + len(step.seen), 33, 70)
        assert prediction.labels.max() <= len(step.seen)
        assert torch.isfinite(prediction.scores).all()
        assert not prediction.scores.requires_grad
        found = method.image_classes(torch.zeros(2, 8, 8, dtype=torch.long))
        assert found.shape == (2, len(step.seen))
        assert not found.any()


@every_method
def test_a_prediction_depends_on_its_own_image_alone(name):
    method = build(name)
    images = torch.rand(3, 3, 64, 64)
    assert torch.allclose(method.predict(images).scores[1:2], method.predict(images[1:2]).scores, atol=1e-5)


@every_method
def test_its_losses_are_finite_numbers_and_move_all_that_shall_learn(name, batches):
    method = build(name, 1 if name == "joint" else 2)
    (batch,) = batches(name, count=1)
    method.prepare([batch])
    method.train_mode()
    parts = method.loss(batch)
    assert all(part.shape == () and torch.isfinite(part) and part.dtype == torch.float32 for part in parts.values())
    torch.stack(list(parts.values())).sum().backward()
    learning = [parameter for group in method.parameter_groups() for parameter in group.parameters]
    assert len({id(parameter) for parameter in learning}) == len(learning)
    assert all(parameter.grad is not None and torch.isfinite(parameter.grad).all() for parameter in learning)


@every_method
@pytest.mark.parametrize("label", [0, 255, "new"])
def test_images_of_background_of_nothing_or_of_one_class_alone_do_no_harm(name, label, batches):
    method = build(name, 1 if name == "joint" else 2)
    (batch,) = batches(name, count=1)
    value = scenario_of(name).steps[min(1, len(scenario_of(name).steps) - 1)]
    filled = torch.full_like(batch.inputs.labels, len(value.seen) if label == "new" else label)
    batch = replace(batch, inputs=replace(batch.inputs, labels=filled))
    losses = train(method, [batch, batch])
    assert all(np.isfinite(value) for parts in losses for value in parts.values())
    assert all(torch.isfinite(parameter).all() for parameter in method.network.parameters())


@every_incremental
def test_an_iteration_passes_once_through_the_model_and_at_most_once_through_its_teacher(name, batches):
    """As a plain implementation does. IPSeg's teachers are heads on the features of the same pass."""
    method, passes = build(name, 2), []
    (batch,) = batches(name, count=1)
    method.prepare([batch])
    method.train_mode()
    teacher = getattr(method, "teacher", None)
    networks = [method.network, *([teacher] if hasattr(teacher, "encoder") else [])]
    for network in networks:
        network.encoder.backbone.register_forward_hook(lambda *_, who=network: passes.append(who))
    method.loss(batch)
    assert passes.count(method.network) == 1
    assert len(passes) <= len(networks)


# ---- what it may see and change -------------------------------------------------------------------------------------


@every_method
def test_labels_of_old_and_future_classes_in_the_data_change_nothing(name, batches):
    steps = scenario_of(name).steps
    step = steps[min(1, len(steps) - 1)]
    own = {1 + SPLITS.classes.index(each) for each in step.new}
    results = []
    for split in (SPLITS.train, Hidden(SPLITS.train, own)):
        method = build(name, 1 + step.index)
        results.append((train(method, batches(name, split)), state(method.network)))
    (losses, weights), (hidden_losses, hidden_weights) = results
    assert losses == hidden_losses
    assert same(weights, hidden_weights)


@every_incremental
def test_what_it_does_not_give_to_the_optimizer_stays_as_it_is(name, batches):
    method, made = build(name, 2), batches(name)
    method.prepare(made)
    learning = {id(parameter) for group in method.parameter_groups() for parameter in group.parameters}
    kept = {key for key, parameter in method.network.named_parameters() if id(parameter) not in learning}
    before, previous = state(method.network), method.teacher if isinstance(method, SoftmaxMethod) else None
    old = state(previous) if previous is not None else {}
    learn(method, made)
    after = state(method.network)
    changed = {key for key in before if not torch.equal(before[key], after[key])}
    assert changed
    assert not changed & kept
    if previous is not None:
        assert same(state(previous), old)
    else:  # frozen layers are frozen whole: their batch statistics too
        assert not {key for key in changed if key.startswith("encoder.") and "running" in key}


@every_incremental
def test_a_new_step_does_not_change_what_the_old_model_says_until_it_learns(name):
    method = build(name, 1)
    images = torch.rand(1, 3, 64, 64)
    before = method.predict(images).pixel
    method.begin_step(scenario_of(name).steps[1])
    after = method.predict(images).pixel
    if name == "bam":  # its residual is drawn, and may lower the background
        assert torch.allclose(after[:, 1:2], before[:, 1:2], atol=1e-6)
        assert (after[:, :1] <= before[:, :1] + 1e-6).all()
        return
    ratio = (after[:, :1] if name in BACKGROUND_SHARED else after[:, :2]) / after[:, 1:2]
    start = before[:, : ratio.shape[1]] / before[:, 1:2]
    share = 3 if name in BACKGROUND_SHARED else 1  # two new classes take their parts of the background
    assert torch.allclose(ratio * share, start, rtol=1e-3)


# ---- the same every time --------------------------------------------------------------------------------------------


@every_method
def test_the_same_seed_gives_the_same_bits(name, batches):
    made = batches(name)
    count = 1 if name == "joint" else 2
    first, second, other = (build(name, count, seed) for seed in (0, 0, 1))
    assert train(first, made) == train(second, made)
    assert same(state(first.network), state(second.network))
    assert not same(state(first.network), state(other.network))


class Killed(Exception):  # noqa: N818
    """The end of a process."""


def settings(name: str) -> dict[str, Any]:
    joint = name == "joint"
    return {
        "data": {"name": "scenes", "size": [64, 64], "classes": 3, "train": 18, "val": 2},
        "scenario": {"name": "joint" if joint else "2-1"},
        "model": {"backbone": {"name": "test_resnet"}, "width": 8, "posterior_width": 16, "rates": [1]},
        "method": named(name),
        "memory": {"size": 4},
        "training": {
            "epochs": 1,
            "later_epochs": 3,
            "batch_size": 2,
            "crop": [64, 64],
            "checkpoint_seconds": 0,
            "workers": 0,
        },
        "device": "cpu",
    }


def images_per_step(recipe: Recipe, splits: DatasetSplits) -> list[int]:
    return recipe.scenario.build(splits.name, splits.classes).images_per_step(splits.train.class_presence())


@every_method
def test_a_run_killed_in_the_midst_of_a_step_ends_with_the_same_bits(name, tmp_path, monkeypatch):
    recipe = make_recipe(settings(name))
    splits: DatasetSplits = recipe.data.build()
    last = 0 if name == "joint" else 1
    assert recipe.training.iterations(last, images_per_step(recipe, splits)[last]) > 2
    whole = experiment.run(recipe, tmp_path / "whole", splits=splits, quiet=True)
    restore = setup.restore

    def mortal(*arguments: Any) -> Method:
        method = restore(*arguments)
        loss, left = (
            method.loss,
            [2 + sum(recipe.training.iterations(i, images_per_step(recipe, splits)[i]) for i in range(last))],
        )

        def dying(batch: StepBatch) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return loss(batch)

        monkeypatch.setattr(method, "loss", dying)
        return method

    with monkeypatch.context() as patch:
        patch.setattr(setup, "restore", mortal)
        with pytest.raises(Killed):
            experiment.run(recipe, tmp_path / "cut", splits=splits, quiet=True)
    assert (tmp_path / "cut" / f"step_{last:02d}" / "checkpoint.safetensors").is_file()
    again = experiment.run(recipe, tmp_path / "cut", resume=True, splits=splits, quiet=True)
    assert again == whole
    for step in range(last + 1):
        files = [tmp_path / run / f"step_{step:02d}" / "weights.safetensors" for run in ("whole", "cut")]
        assert same(*(load_tensors(file, "weights")[0] for file in files))


def test_what_end_step_changes_is_what_a_step_leaves_and_a_kill_before_it_does_not_matter(tmp_path, monkeypatch):
    recipe = make_recipe(settings("finetune"))
    splits, shown = recipe.data.build(), []

    def round_off(method: Any, batches: Any) -> None:
        shown.append(sum(batch.num_new for batch in batches))
        if len(shown) == 2:
            raise Killed  # after the last iteration of step 1, before its weights are saved
        with torch.no_grad():
            method.network.classifiers[-1].bias.fill_(7)

    monkeypatch.setattr(Finetune, "end_step", round_off, raising=False)
    with pytest.raises(Killed):
        experiment.run(recipe, tmp_path / "run", splits=splits, quiet=True)
    experiment.run(recipe, tmp_path / "run", resume=True, splits=splits, quiet=True)
    for step, count in enumerate(images_per_step(recipe, splits)):
        weights, _ = load_tensors(tmp_path / "run" / f"step_{step:02d}" / "weights.safetensors", "weights")
        assert (weights[f"classifiers.{step}.bias"] == 7).all()
        assert shown[step] >= count  # the pass shows every image


def changed(config: MethodConfig, key: str) -> MethodConfig:
    """The config with another value of one setting."""
    value, hint = getattr(config, key), get_type_hints(type(config))[key]
    others = [choice for choice in get_args(hint) if choice not in (value, Ellipsis)]
    return replace(config, **{key: others[0] if isinstance(value, str) else value[:1] if others else value / 2 + 0.01})


@pytest.mark.parametrize("name", sorted(METHODS.keys() - {"joint"}))
def test_settings_of_later_steps_and_of_inference_leave_the_base_step_as_it_is(name):
    """Runs that differ in these alone share a base step."""
    plain, scenario = METHODS[name](), scenario_of(name)
    base = StepDataset(SPLITS.train, scenario, scenario.steps[0], regions=plain.uses_regions)
    keys = [key for key, scope in scopes(plain).items() if scope in ("later", "inference")]
    learned = []
    for config in [plain, *(changed(plain, key) for key in keys)]:
        torch.manual_seed(0)
        method = config.build(MODEL)
        method.begin_step(base.step)
        memory, plan = ReplayMemory([], SPLITS.train, ()), method.plan(4, 0)
        loader = BatchLoader(base, memory, plan, crop=(64, 64), scales=(0.7, 1.5), flip=True, seed=0, device=CPU)
        learned.append((config.base_settings(), train(method, [loader[0], loader[1]])))
    assert keys
    assert all(one == learned[0] for one in learned)
