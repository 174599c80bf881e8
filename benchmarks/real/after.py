"""What finished runs can still tell without training: settings of inference, and probabilities where they are wrong.

    python benchmarks/real/after.py runs/main/runs/*/ --out after.json
    python benchmarks/real/figures.py after.json --out figures

For every run: how likely the true and the winning class are in wrongly predicted pixels after the last step, and the
image-level accuracy of every step. For IPSeg also the mIoU over alpha_NF, over alpha_BC, and with the unknown dropped
or added to the background. The file is written after every run; runs that it has are not measured again, unless they
were trained anew or `--set` is another.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from opened import Counts, Opened
from torch import Tensor

from ipseg.apps.evaluate import require_place
from ipseg.data.batch import Batch
from ipseg.errors import WRONG, UserError
from ipseg.evaluation.confusion import ConfusionMatrix
from ipseg.evaluation.results import RunResult
from ipseg.files import read_json, write_text
from ipseg.methods.base import Prediction
from ipseg.methods.ipseg_inference import Fusion, predict
from ipseg.models.fusible import fusing
from ipseg.scenario.split import IGNORE
from ipseg.training.evaluate import EvaluationConfig
from ipseg.training.folder import RunFolder
from ipseg.training.system import choose_device

VERSION = 1
VALUES: dict[str, tuple[float | str, ...]] = {
    "alpha_nf": (0.2, 0.4, 0.6, 0.8, 1.0),
    "alpha_bc": (0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    "unknown": ("background", "drop"),
}
"""The paper's, and what it and the authors' code differ in."""
BINS = 20
READINGS = ("as_is", "normalized")
"""Scores as the method compares them, and divided by their sum over classes: sigmoids do not add up to 1."""
Way = tuple[str, float | str]
OWN: Way = ("own", "")


def own_values(fusion: Fusion, *, posterior: bool) -> dict[str, Any]:
    """The settings in force that are varied: no filter is a factor of 1, and without a part there is no curve."""
    alpha_nf = {"alpha_nf": fusion.alpha_nf} if fusion.decoupled else {}
    alpha_bc = {"alpha_bc": fusion.alpha_bc} if posterior else {}
    return alpha_nf | alpha_bc | {"unknown": "background" if fusion.unknown_joins_background else "drop"}


def ways(fusion: Fusion, *, posterior: bool) -> dict[Way, Fusion]:
    """A cross around the run's own settings, which are always on it; the other unknown with and without filter."""
    found: dict[Way, Fusion] = {}
    for name, own in own_values(fusion, posterior=posterior).items():
        for value in sorted({*VALUES[name], own}):
            changed: dict[str, Any] = {name: value}
            if name == "unknown":
                changed = {"unknown_joins_background": value == "background"}
            found[name, value] = replace(fusion, **changed)
    if fusion.decoupled:
        other = replace(fusion, unknown_joins_background=not fusion.unknown_joins_background)
        found |= {("alpha_nf, other unknown", value): replace(other, alpha_nf=value) for value in (0.4, 1.0)}
    return found


class WrongPixels:
    """Where the prediction is wrong: how likely the true class, the winning one and all others were, by true class."""

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self.counts = {(reading, which): torch.zeros(classes, BINS, dtype=torch.int64)
                       for reading in READINGS for which in ("true", "winning")}  # fmt: skip
        self.sums = {reading: torch.zeros(classes, classes, dtype=torch.float64) for reading in READINGS}

    def update(self, labels: Tensor, prediction: Prediction) -> None:
        """Add a batch. Background with the unknown added can score more than 1: that counts in the last bin."""
        winner = prediction.labels
        wrong = (labels != IGNORE) & (labels != winner)
        true, winner = labels[wrong].long(), winner[wrong]
        scores = prediction.scores.permute(0, 2, 3, 1)[wrong].float()
        normalized = scores / scores.sum(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
        for reading, rows in zip(READINGS, (scores, normalized), strict=True):
            for which, label in (("true", true), ("winning", winner)):
                place = (rows.gather(1, label[:, None])[:, 0] * BINS).long().clamp(0, BINS - 1)
                counted = torch.bincount(true * BINS + place, minlength=self.classes * BINS)
                self.counts[reading, which] += counted.view(self.classes, BINS).cpu()
            by_class = torch.stack([rows[true == label].sum(0) for label in range(self.classes)])
            self.sums[reading] += by_class.cpu().double()

    def to_json(self, names: Sequence[str]) -> dict[str, Any]:
        """By reading: true | winning -> true class -> counts, and mean -> true class -> class -> probability."""
        pixels = self.counts[READINGS[0], "true"].sum(1)
        there = [(label, name) for label, name in enumerate(names) if pixels[label]]
        found: dict[str, Any] = {}
        for reading in READINGS:
            means = self.sums[reading] / pixels.clamp(min=1)[:, None]
            found[reading] = {
                which: {name: self.counts[reading, which][label].tolist() for label, name in there}
                for which in ("true", "winning")
            } | {
                "mean": {
                    name: {other: round(p, 4) for other, p in zip(names, means[label].tolist(), strict=True)}
                    for label, name in there
                }
            }
        return found


def look(
    method: Any, pictures: Iterable[Batch], classes: int, settings: Mapping[Way, Fusion], evaluation: EvaluationConfig
) -> tuple[dict[Way, Counts], WrongPixels]:
    """Confusions with each of the settings of inference, and the wrong pixels of the run's own."""
    device = next(method.network.parameters()).device
    confusions = {way: ConfusionMatrix(classes, device) for way in (OWN, *settings)}
    wrong = WrongPixels(classes)
    for batch in pictures:
        bf16 = evaluation.precision == "bf16"
        with torch.autocast(batch.images.device.type, torch.bfloat16, enabled=bf16), fusing(wanted=evaluation.compile):
            prediction = method.predict(batch.images, batch.boxes)
            confusions[OWN].update(batch.labels, prediction.labels)
            wrong.update(batch.labels, prediction)
            with torch.no_grad():
                features = method.network.encoder(batch.images, batch.boxes) if settings else None
            for way, fusion in settings.items():
                confusions[way].update(batch.labels, predict(method.network, features, fusion).labels)
    return {way: confusion.counts for way, confusion in confusions.items()}, wrong


def measure(run: Path, recorded: RunResult, device: torch.device, assignments: Sequence[str]) -> dict[str, Any]:
    """Everything about one run, in one pass over its validation pictures."""
    opened = Opened.of(run, device, assignments)
    names, evaluation, config = opened.names, opened.recipe.evaluation, opened.recipe.method
    settings: dict[Way, Fusion] = {}
    own = None
    fusion: Fusion | None = getattr(config, "fusion", None)
    if fusion is not None:
        posterior = opened.method.network.posterior is not None
        settings, own = ways(fusion, posterior=posterior), own_values(fusion, posterior=posterior)
    confusions, wrong = look(opened.method, opened.pictures(), len(names), settings, evaluation)
    curves: dict[str, list[dict[str, Any]]] = {}
    for name, value in settings:
        curves.setdefault(name, []).append({"value": value, **opened.miou(confusions[name, value])})
    return {
        **{key: getattr(recorded, key) for key in ("name", "method", "scenario", "setting", "seed")},
        "set": list(assignments),
        "device": device.type,
        "base": list(opened.base),
        "new": list(opened.new),
        "recorded": recorded.steps[-1].miou["all"],
        "miou": opened.miou(confusions[OWN]),
        "own": own,
        "curves": curves,
        "pixels": dict(zip(names, confusions[OWN].sum(1).tolist(), strict=True)),
        "wrong": wrong.to_json(names),
        "image_accuracy": [{"step": each.step, **(each.image_accuracy or {})} for each in recorded.steps],
    }


def finished(run: Path) -> RunResult:
    """The results of a run that has learned everything."""
    recorded = RunResult.read(RunFolder.open(run).path / "results.json")
    if not recorded.complete:
        steps = f"{len(recorded.steps)} of {recorded.info['steps']} steps"
        raise UserError(f"{run} is not finished ({steps}); `ipseg train {run} --resume` goes on with it.")
    return recorded


def measured_before(out: Path, runs: Sequence[Path]) -> dict[str, Any]:
    """What a file of measurements holds already, by run; raise if it must not be written."""
    for run in runs:
        require_place(out, run)
    known: dict[str, Any] = read_json(out, "the measurements", VERSION)["runs"] if out.exists() else {}
    return known


def write(out: Path, runs: dict[str, Any]) -> None:
    """A line a run: small, and a change is seen where it is."""
    lines = [f"{json.dumps(key)}: {json.dumps(entry, allow_nan=False)}" for key, entry in runs.items()]
    write_text(out, f'{{"version": {VERSION}, "runs": {{\n' + ",\n".join(lines) + "\n}}\n")


def main(words: Sequence[str] | None = None) -> int:
    """Measure what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--out", type=Path, required=True, help="a JSON file; it is added to")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", dest="changes", action="append", default=[], help="KEY=VALUE for every run")
    options = parser.parse_args(words)
    try:
        device = choose_device(options.device)
        known = measured_before(options.out, options.runs)
    except UserError as error:
        print(error, file=sys.stderr)
        return WRONG
    for run in options.runs:
        began, key = time.monotonic(), run.as_posix()
        try:
            recorded, entry = finished(run), known.get(key)
            if entry and (entry["set"], entry["recorded"]) == (options.changes, recorded.steps[-1].miou["all"]):
                print(f"{key}: measured before", flush=True)
                continue
            known[key] = entry = measure(run, recorded, device, options.changes)
        except (UserError, OSError) as error:  # one that is not finished must not stop the others
            print(f"{key}: left out. {error}", file=sys.stderr, flush=True)
            continue
        write(options.out, known)
        all_now, all_then = entry["miou"]["all"], entry["recorded"]
        same = "as recorded" if all_now == all_then else f"recorded {all_then}"
        print(f"{key}: all {all_now} ({same}), {time.monotonic() - began:.0f} s", flush=True)
    return 0 if known else WRONG


if __name__ == "__main__":
    sys.exit(main())
