"""Which part of IPSeg loses what: finished runs measured again with one part or another replaced by the truth.

    python benchmarks/real/oracles.py runs/main/runs/ipseg_2-1_s0 --out oracles.json

as it is           the run's own answer
true posterior     the picture's classes are known; the pixels decide where they are
true foreground    where an object is, is known; pixels and posterior decide which class it has
both               what the heads confuse among the classes of a picture
relative           no oracle: posteriors divided by the largest of the picture, so that doubt about an object's class
                   does not make it background
pixels alone       no posterior

The file is written after every run, and added to.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from after import VERSION, finished, measured_before
from opened import Opened
from torch import Tensor, nn

from ipseg.errors import WRONG, UserError
from ipseg.evaluation.confusion import ConfusionMatrix
from ipseg.files import write_text
from ipseg.methods.base import Prediction
from ipseg.methods.ipseg import IPSegConfig
from ipseg.methods.labels import classes_present
from ipseg.scenario.split import IGNORE
from ipseg.training.system import choose_device

SURE = 30.0
"""A logit whose probability is 1 in float32."""
WAYS = ("as it is", "true posterior", "true foreground", "both", "relative", "pixels alone")


class Told(nn.Module):
    """A posterior that says what it is told to, and otherwise what it thinks."""

    def __init__(self, real: nn.Module) -> None:
        super().__init__()
        self.real, self.sizes = real, real.sizes
        self.truth: Tensor | None = None
        self.relative = False

    def forward(self, pooled: Tensor) -> Tensor:
        """Logits."""
        if self.truth is not None:
            return torch.where(self.truth, SURE, -SURE)
        logits: Tensor = self.real(pooled).float()
        if not self.relative:
            return logits
        seen = logits.sigmoid()
        return (seen / seen.amax(1, keepdim=True)).logit(eps=1e-6)


def answers(method: Any, told: Told, images: Tensor, boxes: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Labels of the pixels, every way."""
    own: Prediction = method.predict(images, boxes)
    told.truth = classes_present(labels, sum(told.sizes))
    known: Prediction = method.predict(images, boxes)
    told.truth, told.relative = None, True
    relative: Prediction = method.predict(images, boxes)
    told.relative = False
    assert own.pixel is not None
    return {
        "as it is": own.labels,
        "true posterior": known.labels,
        "true foreground": among(own.scores, labels),
        "both": among(known.scores, labels),
        "relative": relative.labels,
        "pixels alone": own.pixel.max(1).indices,
    }


def among(scores: Tensor, truth: Tensor) -> Tensor:
    """The best class where there is an object, and background where there is none."""
    return (scores[:, 1:].max(1).indices + 1).where((truth > 0) & (truth != IGNORE), 0)


def measure(run: Path, device: torch.device, assignments: Sequence[str]) -> dict[str, Any]:
    """All, base and new, every way."""
    opened = Opened.of(run, device, assignments)
    config = opened.recipe.method
    if not isinstance(config, IPSegConfig) or not config.image_posterior:
        raise UserError(f"{run} has no posterior to replace; name runs of ipseg.")
    method, evaluation = opened.method, opened.recipe.evaluation
    method.config = replace(config, gate="none")  # a gate leaves the pixels without the posterior out
    told = method.network.posterior = Told(method.network.posterior)
    confusions = {way: ConfusionMatrix(len(opened.names), device) for way in WAYS}
    for batch in opened.pictures():
        with torch.autocast(device.type, torch.bfloat16, enabled=evaluation.precision == "bf16"):
            found = answers(method, told, batch.images, batch.boxes, batch.labels)
        for way, labels in found.items():
            confusions[way].update(batch.labels, labels)
    return {way: opened.miou(confusion.counts) for way, confusion in confusions.items()}


def main(words: Sequence[str] | None = None) -> int:
    """Measure the runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--out", type=Path, required=True, help="a JSON file; it is added to")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", dest="changes", action="append", default=[], help="KEY=VALUE for every run")
    options = parser.parse_args(words)
    try:
        found = measured_before(options.out, options.runs)
    except UserError as error:
        print(error, file=sys.stderr)
        return WRONG
    for run in options.runs:
        key = run.as_posix()
        try:
            name = finished(run).name
            found[key] = {"name": name, "miou": measure(run, choose_device(options.device), options.changes)}
        except (UserError, OSError) as error:  # one that is not finished must not stop the others
            print(f"{key}: left out. {error}", file=sys.stderr, flush=True)
            continue
        write_text(options.out, json.dumps({"version": VERSION, "runs": found}, indent=1) + "\n")
        said = ", ".join(f"{way} {100 * (values['all'] or 0):.1f}" for way, values in found[key]["miou"].items())
        print(f"{key}: {said}", flush=True)
    return 0 if found else WRONG


if __name__ == "__main__":
    sys.exit(main())
