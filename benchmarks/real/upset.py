"""Does a new head begin to learn? The first iterations of step 1, again and again from one run's base step.

    python benchmarks/real/upset.py runs/main/runs/ipseg_2-1_s1 --out upset.jsonl --seeds 0 1 2 3 4 5

For every way and seed: the loss of the newest head, in parts of 50 iterations, and which share of the channels of its
last block stays dark in a whole batch. A line is written after each; lines that the file has are not measured again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ipseg.data.loader import BatchLoader, cache_limit
from ipseg.data.source import Source
from ipseg.data.step_dataset import StepDataset
from ipseg.engine.experiment import remembered
from ipseg.engine.folder import RunFolder
from ipseg.engine.iteration import Iteration, Recorded
from ipseg.engine.recipe import Recipe, make_recipe
from ipseg.engine.recipe_files import with_changes
from ipseg.engine.start import begin, restore
from ipseg.engine.system import choose_device, seed_all, set_deterministic
from ipseg.methods.ipseg import IPSegConfig

WAYS = {
    "poly": [],
    "warming up": ["training.later_schedule=warm_poly"],
    "compiled": ["training.compile=true"],
    "float32": ["training.precision=float32"],
    "norms frozen": ["method.norm_weights=frozen"],
}
PART = 50


def begun(recipe: Recipe, folder: RunFolder, source: Source, device: torch.device) -> tuple[Any, BatchLoader]:
    """The method in step 1, and its batches."""
    scenario, training = recipe.scenario.build(source.name, source.classes), recipe.training
    view = StepDataset(source.train, scenario, scenario.steps[1])
    method, memory = restore(recipe, folder, scenario, 0, device), remembered(recipe, folder, view)
    begin(method, recipe, view.step, device)
    plan, keep = method.plan(training.batch_size, len(memory)), cache_limit(training.cache_gb)
    settings = {"crop": training.crop, "scales": training.scale, "flip": training.flip, "seed": recipe.seed}
    loader = BatchLoader.of(view, memory, plan, device=device, cache_bytes=keep, workers=training.workers, **settings)  # type: ignore[arg-type]
    method.prepare(loader.one_pass())
    return method, loader.with_plan(method.plan(training.batch_size, len(memory)))


def losses_of(method: Any, loader: BatchLoader, recipe: Recipe, count: int) -> list[float]:
    """The newest head's, of the first iterations at most; the rate is that of a step of the usual length."""
    config = recipe.training.at(1)
    iterate = Iteration(method, config)
    learn = Recorded(iterate) if config.graphs and loader.device.type == "cuda" else iterate
    length, losses = config.iterations(1, len(loader.view)), []
    with loader.batches(range(min(count, length))) as batches:
        for iteration, batch in enumerate(batches):
            seed_all(recipe.seed, 1, iteration)
            iterate.set_rate(config.rate(iteration, length))
            losses.append(learn(batch).losses["current"].clone())
    return torch.stack(losses).tolist()


@torch.no_grad()
def dark(method: Any, loader: BatchLoader) -> float:
    """The share of channels of the newest head's last block that are zero in a whole batch."""
    with loader.batches(range(1)) as batches:
        crops = next(batches).inputs
    method.train_mode()
    features = method.network.encoder(crops.images, crops.boxes)
    seen: Tensor = method.network.temporary[-1].trunk(features.decoded, features.stages)
    return float((seen.amax((0, 2, 3)) <= 0).float().mean())


def main(words: Sequence[str] | None = None) -> None:
    """Every way with every seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", dest="changes", action="append", default=[], help="KEY=VALUE for every way")
    options = parser.parse_args(words)
    known = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    measured = {(line["way"], line["seed"]) for line in known}
    folder, device = RunFolder.open(options.run), choose_device(options.device)
    recipe = make_recipe(with_changes(folder.settings(), options.changes))
    source = recipe.source()
    if not isinstance(recipe.method, IPSegConfig) or len(folder.scenario(recipe).steps) < 2:
        parser.error(f"{options.run} is no run of IPSeg with a second step, so it has no new head.")
    set_deterministic(wanted=False)
    for seed in options.seeds:
        for way in (way for way in options.ways if (way, seed) not in measured):
            recipe = make_recipe(with_changes(folder.settings(), [*options.changes, *WAYS[way]]))
            started, recipe = time.monotonic(), replace(recipe, seed=seed)
            method, loader = begun(recipe, folder, source, device)
            losses = losses_of(method, loader, recipe, options.iterations)
            parts = [sum(losses[i : i + PART]) / len(losses[i : i + PART]) for i in range(0, len(losses), PART)]
            line = {"way": way, "seed": seed, "first": losses[:PART], "parts": parts, "dark": dark(method, loader)}
            line |= {"seconds": round(time.monotonic() - started, 1)}
            with options.out.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(way, seed, [round(part, 2) for part in parts], f"dark {line['dark']:.2f}", flush=True)


if __name__ == "__main__":
    main()
