"""What a posterior from moments knows of photographs: average precision on the held-out pictures, class by class.

    python benchmarks/real/moments.py --out moments.json --set data.path=... --set model.backbone.weights=...

Beside it stands `exact`: the share of pictures all of whose classes are named, and no other.

Nothing is trained: the backbone is ImageNet's (`method.posterior_backbone: still`). Where nothing else is said, old
classes have their true labels in later steps.

shrunk K          all pictures, step by step; K features / pictures times its variance is added to each feature's
100 pictures      those that the memory would hold after the last step
old absent        old classes are taken for absent in later steps (`method.image_labels: part`)
old wrong         or for present, at random in three of ten pictures: previous heads that see look-alikes
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ipseg.data.batch import Batch, BatchPlan
from ipseg.data.loader import BatchLoader
from ipseg.data.memory import Exemplar, ReplayMemory, select_exemplars
from ipseg.data.step_dataset import StepDataset
from ipseg.files import write_text
from ipseg.methods.labels import classes_present
from ipseg.models.moments import SHRINKAGE, Moments
from ipseg.models.network import Encoder
from ipseg.models.posterior import BINS
from ipseg.training.distributed import DistributedContext
from ipseg.training.evaluate import batches
from ipseg.training.recipe import Recipe, load_recipe
from ipseg.training.system import choose_device

RECIPE = Path(__file__).parent / "animals.yaml"
SHRUNK = (0.5, 1.0, 2.0, 4.0)
Seen = tuple[Tensor, Tensor]
"""Pooled features and image labels."""


@dataclass
class Looked:
    """What the backbone says of every picture."""

    whole: list[Seen]
    """Of each step: the labels of classes seen by then, the others are false."""
    held_out: Seen
    names: list[list[str]]
    """Of the pictures of each step."""


@torch.no_grad()
def look(recipe: Recipe, device: torch.device) -> Looked:
    """One pass over the pictures of every step, and over the held-out ones."""
    splits = recipe.splits()
    scenario = recipe.scenario.build(splits.name, splits.classes)
    last, classes = scenario.steps[-1], len(scenario.steps[-1].seen)
    encoder = Encoder(recipe.model).to(device).eval()  # nobody has taught it yet: this is what `still` keeps

    def seen(shown: Iterable[Batch], known: int) -> Seen:
        found = [(encoder(batch.images, batch.boxes, decoded=1).pooled, _labels(batch, classes)) for batch in shown]
        pooled, labels = (torch.cat(parts) for parts in zip(*found, strict=True))
        return pooled, labels & (torch.arange(classes, device=device) < known)

    whole, names = [], []
    for step in scenario.steps:
        view = StepDataset(splits.train, scenario, step, oracle=True)
        settings = {"crop": recipe.training.crop, "scales": recipe.training.scale, "flip": True, "seed": recipe.seed}
        nothing = ReplayMemory([], splits.train, ())
        loader = BatchLoader.of(view, nothing, BatchPlan(16), device=device, **settings)  # type: ignore[arg-type]
        whole.append(seen((batch.inputs for batch in loader.unaugmented()), len(step.seen)))
        names.append([view.name(i) for i in range(len(view))])
        print(f"step {step.index}: {len(view)} pictures", flush=True)
    held_out = seen(batches(splits.val, scenario, last, recipe.evaluation, DistributedContext(device)), classes)
    return Looked(whole, held_out, names)


def _labels(batch: Batch, classes: int) -> Tensor:
    return classes_present(batch.labels if batch.full is None else batch.full, classes)


def remembered(looked: Looked, order: Sequence[str], seed: int, size: int = 100) -> list[Seen]:
    """Class-balanced, as a memory chooses from all pictures."""
    labeled = {
        name: (pooled, labels)
        for some, (all_pooled, all_labels) in zip(looked.names, looked.whole, strict=True)
        for name, pooled, labels in zip(some, all_pooled, all_labels, strict=True)
    }
    exemplars = [
        Exemplar(name, tuple(one for one, there in zip(order, labels.tolist(), strict=True) if there), 0)
        for name, (_, labels) in labeled.items()
    ]
    chosen = [
        labeled[exemplar.name] for exemplar in select_exemplars(exemplars, order, size, np.random.default_rng(seed))
    ]
    return [(torch.stack([pooled for pooled, _ in chosen]), torch.stack([labels for _, labels in chosen]))]


def average_precision(scores: Tensor, truth: Tensor) -> float:
    """The mean precision at every picture that has the class, from the surest on."""
    hits = truth[scores.argsort(descending=True)].double()
    precision = hits.cumsum(0) / torch.arange(1, len(hits) + 1, device=hits.device)
    return float((precision * hits).sum() / hits.sum().clamp(min=1))


def guessed(looked: Looked, known: Sequence[int], wrong: float | None) -> list[Seen]:
    """Old classes in later steps as somebody guesses them; none: absent. known: how many there are before a step."""
    draw, steps = torch.Generator().manual_seed(0), []
    for before, (pooled, labels) in zip(known, looked.whole, strict=True):
        old = torch.arange(labels.shape[1], device=labels.device) < before
        there = labels & ~old
        if wrong is not None:
            there = labels | (torch.rand(labels.shape, generator=draw).to(labels.device) < wrong) & old
        steps.append((pooled, there))
    return steps


def judged(steps: Sequence[Seen], held_out: Seen, order: Sequence[str], shrunk: float) -> dict[str, float]:
    """The average precision of each class, and how often all of them are right."""
    posterior = Moments(steps[0][0].shape[1] // BINS**2, shrunk).to(held_out[0].device)
    posterior.add_step(held_out[1].shape[1])
    for step in steps:
        posterior.learn([step])
    said, truth = posterior(held_out[0]), held_out[1]
    found = {name: average_precision(said[:, one], truth[:, one]) for one, name in enumerate(order)}
    found["exact"] = float(((said > 0) == truth).all(1).double().mean())
    return {name: round(value, 4) for name, value in found.items()}


def main(words: Sequence[str] | None = None) -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", dest="changes", action="append", default=[], help="KEY=VALUE")
    options = parser.parse_args(words)
    recipe = load_recipe(RECIPE, ["evaluation.held_out=0.1", *options.changes])
    splits = recipe.splits()
    scenario = recipe.scenario.build(splits.name, splits.classes)
    order, known = scenario.order, [len(step.old) for step in scenario.steps]
    looked = look(recipe, choose_device(options.device))
    others = {
        "100 pictures": remembered(looked, order, recipe.seed),
        "old absent": guessed(looked, known, None),
        "old wrong": guessed(looked, known, 0.3),
    }
    found = {f"shrunk {shrunk}": judged(looked.whole, looked.held_out, order, shrunk) for shrunk in SHRUNK}
    found |= {name: judged(steps, looked.held_out, order, SHRINKAGE) for name, steps in others.items()}
    text = json.dumps({"version": 1, "average_precision": found}, indent=1) + "\n"
    write_text(options.out, text)
    print(text, end="")


if __name__ == "__main__":
    main()
