"""What a posterior from moments knows of photographs: average precision on the held-out pictures, class by class.

    python benchmarks/real/moments.py --out moments.json --set data.path=... --set model.backbone.weights=...

Nothing is trained: the backbone is ImageNet's (`method.posterior_backbone: still`). Old classes have their true labels,
which in a run the previous heads guess.

shrunk K          all pictures, step by step; K times its variance is added to each feature's
from crops        of pictures laid as in training instead of whole ones
100 pictures      those that the memory would hold after the last step
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ipseg.data.batch import Batch, BatchPlan
from ipseg.data.memory import Entry, ReplayMemory
from ipseg.data.memory_update import choose
from ipseg.data.stream import BatchStream
from ipseg.data.view import StepView
from ipseg.engine.evaluate import batches
from ipseg.engine.experiment import one_pass
from ipseg.engine.recipe import Recipe, load_recipe
from ipseg.engine.system import choose_device
from ipseg.engine.team import Team
from ipseg.files import write_text
from ipseg.methods.labels import classes_present
from ipseg.model.moments import Moments
from ipseg.model.network import Encoder
from ipseg.model.posterior import BINS

RECIPE = Path(__file__).parent / "animals.yaml"
SHRUNK = (0.1, 0.3, 1.0, 3.0)
Seen = tuple[Tensor, Tensor]
"""Pooled features and image labels."""


@dataclass
class Looked:
    """What the backbone says of every picture."""

    whole: list[Seen]
    """Of each step: the labels of classes seen by then, the others are false."""
    crops: list[Seen]
    held_out: Seen
    names: list[list[str]]
    """Of the pictures of each step."""


@torch.no_grad()
def look(recipe: Recipe, device: torch.device) -> Looked:
    """One pass over wholes and crops of every step, and over the held-out pictures."""
    source = recipe.source()
    scenario = recipe.scenario.build(source.name, source.classes)
    last, classes = scenario.steps[-1], len(scenario.steps[-1].seen)
    encoder = Encoder(recipe.model).to(device).eval()  # nobody has taught it yet: this is what `still` keeps

    def seen(shown: Iterable[Batch], known: int) -> Seen:
        found = [(encoder(batch.images, batch.boxes, decoded=1).pooled, _labels(batch, classes)) for batch in shown]
        pooled, labels = (torch.cat(parts) for parts in zip(*found, strict=True))
        return pooled, labels & (torch.arange(classes, device=device) < known)

    whole, crops, names = [], [], []
    for step in scenario.steps:
        view = StepView(source.train, scenario, step, oracle=True)
        settings = {"crop": recipe.training.crop, "scales": recipe.training.scale, "flip": True, "seed": recipe.seed}
        nothing = ReplayMemory([], source.train, ())
        stream = BatchStream(view, nothing, BatchPlan(16), device=device, **settings)  # type: ignore[arg-type]
        whole.append(seen((batch.crops for batch in stream.pictures()), len(step.seen)))
        crops.append(seen((batch.crops for batch in one_pass(stream)), len(step.seen)))
        names.append([view.name(i) for i in range(len(view))])
        print(f"step {step.index}: {len(view)} pictures", flush=True)
    held_out = seen(batches(source.val, scenario, last, recipe.evaluation, Team(device)), classes)
    return Looked(whole, crops, held_out, names)


def _labels(batch: Batch, classes: int) -> Tensor:
    return classes_present(batch.labels if batch.full is None else batch.full, classes)


def remembered(looked: Looked, order: Sequence[str], seed: int, size: int = 100) -> list[Seen]:
    """Class-balanced, as a memory chooses from all pictures."""
    labelled = {
        name: (pooled, labels)
        for some, (all_pooled, all_labels) in zip(looked.names, looked.whole, strict=True)
        for name, pooled, labels in zip(some, all_pooled, all_labels, strict=True)
    }
    entries = [
        Entry(name, tuple(one for one, there in zip(order, labels.tolist(), strict=True) if there), 0)
        for name, (_, labels) in labelled.items()
    ]
    chosen = [labelled[entry.name] for entry in choose(entries, order, size, np.random.default_rng(seed))]
    return [(torch.stack([pooled for pooled, _ in chosen]), torch.stack([labels for _, labels in chosen]))]


def average_precision(scores: Tensor, truth: Tensor) -> float:
    """The mean precision at every picture that has the class, from the surest on."""
    hits = truth[scores.argsort(descending=True)].double()
    precision = hits.cumsum(0) / torch.arange(1, len(hits) + 1, device=hits.device)
    return float((precision * hits).sum() / hits.sum().clamp(min=1))


def judged(steps: Sequence[Seen], held_out: Seen, shrunk: float = 1.0) -> Iterator[float]:
    """The average precision of each class."""
    posterior = Moments(steps[0][0].shape[1] // BINS**2, shrunk).to(held_out[0].device)
    posterior.grow(held_out[1].shape[1])
    for step in steps:
        posterior.learn([step])
    said = posterior(held_out[0])
    yield from (average_precision(said[:, one], held_out[1][:, one]) for one in range(said.shape[1]))


def main(words: Sequence[str] | None = None) -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", dest="changes", action="append", default=[], help="KEY=VALUE")
    options = parser.parse_args(words)
    recipe = load_recipe(RECIPE, ["evaluation.held_out=0.1", *options.changes])
    source = recipe.source()
    order = recipe.scenario.build(source.name, source.classes).order
    looked = look(recipe, choose_device(options.device))
    rows = {f"shrunk {shrunk}": (looked.whole, shrunk) for shrunk in SHRUNK}
    rows |= {"from crops": (looked.crops, 1.0), "100 pictures": (remembered(looked, order, recipe.seed), 1.0)}
    found = {
        name: dict(zip(order, (round(value, 4) for value in judged(steps, looked.held_out, shrunk)), strict=True))
        for name, (steps, shrunk) in rows.items()
    }
    text = json.dumps({"version": 1, "average_precision": found}, indent=1) + "\n"
    write_text(options.out, text)
    print(text, end="")


if __name__ == "__main__":
    main()
