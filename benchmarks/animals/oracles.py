"""What each part of IPSeg loses: finished runs evaluated again with a part replaced by the ground truth.

    python benchmarks/animals/oracles.py runs/animals/runs/ipseg_2-1_s0 --out oracles.json --set data.path=...

as it is           the run's own prediction
true posterior     the posterior is 1 for the classes of the image and 0 for the others
true foreground    the best class on objects, background elsewhere
both               which of an image's classes the heads confuse
pixels alone       no posterior
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ipseg.apps.run import Run
from ipseg.evaluation.confusion import ConfusionMatrix
from ipseg.evaluation.metrics import iou, miou_groups
from ipseg.methods.base import Prediction
from ipseg.methods.labels import classes_present
from ipseg.scenario import BACKGROUND, IGNORE
from ipseg.training.distributed import DistributedContext
from ipseg.training.evaluate import batches
from ipseg.training.system import choose_device, no_cudnn_benchmark

LOGIT = 30.0
"""Its sigmoid is 1 in float32."""
WAYS = ("as it is", "true posterior", "true foreground", "both", "pixels alone")


class OraclePosterior(nn.Module):
    """A posterior that can be told which classes the images have."""

    def __init__(self, real: nn.Module) -> None:
        super().__init__()
        self.real, self.sizes = real, real.sizes
        self.truth: Tensor | None = None

    def forward(self, pooled: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.real(pooled)
        return logits if self.truth is None else torch.where(self.truth, LOGIT, -LOGIT)


def predictions(method: Any, images: Tensor, boxes: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Label maps by each of the ways."""
    posterior: OraclePosterior = method.network.posterior
    own: Prediction = method.predict(images, boxes)
    posterior.truth = classes_present(labels, sum(posterior.sizes))
    known: Prediction = method.predict(images, boxes)
    posterior.truth = None
    maps = (own.labels, known.labels, on_objects(own.scores, labels), on_objects(known.scores, labels))
    return dict(zip(WAYS, (*maps, own.pixel.argmax(1)), strict=True))


def on_objects(scores: Tensor, truth: Tensor) -> Tensor:
    """The best class on annotated objects, background elsewhere."""
    return (scores[:, 1:].argmax(1) + 1).where((truth > 0) & (truth != IGNORE), 0)


def measure(run: Path, device: torch.device, assignments: Sequence[str]) -> dict[str, dict[str, float | None]]:
    """MIoU over all, base and new classes by each of the ways."""
    opened = Run.open(run, assignments)
    recipe, splits = opened.recipe, opened.recipe.splits()
    scenario = opened.with_classes_of(splits).scenario
    base, last = scenario.steps[0].new, scenario.steps[-1]
    method: Any = opened.method(last, device)
    method.network.posterior = OraclePosterior(method.network.posterior)
    counts = {way: ConfusionMatrix(1 + len(last.seen), device) for way in WAYS}
    with no_cudnn_benchmark():
        for batch in batches(splits.val, scenario, last, recipe.evaluation, DistributedContext(device)):
            with torch.autocast(device.type, torch.bfloat16, enabled=recipe.evaluation.precision == "bf16"):
                found = predictions(method, batch.images, batch.boxes, batch.labels)
            for way, labels in found.items():
                counts[way].update(batch.labels, labels)
    names = (BACKGROUND, *last.seen)
    classes = {way: dict(zip(names, iou(counts[way].counts, recipe.evaluation.absent), strict=True)) for way in WAYS}
    groups = {way: miou_groups(values, base, last.seen[len(base) :]) for way, values in classes.items()}
    return {way: {key: found[key] for key in ("all", "base", "new")} for way, found in groups.items()}


def main(words: Sequence[str] | None = None) -> int:
    """Measure runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", dest="changes", action="append", default=[], help="KEY=VALUE for every run")
    options = parser.parse_args(words)
    found = []
    for run in options.runs:
        name = json.loads((run / "results.json").read_text(encoding="utf-8"))["name"]
        found.append({"name": name, "miou": measure(run, choose_device(options.device), options.changes)})
        options.out.write_text(json.dumps({"runs": found}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
