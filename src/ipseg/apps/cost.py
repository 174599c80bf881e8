"""Parameters, multiply-adds and, on a GPU, throughput and memory of every step of a recipe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.benchmark import Timer
from torch.utils.flop_counter import FlopCounterMode

from ipseg.data.batch import Batch, StepBatch
from ipseg.errors import UserError, require_between
from ipseg.methods.base import Method
from ipseg.models.boxes import full_boxes
from ipseg.models.network import count_parameters
from ipseg.report.formats import plain_table
from ipseg.saliency.regions import MAX_REGIONS
from ipseg.scenario import Scenario, Step, known_classes
from ipseg.training.folder import RunFolder
from ipseg.training.iteration import CudaGraphIteration, Iteration
from ipseg.training.recipe import Recipe, make_recipe
from ipseg.training.system import set_deterministic

WARM_UP, TIMED = 5, 10
"""Iterations before the measurement, enough to record one (`training.graphs`), and those that are measured."""


def cost(recipe: Recipe, size: int, device: torch.device, run: Path | None = None) -> dict[str, Any]:
    """The costs of every step of a recipe, or of a run with its recipe. Neither data nor weights are needed.

    Speed and memory are measured on a GPU alone; elsewhere they are null.
    """
    require_between("--size", size, 32, 8192)
    set_deterministic(wanted=recipe.deterministic)  # as a run would
    counted, timed = (recipe.method.build(recipe.model, pretrained=False) for _ in range(2))
    steps = []
    for step in scenario_of(recipe, run).steps:
        counted.begin_step(step)
        inference, training = Speed(), Speed()
        if device.type == "cuda":
            timed.begin_step(step)
            inference, training = measure(timed, recipe, step, size, device)
        speeds = {
            "fps": inference.rate,
            "inference_memory": inference.memory,
            "training_images_a_second": training.rate,
            "training_memory": training.memory,
        }
        steps.append({"step": step.index, **count(counted, size), **speeds})
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return {"recipe": recipe.name, "size": size, "device": name, "steps": steps}


def scenario_of(recipe: Recipe, run: Path | None = None) -> Scenario:
    """The recipe's scenario; where its data is not here, of the classes that the recipe names. A run has its own."""
    if run is not None and (run / "run.json").is_file():
        folder = RunFolder.open(run)
        if recipe.data == make_recipe(folder.settings()).data:
            return folder.scenario(recipe)
    config = recipe.scenario
    try:
        splits = recipe.data.build()
    except UserError:
        data = config.name.rpartition("/")[0] or recipe.data.name
        steps = tuple(chain(*config.steps or ()))
        classes = known_classes(data) or steps or (config.order if isinstance(config.order, tuple) else config.classes)
        if not classes:
            raise
        return config.build(data, classes)
    return config.build(splits.name, splits.classes)


def count(method: Method, size: int) -> dict[str, int]:
    """Parameters, trained ones, and multiply-adds of an image, on fake tensors: nothing is computed."""
    trainable = {id(p): p.numel() for group in method.parameter_groups() for p in group.parameters}
    # Attention as plain products: torch does not count its fused form on the CPU.
    plain = sdpa_kernel(SDPBackend.MATH)
    with plain, FakeTensorMode(allow_non_fake_inputs=True), FlopCounterMode(display=False) as counter:
        method.predict_batch(_noise(1, (size, size), method.step, torch.device("cpu")))
    return {
        "parameters": count_parameters(method.network),
        "trainable": sum(trainable.values()),
        "macs": counter.get_total_flops() // 2,  # torch counts a multiply-add as two operations
    }


@dataclass(frozen=True)
class Speed:
    """Images a second, and the peak of memory in bytes, weights included."""

    rate: float | None = None
    memory: int | None = None


def measure(method: Method, recipe: Recipe, step: Step, size: int, device: torch.device) -> tuple[Speed, Speed]:
    """Speed and memory of labeling one image, and of an iteration of training."""
    method.network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    image = _noise(1, (size, size), step, device)
    inference = _time(lambda: method.predict_batch(image), 1, device)
    config = recipe.training
    plan = method.plan(config.batch_size, recipe.memory.size if step.index else 0)
    batch = StepBatch(
        _noise(plan.num_new + plan.num_replayed, config.crop, step, device),
        plan.num_new,
        _noise(plan.num_replay_images, config.crop, step, device) if plan.num_replay_images else None,
        plan.num_posterior,
    )
    iteration = Iteration(method, config)
    train = CudaGraphIteration(iteration) if config.graphs else iteration
    training = _time(lambda: train(batch), config.batch_size, device)
    iteration.optimizer.zero_grad(set_to_none=True)  # gradients would count as the next step's memory
    return inference, training


def _time(work: Callable[[], object], images: int, device: torch.device) -> Speed:
    for _ in range(WARM_UP):
        work()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    seconds = Timer("work()", globals={"work": work}, num_threads=torch.get_num_threads()).timeit(TIMED).mean
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    return Speed(round(images / seconds, 2), peak)


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
        regions=torch.randint(MAX_REGIONS, labels.shape, device=device),
    )


def cost_table(report: dict[str, Any]) -> Table:
    columns = ("step", "parameters", "trainable", "multiply-adds", "fps", "memory", "training img/s", "memory")
    table = plain_table(f"{report['recipe']} · {report['size']} pixels · {report['device']}", [], columns)

    def format_number(value: float | None, unit: float = 1, name: str = "") -> str:
        return "–" if value is None else f"{value / unit:.1f}{name}"

    for step in report["steps"]:
        table.add_row(
            str(step["step"]),
            f"{step['parameters'] / 1e6:.2f} M",
            f"{step['trainable'] / 1e6:.2f} M",
            f"{step['macs'] / 1e9:.2f} G",
            format_number(step["fps"]),
            format_number(step["inference_memory"], 2**30, " GiB"),
            format_number(step["training_images_a_second"]),
            format_number(step["training_memory"], 2**30, " GiB"),
        )
    return table
