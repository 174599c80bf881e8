"""A run, top-down: train every step of a scenario, one after the other, and evaluate after each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import torch

from ipseg.data.batch import Sample
from ipseg.data.dataset import DatasetSplits
from ipseg.data.loader import BatchLoader, Passes, cache_limit
from ipseg.data.memory import LabelPolicy, MemoryConfig, ReplayMemory, load_memory, save_memory, update_memory
from ipseg.data.step_dataset import StepDataset
from ipseg.data.transforms import as_batch
from ipseg.errors import Interrupted, UserError, require_at_least
from ipseg.evaluation.results import RunResult, StepResult
from ipseg.methods.base import Method
from ipseg.methods.labels import where_unlabeled
from ipseg.progress import Meter, silence
from ipseg.scenario import Scenario, Step
from ipseg.training.distributed import DistributedContext, distributed, sync_batch_norm
from ipseg.training.evaluate import evaluate
from ipseg.training.folder import ReadOnlyRunFolder, RunFolder
from ipseg.training.recipe import Recipe
from ipseg.training.setup import begin, load, resolve_start
from ipseg.training.system import no_cudnn_benchmark
from ipseg.training.trainer import stop_request, train_step

AfterStep = Callable[[Method, Step, StepResult], None]


def run(
    recipe: Recipe,
    path: Path,
    *,
    resume: bool = False,
    splits: DatasetSplits | None = None,
    quiet: bool = False,
    steps: int | None = None,
    after_step: AfterStep = lambda _method, _step, _result: None,
) -> RunResult:
    """Train a recipe's scenario in a folder, or its first `steps` alone.

    source: shares images that another run has already read.
    """
    require_at_least("--steps", 1 if steps is None else steps, 1)
    recipe.require_trainable()
    with distributed(recipe.device, recipe.training.batch_size) as dist, silence(wanted=quiet or not dist.is_main):
        folder = (RunFolder if dist.is_main else ReadOnlyRunFolder).check(path, recipe, resume=resume)
        require_alone(recipe, dist)
        if folder.begun:
            scenario = folder.scenario(recipe)
            if folder.finished() >= min(len(scenario.steps), steps or len(scenario.steps)):  # its data may be gone
                with folder.lock():
                    return conclude(recipe, folder, scenario)
        return _run(recipe, folder, splits or recipe.splits(), dist, steps, after_step)


def require_alone(recipe: Recipe, dist: DistributedContext) -> None:
    """Raise if iterations are to be recorded by several processes: that is untested."""
    if recipe.training.graphs and dist.size > 1 and dist.device.type == "cuda":
        raise UserError(
            f"training.graphs records the work of one process, and there are {dist.size}. Set it to false: "
            "--set training.graphs=false"
        )


def _run(
    recipe: Recipe,
    folder: RunFolder,
    splits: DatasetSplits,
    dist: DistributedContext,
    steps: int | None,
    after_step: AfterStep,
) -> RunResult:
    start = resolve_start(recipe, folder, splits, dist.device)
    scenario, method = start.scenario, start.method
    dist.barrier()  # no rank may see what another has started to write
    folder.create(recipe, scenario)
    with folder.lock():
        if start.base:
            folder.copy_steps(start.base.folder, start.base.steps, whole=start.base.whole)
            if start.base.whole:
                folder.write_results(summarize(recipe, folder, scenario))  # a run that fails later still has a row
        dist.barrier()
        for view in start.views:
            if steps is not None and view.step.index >= steps:
                break
            if view is not start.views[0]:
                begin(method, recipe, view.step, dist.device)
            memory, watch = open_memory(recipe, folder, view), Stopwatch()
            train(method, recipe, view, memory, folder, dist, watch)
            if dist.is_main:
                store_memory(method, recipe, view, memory, folder, dist.device)
            watch.lap("memory")
            result = measure(method, recipe, splits, scenario, view.step, dist)
            watch.lap("evaluate")
            folder.log(event="step", step=view.step.index, seconds=watch.seconds)
            folder.write_results(summarize(recipe, folder, scenario, result))
            folder.finish_step(view.step.index, result)  # last: a sweep does not restart a run whose steps are finished
            dist.barrier()
            after_step(method, view.step, result)
        return conclude(recipe, folder, scenario)


def conclude(recipe: Recipe, folder: RunFolder, scenario: Scenario) -> RunResult:
    """Write the whole run's results: all steps may be another run's, or have been evaluated before a kill."""
    results = summarize(recipe, folder, scenario)
    folder.write_results(results)
    return results


def train(
    method: Method,
    recipe: Recipe,
    view: StepDataset,
    memory: ReplayMemory,
    folder: RunFolder,
    dist: DistributedContext,
    watch: Stopwatch,
) -> None:
    """Train the step, or load its weights if the run was interrupted after training."""
    step, training = view.step, recipe.training
    if (folder.step(step.index) / "weights.safetensors").is_file():
        load(method, folder, step.index)
        return
    loader = BatchLoader(
        view,
        memory,
        method.plan(training.batch_size, len(memory)),
        crop=training.crop,
        scales=training.scale,
        flip=training.flip,
        seed=recipe.seed,
        device=dist.device,
        cache_bytes=cache_limit(training.cache_gb),
        workers=training.workers,
        shard=dist.shard,
    )
    title = f"{recipe.name or recipe.method.name} step {step.index}: {', '.join(step.new)}"
    mixed = torch.autocast(dist.device.type, torch.bfloat16, enabled=training.precision == "bf16")
    with mixed:
        if dist.size > 1:  # the method may train there
            sync_batch_norm(method.network, dist.device)
        method.prepare(Passes(loader))
    watch.lap("load")
    with stop_request() as stopped:
        train_step(method, loader, training, folder, recipe.seed, dist, stopped, title=title)
        watch.lap("train")
        with mixed, no_cudnn_benchmark():  # each image comes once
            method.end_step(loader.unaugmented())
        folder.save_weights(step.index, method.network)
        watch.lap("save")
    if dist.any_rank(stopped())[0]:  # requested after the last iteration
        raise Interrupted(f"interrupted after step {step.index} was trained; resume with --resume.")


def store_memory(
    method: Method, recipe: Recipe, view: StepDataset, memory: ReplayMemory, folder: RunFolder, device: torch.device
) -> None:
    """Select the exemplars of the step; the model labels their old classes, for which there is no annotation."""

    def old_classes(sample: Sample) -> Iterable[str]:
        if not view.step.old:
            return []
        batch = as_batch(sample, len(view.step.seen), device)
        found = where_unlabeled(method.pseudo_labels(batch), batch.labels)
        seen = method.image_classes(found)[0]
        return [name for name, there in zip(view.step.old, seen.tolist(), strict=False) if there]

    config, place = memory_config(recipe), folder.step(view.step.index) / "memory"
    with no_cudnn_benchmark():
        kept = update_memory(memory, view, config, recipe.seed, old_classes)
    save_memory(kept, place, view, config, recipe.method.replayed_labels)


def memory_config(recipe: Recipe) -> MemoryConfig:
    """A method that does not replay stores nothing: images may be private."""
    return recipe.memory if recipe.method.replays else replace(recipe.memory, size=0)


def open_memory(recipe: Recipe, folder: RunFolder, view: StepDataset) -> ReplayMemory:
    """The previous step's memory with the labels that this step may see; empty before the base step."""
    before = view.step.index - 1
    if before < 0:
        return ReplayMemory([], view.split, ())
    oracle = view.scenario.oracle_table(view.step) if list(recipe.method.oracle()) else None
    policy = LabelPolicy(recipe.method.replayed_labels, view, oracle)
    return load_memory(folder.step(before) / "memory", view.split, policy)


def measure(
    method: Method, recipe: Recipe, splits: DatasetSplits, scenario: Scenario, step: Step, dist: DistributedContext
) -> StepResult:
    """Evaluate on the validation images."""
    title = f"{recipe.name or recipe.method.name} step {step.index}: evaluation"
    with Meter(title, len(dist.shard(len(splits.val.names)))) as meter:
        return evaluate(
            method, splits.val, scenario, step, recipe.evaluation, dist, meter.advance, recipe.method.uses_regions
        )


class Stopwatch:
    """Seconds of each part of a step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, part: str) -> None:
        """Count the time since the last lap for this part."""
        now = time.monotonic()
        self.seconds[part] = round(now - self._last, 2)
        self._last = now


def summarize(recipe: Recipe, folder: RunFolder, scenario: Scenario, *latest: StepResult) -> RunResult:
    """All results so far; `latest` is of a step that is not finished yet."""
    return RunResult(
        name=recipe.name or recipe.method.name,
        method=recipe.method.name,
        scenario=scenario.name,
        setting=scenario.setting,
        seed=recipe.seed,
        steps=(*(folder.result(index) for index in range(folder.finished())), *latest),
        oracle=tuple(recipe.oracle()),
        info={
            "steps": len(scenario.steps),
            "memory": memory_config(recipe).size,
            "backbone": recipe.model.backbone.name,
        },
    )
