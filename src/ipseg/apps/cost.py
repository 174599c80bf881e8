"""What a recipe costs: parameters, multiply-adds and, on a GPU, speed and memory, step by step."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from rich import box
from rich.table import Table
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ipseg.data.batch import Batch, BatchPlan, StepBatch
from ipseg.errors import UserError, require_between
from ipseg.methods.base import Method
from ipseg.models.boxes import full_boxes
from ipseg.models.network import count_parameters
from ipseg.scenario.catalog import known_classes
from ipseg.scenario.split import Scenario, Step
from ipseg.training.folder import RunFolder
from ipseg.training.iteration import CudaGraphIteration, Iteration
from ipseg.training.recipe import Recipe, make_recipe
from ipseg.training.system import set_deterministic

WARM_UP, TIMED = 5, 10
"""Rounds before a speed is measured, enough to record an iteration (`training.graphs`), and while it is."""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """How fast, in pictures a second, and how much memory at most, in bytes."""

    rate: float | None = None
    memory: int | None = None


_NO_GPU = (Speed(), Speed())


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """The model after a step, and its training in that step. What only a GPU can tell is null elsewhere."""

    step: int
    parameters: int
    trainable: int
    """Parameters that learn in this step."""
    macs: int
    """Multiply-adds of labeling one picture."""
    fps: float | None
    """Pictures labeled in a second, one at a time."""
    inference_memory: int | None
    """Bytes on the GPU, weights included."""
    training_images_a_second: float | None
    training_memory: int | None


def cost(recipe: Recipe, size: int, device: torch.device, run: RunFolder | None = None) -> dict[str, Any]:
    """The costs of every step of a recipe, or of a run with its recipe. Neither data nor weights are needed."""
    require_between("--size", size, 32, 8192)
    scenario = scenario_of(recipe, run)
    counted = _count(recipe, scenario, size)
    speeds = _measure(recipe, scenario, size, device) if device.type == "cuda" else [_NO_GPU] * len(counted)
    steps = [
        StepCost(
            step=index,
            **counts,
            fps=inference.rate,
            inference_memory=inference.memory,
            training_images_a_second=training.rate,
            training_memory=training.memory,
        )
        for index, (counts, (inference, training)) in enumerate(zip(counted, speeds, strict=True))
    ]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return {"recipe": recipe.name, "size": size, "device": name, "steps": [asdict(step) for step in steps]}


def run_at(given: str) -> RunFolder | None:
    """The run that stands for its recipe, if it is one."""
    return RunFolder.open(Path(given)) if (Path(given) / "run.json").is_file() else None


def scenario_of(recipe: Recipe, run: RunFolder | None = None) -> Scenario:
    """The recipe's scenario; where its data is not here, of the classes that the recipe names. A run knows its own."""
    if run is not None and recipe.data == make_recipe(run.settings()).data:
        return run.scenario(recipe)
    try:
        splits = recipe.data.build()
    except UserError:
        config = recipe.scenario
        data = config.name.rpartition("/")[0] or recipe.data.name
        steps = tuple(chain(*config.steps or ()))
        classes = known_classes(data) or steps or (config.order if isinstance(config.order, tuple) else config.classes)
        if not classes:
            raise
        return config.build(data, classes)
    return recipe.scenario.build(splits.name, splits.classes)


def _count(recipe: Recipe, scenario: Scenario, size: int) -> list[dict[str, int]]:
    """Parameters and multiply-adds, on fake tensors, which have a shape but no values: nothing is computed."""
    method = recipe.method.build(recipe.model, pretrained=False)
    counts = []
    for step in scenario.steps:
        method.begin_step(step)
        learning = {id(p): p.numel() for group in method.parameter_groups() for p in group.parameters}
        # Attention as plain products: torch does not count its fused form on the CPU.
        plain = sdpa_kernel(SDPBackend.MATH)
        with plain, FakeTensorMode(allow_non_fake_inputs=True), FlopCounterMode(display=False) as counter:
            method.predict(torch.zeros(1, 3, size, size))
        counts.append(
            {
                "parameters": count_parameters(method.network),
                "trainable": sum(learning.values()),
                "macs": counter.get_total_flops() // 2,  # torch counts a multiply-add as two operations
            }
        )
    return counts


def _measure(recipe: Recipe, scenario: Scenario, size: int, device: torch.device) -> list[tuple[Speed, Speed]]:
    """Speed and memory of every step: labeling one picture, and an iteration of training."""
    set_deterministic(wanted=recipe.deterministic)  # as a run would
    method = recipe.method.build(recipe.model, pretrained=False)
    speeds = []
    for step in scenario.steps:
        method.begin_step(step)
        method.network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        speeds.append((_inference(method, size, device), _training(method, recipe, step, device)))
    return speeds


def _inference(method: Method, size: int, device: torch.device) -> Speed:
    picture = torch.rand(1, 3, size, size, device=device)
    return _time(lambda: method.predict(picture), 1, device)


def _training(method: Method, recipe: Recipe, step: Step, device: torch.device) -> Speed:
    config = recipe.training
    plan = method.plan(config.batch_size, recipe.memory.size if step.index else 0)
    batch = made_up(plan, config.crop, step, device)
    iterate = Iteration(method, config)
    learn = CudaGraphIteration(iterate) if config.graphs else iterate
    speed = _time(lambda: learn(batch), config.batch_size, device)
    iterate.optimizer.zero_grad(set_to_none=True)  # gradients would count as the next step's memory
    return speed


def _time(work: Callable[[], object], pictures: int, device: torch.device) -> Speed:
    gpu = device.type == "cuda"
    for _ in range(WARM_UP):
        work()
    if gpu:
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
    began = time.perf_counter()
    for _ in range(TIMED):
        work()
    if gpu:
        torch.cuda.synchronize(device)
    rate = TIMED * pictures / (time.perf_counter() - began)
    return Speed(rate=round(rate, 2), memory=torch.cuda.max_memory_allocated(device) if gpu else None)


def made_up(plan: BatchPlan, crop: tuple[int, int], step: Step, device: torch.device) -> StepBatch:
    """A batch of noise, made up as the method asks for it."""
    inputs = _noise(plan.num_new + plan.num_replayed, crop, step, device)
    replay_images = _noise(plan.num_replay_images, crop, step, device) if plan.num_replay_images else None
    return StepBatch(inputs, plan.num_new, replay_images, plan.num_posterior)


def _noise(count: int, crop: tuple[int, int], step: Step, device: torch.device) -> Batch:
    images = torch.rand(count, 3, *crop, device=device)
    labels: Tensor = torch.randint(1 + len(step.new), (count, *crop), device=device)
    labels = torch.where(labels > 0, labels + len(step.old), 0)
    return Batch(
        images=images,
        boxes=full_boxes(images).clone(),
        labels=labels,
        salient=torch.rand(count, *crop, device=device) < 0.5,
        stored=torch.zeros(count, len(step.seen), dtype=torch.bool, device=device),
        full=labels,
    )


def cost_table(report: dict[str, Any]) -> Table:
    """The report for a person."""
    table = Table(title=f"{report['recipe']} · {report['size']} pixels · {report['device']}", box=box.SIMPLE_HEAD)
    table.title_justify = "left"
    for column in ("step", "parameters", "learning", "multiply-adds", "fps", "memory", "training img/s", "memory"):
        table.add_column(column, justify="right", no_wrap=True)
    for step in report["steps"]:
        table.add_row(
            str(step["step"]),
            f"{step['parameters'] / 1e6:.2f} M",
            f"{step['trainable'] / 1e6:.2f} M",
            f"{step['macs'] / 1e9:.2f} G",
            _or_dash(step["fps"]),
            _or_dash(step["inference_memory"], 2**30, " GiB"),
            _or_dash(step["training_images_a_second"]),
            _or_dash(step["training_memory"], 2**30, " GiB"),
        )
    return table


def _or_dash(value: float | None, unit: float = 1, name: str = "") -> str:
    return "–" if value is None else f"{value / unit:.1f}{name}"
