"""Speed of training and inference on one GPU, beside a plain reference (plain.py) in the same run. JSON lines.

    python benchmarks/speed.py --out runs/speed.jsonl

Networks have random weights and pictures are drawn: nothing needs to be downloaded. Each result is written as soon as
it is there. `compute`: the same batch again and again. `end_to_end`: with loading and augmentation.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np
import plain
import torch
from PIL import Image

from ipseg.apps.cost import made_up
from ipseg.data.batch import Sample, StepBatch
from ipseg.data.loader import BatchLoader
from ipseg.data.parallel import parallel_map
from ipseg.data.scenes.dataset import ScenesConfig
from ipseg.data.scenes.objects import class_names
from ipseg.data.step_dataset import StepDataset
from ipseg.methods.ipseg import IPSeg
from ipseg.models.fusible import fusing
from ipseg.models.posterior import Posterior
from ipseg.models.recording import cuda_recorder
from ipseg.scenario.split import Scenario
from ipseg.training.iteration import Iteration, Recorded
from ipseg.training.recipe import Recipe, load_recipe

GPU = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BACKBONES = {"resnet101": "resnet101", "swin-b": "swin_base_patch4_window12_384"}
FAST = ["training.precision=bf16"]
FUSED = [*FAST, "training.compile=true"]
WAYS = {
    "plain": [],
    "float32": [],
    "bf16": FAST,
    "graphs": [*FAST, "training.graphs=true"],
    "compile": FUSED,
    "compile, graphs": [*FUSED, "training.graphs=true"],
}
PICTURES, SIDE = 160, 512
BOUNDED = "bounded 0.05"
"""The method's own threshold."""
GATES = Path(__file__).parent / "results" / "2026-11-15_gates.json"
"""Which heads gates let through in a model that was trained for it."""


class Memory:
    """Remembered pictures, for batches of a later step."""

    def __init__(self, view: StepDataset) -> None:
        self.view, self.classes = view, len(view.step.seen)

    def __len__(self) -> int:
        return 100

    def sample(self, index: int) -> Sample:
        """One of the view's, nothing labeled."""
        picture = self.view.sample(index % len(self.view))
        stored = np.arange(self.classes) == index % self.classes
        return replace(picture, labels=np.zeros_like(picture.labels), stored=stored)


def write_pictures(folder: Path, classes: int) -> Path:
    """Drawn scenes of VOC's size as JPEG and PNG files, a `folder` data set."""
    split = ScenesConfig(classes=classes, size=(375, 500), train=PICTURES, val=1).build().train
    for name in ("images", "masks", "saliency"):
        (folder / name).mkdir(parents=True)

    def write(index: int) -> None:
        name = f"{index:04}"
        Image.fromarray(split.image(index)).save(folder / "images" / f"{name}.jpg", quality=90)
        Image.fromarray(split.mask(index)).save(folder / "masks" / f"{name}.png")
        Image.fromarray(split.saliency(index)).save(folder / "saliency" / f"{name}.png")

    parallel_map(write, range(PICTURES), "drawing")
    (folder / "classes.txt").write_text("\n".join(class_names(classes)))
    (folder / "train.txt").write_text("\n".join(f"{i:04}" for i in range(PICTURES)))
    (folder / "val.txt").write_text("0000")
    return folder


def recipe_for(backbone: str, scenario: str, side: int, data: Path, changes: list[str]) -> Recipe:
    """The paper's recipe of VOC with drawn pictures and random weights."""
    return load_recipe(
        "voc_15-1_ipseg_swin-b",
        [f"model.backbone={{name: {backbone}, weights: none}}", f"data={{name: folder, path: {data}}}",
         f"scenario.name={scenario}", f"training.crop=[{side}, {side}]", "training.batch_size=16", *changes],
    )  # fmt: skip


def begun(recipe: Recipe, scenario: Scenario, step: int, layout: torch.memory_format) -> IPSeg:
    """The method in a step, on the GPU."""
    torch.manual_seed(0)
    with GPU:  # weights are drawn there, which is faster
        method = recipe.method.build(recipe.model)
        for earlier in scenario.steps[: step % len(scenario.steps) + 1]:
            method.begin_step(earlier)
            method.network.to(memory_format=layout)  # copies that it makes of itself then have it too
    return method


class Gates(torch.nn.Module):
    """A posterior that does its work and then says what a trained model's gate let through: random weights cannot.

    All these heads run in the first turn; a trained model's may come in several, and the processor waits after each.
    """

    def __init__(self, real: Posterior, gates: list[list[int]], heads: int) -> None:
        super().__init__()
        self.real, self.sizes = real, real.sizes
        ran = torch.tensor([[head in row for head in range(heads)] for row in gates])
        self.register_buffer(
            "logits", torch.where(ran, 8.0, -12.0).repeat_interleave(torch.tensor(real.sizes[:heads]), dim=1).to(GPU)
        )
        self.at = 0

    def forward(self, pooled: torch.Tensor) -> torch.Tensor:
        """Logits of the next pictures."""
        rows = torch.arange(self.at, self.at + len(pooled), device=pooled.device) % len(self.logits)
        self.at += len(pooled)
        return 0 * self.real(pooled) + self.logits[rows]


def let_through(gates: dict[str, list[list[int]]]) -> dict[str, list[list[int]]]:
    """The heads of an exact gate, and of a bounded one: gates.py records its threshold alone; it skips both ways."""
    pairs = zip(gates["exact"], gates[BOUNDED], strict=True)
    return {"exact": gates["exact"], BOUNDED: [[head for head in row if head in exact] for exact, row in pairs]}


def rate(work: Callable[[], object], pictures: int, seconds: float, warm_up: int = 5) -> float:
    """Pictures a second, after a warm-up of some calls."""
    for _ in range(warm_up):
        work()
    torch.cuda.synchronize()
    began, rounds = time.perf_counter(), 0
    while time.perf_counter() - began < seconds or rounds < 5:
        for _ in range(4):
            work()
        torch.cuda.synchronize()
        rounds += 4
    return rounds * pictures / (time.perf_counter() - began)


def train(case: dict[str, Any], way: str, data: Path, seconds: float) -> Iterator[dict[str, Any]]:
    """Images a second of one way to train."""
    recipe = recipe_for(case["backbone"], case["scenario"], case["side"], data, WAYS[way])
    layout = torch.contiguous_format if way == "plain" else torch.channels_last
    splits = recipe.data.build()
    scenario = recipe.scenario.build(splits.name, splits.classes)
    method = begun(recipe, scenario, case["step"], layout)
    view = StepDataset(splits.train, scenario, method.step)
    if "gate" in way and method._previous is not None and method._previous.posterior is not None:
        old = method._previous
        seen = Gates(old.posterior, case["gates"], len(old.heads))
        method._previous = replace(old, posterior=seen)  # type: ignore[arg-type]
    torch.cuda.reset_peak_memory_stats()
    size, began = recipe.training.batch_size, time.perf_counter()
    if way == "plain":
        trainer = plain.PlainTrainer(method)
        names = [view.name(i) for i in range(len(view))]
        noise = made_up(method.plan(size, 0), recipe.training.crop, view.step, GPU)
        fixed = (noise.inputs.images, noise.inputs.labels, noise.inputs.salient, noise.inputs.images)
        result: dict[str, Any] = {"compute": rate(lambda: trainer(*fixed), size, seconds)}
        batches = plain.load(data, names, case["side"], size, case.get("workers", 16))

        def visit() -> None:
            images, labels, salient = next(batches)
            trainer(images, labels, salient, images)

        result["end_to_end"] = rate(visit, size, seconds)
    else:
        remembered = Memory(view) if view.step.index else ()
        loader = BatchLoader.of(view, remembered, method.plan(size, len(remembered)), crop=recipe.training.crop,
                             scales=(0.5, 2.0), flip=True, seed=0, device=GPU, cache_bytes=8 << 30)  # type: ignore[arg-type]  # fmt: skip
        method.prepare(loader[i] for i in range(10))
        loader = loader.with_plan(method.plan(size, len(remembered)))
        iterate = Iteration(method, recipe.training)
        learn = Recorded(iterate) if recipe.training.graphs else iterate
        fixed_batch = made_up(loader.sampler.plan, recipe.training.crop, view.step, GPU)
        result = {"compute": rate(lambda: learn(fixed_batch), size, seconds)}
        result["kernels_ms"] = kernels(lambda: learn(fixed_batch))
        batches_of_ours = endless(loader)
        result["end_to_end"] = rate(lambda: learn(next(batches_of_ours)), size, seconds)
    yield result | {"memory_gib": torch.cuda.max_memory_allocated() / 2**30, "took": time.perf_counter() - began}


@torch.no_grad()
def infer(backbone: str, steps: int, gates: dict[str, list[list[int]]], seconds: float) -> Iterator[dict[str, Any]]:
    """Images a second of every way to label pictures that are on the device, one at a time and sixteen."""
    recipe = recipe_for(backbone, "10-1", SIDE, Path("none"), [])
    method = begun(recipe, recipe.scenario.build("scenes", class_names(60)), steps - 1, torch.contiguous_format)
    posterior, config = method.network.posterior, method.config
    assert posterior is not None
    for way in ("plain", "every head", *gates):
        if way != "plain":
            method.network.to(GPU, memory_format=torch.channels_last)  # type: ignore[call-overload]
        if way in gates:
            method.config = replace(config, gate="exact" if way == "exact" else "bounded")
            method.network.posterior = Gates(posterior, gates[way], steps)  # type: ignore[assignment]
        for batch, fused in ((16, True), (1, False)):
            images = torch.rand(batch, 3, SIDE, SIDE, device=GPU)
            torch.cuda.reset_peak_memory_stats()
            work = partial(plain.predict, method, images) if way == "plain" else partial(predict, method, images, fused)
            # every head that will run has run twice by then, on every number of pictures: it is recorded
            warm_up = 2 * len(gates[way]) // gcd(len(gates[way]), batch) + 5 if way in gates else 5
            method.recorder = None if way == "plain" else cuda_recorder()
            found = {"rate": rate(work, batch, seconds, warm_up)}
            if batch == 16:
                found["kernels_ms"] = kernels(work)
            method.recorder = None
            found["memory_gib"] = torch.cuda.max_memory_allocated() / 2**30
            yield {"steps": steps, "way": way, "batch": batch, "compile": fused and way != "plain", **found}


def predict(method: IPSeg, images: torch.Tensor, fused: bool) -> torch.Tensor:
    """Labels, as an evaluation in bf16 with evaluation.graphs makes them, with or without evaluation.compile."""
    with torch.autocast(GPU.type, torch.bfloat16), fusing(wanted=fused):
        return method.predict(images).labels


def kernels(work: Callable[[], object], rounds: int = 3) -> dict[str, float]:
    """Milliseconds on the device of the costliest kernels in one call, and of all together."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(rounds):
            work()
        torch.cuda.synchronize()
    costs: dict[str, float] = defaultdict(float)
    for event in profiler.key_averages():  # names of templates differ only far behind
        costs[event.key[:120]] += event.self_device_time_total / rounds / 1000
    first = sorted(costs, key=costs.__getitem__, reverse=True)[:40]
    return {"all": round(sum(costs.values()), 2)} | {name: round(costs[name], 2) for name in first}


def endless(loader: BatchLoader) -> Iterator[StepBatch]:
    """Batch after batch."""
    with loader.batches(range(10**6)) as batches:
        yield from batches


def matrix_rate() -> float:
    """What the device reaches in a large bf16 product, in TFLOP/s."""
    a, b = (torch.randn(8192, 8192, device=GPU, dtype=torch.bfloat16) for _ in range(2))
    return rate(lambda: a @ b, 1, 2) * 2 * 8192**3 / 1e12


CASES = {
    "r50 320 step 0": {"backbone": "resnet50", "scenario": "2-1", "side": 320, "step": 0},
    "r50 320 step 4": {"backbone": "resnet50", "scenario": "2-1", "side": 320, "step": 4},
} | {
    f"{name} {scenario} step {step}": {"backbone": backbone, "scenario": scenario, "side": SIDE, "step": step}
    for name, backbone in BACKBONES.items()
    for scenario, step in (("15-1", 0), ("15-1", -1), ("10-1", -1))
}


def main(words: Sequence[str] | None = None) -> None:
    """Every case in every way that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cases", nargs="*", default=list(CASES), help="part of a case's name is enough")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--gates", type=Path, default=GATES, help="what gates.py wrote, 0.05 among its thresholds")
    parser.add_argument("--inference", nargs="*", default=list(BACKBONES), help="networks to label pictures with")
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 2, 6, 11, 51], help="of these networks")
    parser.add_argument("--seconds", type=float, default=3, help="at least, for each measurement")
    options = parser.parse_args(words)
    torch.backends.cudnn.benchmark = True
    gates = {row["steps"]: let_through(row["gates"]) for row in json.loads(options.gates.read_text())["models"]}
    options.out.write_text("")  # what an earlier call left there was measured on its own

    def add(measure: Callable[[], Iterable[dict[str, Any]]], **facts: Any) -> None:
        try:
            for row in measure():
                note(facts | row)
        except Exception as error:  # the others are still worth having
            note(facts | {"error": repr(error)[:1000]})
        gc.collect()
        torch.cuda.empty_cache()

    def note(row: dict[str, Any]) -> None:
        print(json.dumps({key: value for key, value in row.items() if key != "kernels_ms"}), flush=True)
        with options.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    add(lambda: [{"matrix_tflops": matrix_rate(), "device": torch.cuda.get_device_name()}])
    with tempfile.TemporaryDirectory() as folder:
        data = write_pictures(Path(folder) / "pictures", 20)
        for name, case in CASES.items():
            if any(part in name for part in options.cases):
                for way in options.ways:
                    gated = case | {"gates": gates[11 if "10-1" in name else 6]["exact"]}
                    add(partial(train, gated, way, data, options.seconds), case=name, way=way)
        for name in options.inference:
            for steps in options.steps:
                add(partial(infer, BACKBONES[name], steps, gates[steps], options.seconds), network=name)


if __name__ == "__main__":
    main()
