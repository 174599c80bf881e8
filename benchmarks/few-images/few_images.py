"""One more class from 4 to 64 photographs: IoU of the class, change of the old ones, and time.

python benchmarks/animals/make_animals.py voc_animals --out small --side 160
python benchmarks/few-images/few_images.py base --data small --work work    # once: a model of cats and dogs
python benchmarks/few-images/few_images.py run --data small --work work     # goes on where results.jsonl ends
python benchmarks/few-images/few_images.py figure --out docs/images/few-images.png
"""

from __future__ import annotations

import argparse
import copy
import json
import shutil
import statistics
import sys
import time
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image

import ipseg
from ipseg.apps.extend import create, extended_recipe, for_few_images, with_enough_iterations
from ipseg.apps.run import Run
from ipseg.data.dataset import Dataset
from ipseg.data.folder import FolderConfig
from ipseg.data.voc import VocConfig
from ipseg.evaluation.confusion import ConfusionMatrix
from ipseg.evaluation.metrics import iou
from ipseg.methods.fusion import fuse, predict
from ipseg.methods.labels import classes_present
from ipseg.models.features import Features
from ipseg.models.freezing import set_mode
from ipseg.models.lda import StreamingLDA
from ipseg.scenario import BACKGROUND
from ipseg.training.distributed import DistributedContext
from ipseg.training.evaluate import batches
from ipseg.training.experiment import run as train
from ipseg.training.folder import RunFolder
from ipseg.training.system import describe_system

Line = dict[str, Any]
CPU = torch.device("cpu")
Cell = tuple[str, int, int]
"""A new class, how many images, and which draw of them."""
OLD = ("cat", "dog")
NEW = ("cow", "horse", "person", "sheep")
COUNTS = (4, 8, 16, 32, 64)
DRAWS = (0, 1, 2)
HELD_OUT = 0.1
"""Share of the training images that settings were chosen on; nothing is learned from them."""
BASE_IMAGES = 600
"""Of each old class."""
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
CHOSEN_ON = [("cow", 32, 100), ("person", 32, 100)]
"""Cells, measured on held-out images, that decided about settings."""
SETTINGS = ["training.batch_size=4"]
"""To save time. The crop stays the base's: the posterior learns from images that fit into it."""
OWN_VALIDATION = 4
"""Images that the command itself measures after a step; the study measures on others."""


class Animals:
    """The photographs and which classes they show."""

    def __init__(self, path: Path) -> None:
        voc = VocConfig(path=str(path)).build()
        self.classes = voc.classes
        self.train, self.val = voc.train, voc.val
        self.shown = [{voc.classes[i - 1] for i in present} for present in voc.train.class_presence()]
        held = [zlib.crc32(name.encode()) / 2**32 < HELD_OUT for name in voc.train.names]
        self.held_out = [i for i, out in enumerate(held) if out]
        self.free = [i for i, out in enumerate(held) if not out]

    def showing(self, name: str) -> list[int]:
        """Images to learn from that show a class."""
        return [i for i in self.free if name in self.shown[i]]

    def base_images(self) -> list[int]:
        """What the model of cats and dogs learns from."""
        rng = np.random.default_rng(0)
        return sorted({int(i) for name in OLD for i in rng.permutation(self.showing(name))[:BASE_IMAGES]})

    def draw(self, name: str, count: int, draw: int) -> list[int]:
        """Images of a new class that the base has not seen; the first of 64 are those of 32."""
        pool = sorted(set(self.showing(name)) - set(self.base_images()))
        order = np.random.default_rng([draw, NEW.index(name)]).permutation(pool)
        return [int(i) for i in order[:count]]

    def write(self, root: Path, split: Dataset, train: Sequence[int], val: Sequence[int], names: Sequence[str]) -> None:
        """A data folder that annotates these classes alone."""
        table = np.zeros(256, np.uint8)
        table[255] = 255
        for value, name in enumerate(names, start=1):
            table[1 + self.classes.index(name)] = value
        for folder in ("images", "masks", "saliency"):
            (root / folder).mkdir(parents=True)
        (root / "classes.txt").write_text("\n".join(names))
        for list_name, chosen in (("train", train), ("val", val)):
            if train:  # without lists all images are for measuring
                (root / f"{list_name}.txt").write_text("\n".join(split.names[i] for i in chosen))
            for i in chosen:
                name = split.names[i]
                Image.fromarray(split.image(i)).save(root / "images" / f"{name}.png")
                Image.fromarray(table[split.mask(i)]).save(root / "masks" / f"{name}.png")
                Image.fromarray(split.saliency(i)).save(root / "saliency" / f"{name}.png")


def train_base(animals: Animals, work: Path) -> None:
    """Cats and dogs."""
    if not (work / "base").exists():
        animals.write(work / "base", animals.train, animals.base_images(), animals.held_out, OLD)
    recipe = Path(__file__).with_name("base.yaml")
    ipseg.train(recipe, work / "runs" / "base", set=[f"data.path={work / 'base'}"])


class Validation:
    """Photographs to measure on, with the encoder's features: it is frozen after the base step, so one pass serves all.

    Those that show an old class or the new one are kept apart from those that show neither: there every object is of a
    class that nobody taught.
    """

    def __init__(self, animals: Animals, split: Dataset, images: Sequence[int], root: Path, base: Path) -> None:
        self.root, self.features = root, list[Features]()
        self.base: Any = ipseg.load(base, device="cpu").method
        for name in NEW:
            if not (root / name).exists():
                animals.write(root / name, split, [], images, [*OLD, name])

    def measure(self, run: Path, name: str) -> dict[str, dict[str, float | None]]:
        """IoU of every class: by the base, after the step, on all photographs, and with other posteriors."""
        method: Any = ipseg.load(run, device="cpu").method
        opened, new = Run.open(run), 1 + len(OLD)
        splits = FolderConfig(path=str(self.root / name)).measured()
        scenario = replace(opened.scenario, data_classes=splits.classes)
        for known in (self.base, method):
            set_mode(known.network, training=False)
        plain, alpha = uncorrected(method.posterior), method.config.alpha_bc
        counts: dict[str, ConfusionMatrix] = {}
        with torch.no_grad():
            found = batches(splits.val, scenario, scenario.steps[-1], opened.recipe.evaluation, DistributedContext(CPU))
            for index, batch in enumerate(found):
                if index == len(self.features):
                    self.features.append(method.network.encoder(batch.images, batch.boxes))
                features, truth = self.features[index], batch.labels
                present = classes_present(truth, new)
                taught = present.any(1)
                before = predict(self.base.network, features, self.base.config.fusion).labels
                after = predict(method.network, features, method.config.fusion)
                assert after.pixel is not None
                by_posterior = {
                    "iou_with_true_posterior": present.float(),
                    "iou_without_correction": plain(features.pooled).sigmoid(),
                }
                ways = {
                    "before": (truth.where(truth != new, 0), before),
                    "iou": (truth, after.labels),
                    **{key: (truth, fuse(after.pixel, known, alpha).argmax(1)) for key, known in by_posterior.items()},
                }
                for key, (right, said) in ways.items():
                    counts.setdefault(key, ConfusionMatrix(1 + new)).update(right[taught], said[taught])
                counts.setdefault("iou_on_all", ConfusionMatrix(1 + new)).update(truth, after.labels)
        names = [BACKGROUND, *scenario.order]
        return {key: dict(zip(names, iou(matrix.counts, "skip"), strict=True)) for key, matrix in counts.items()}


def uncorrected(posterior: StreamingLDA) -> StreamingLDA:
    """The posterior as the textbook has it, without what chance takes from a mean of few images."""
    plain = copy.deepcopy(posterior)
    count, total, _, count_of, total_of = (known.double() for known in plain._sums())
    with_it, without = total_of / count_of[:, None], (total - total_of) / (count - count_of)[:, None]
    plain.bias = -(plain.weight * (with_it + without) / 2).sum(1).float()
    return plain


def run_cell(animals: Animals, work: Path, cell: Cell, changes: Sequence[str]) -> tuple[Path, Line]:
    """Extend the base by one class, as `ipseg extend` does but for its report."""
    name, count, draw = cell
    data, out = work / "new" / f"{name}-{count}-{draw}", work / "runs" / f"{name}-{count}-{draw}"
    if not data.exists():
        own = animals.held_out[:OWN_VALIDATION]
        animals.write(data, animals.train, animals.draw(*cell), own, [name])
    shutil.rmtree(out, ignore_errors=True)
    base = Run.open(work / "runs" / "base")
    recipe = extended_recipe(base, data, [name], "folder", changes)
    recipe, _ = with_enough_iterations(for_few_images(recipe, count, changes, None), 1, count, changes, None)
    splits = recipe.splits()
    scenario = recipe.scenario.build(splits.name, splits.classes)
    began = time.process_time()
    create(Run(RunFolder(out), recipe, scenario), base, splits, memory=True)
    train(recipe, out, resume=True, splits=splits, quiet=True)
    seconds, iterations = time.process_time() - began, recipe.training.iterations(1, count)
    return out, {"class": name, "images": count, "draw": draw, "iterations": iterations, "processor_seconds": seconds}


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of results."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


def append(path: Path, line: dict[str, Any]) -> None:
    """Add a line; fractions to six digits."""

    def rounded(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: rounded(one) for key, one in value.items()}
        return round(value, 6) if isinstance(value, float) else value

    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(rounded(line)) + "\n")


def new_iou(lines: Sequence[Line], count: int, name: str | None = None, key: str = "iou") -> list[float]:
    """Of the new class, in percent, of every draw; name: of one class alone. key: by which posterior."""
    chosen = [line for line in lines if line["images"] == count and name in (None, line["class"])]
    return [100 * line[key][line["class"]] for line in chosen]


def old_change(line: Line) -> float:
    """By how many points the old classes' mIoU has changed."""
    return 100 * statistics.fmean(line["iou"][name] - line["before"][name] for name in OLD)


def draw_figure(lines: Sequence[Line], out: Path) -> None:
    """IoU of the new class against the number of images, and what became of the old ones."""
    figure = Figure(figsize=(9.4, 3.7), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.5, 1])
    places = range(len(COUNTS))
    for name, color in zip(NEW, COLORS, strict=True):
        values = [new_iou(lines, count, name) for count in COUNTS]
        left.plot(places, [*map(statistics.fmean, values)], "o-", color=color, markersize=4, linewidth=1.2, label=name)
        left.fill_between(places, [*map(min, values)], [*map(max, values)], color=color, alpha=0.12, linewidth=0)
        for place, count in enumerate(COUNTS):
            changes = [old_change(line) for line in lines if (line["class"], line["images"]) == (name, count)]
            right.plot([place] * len(changes), changes, "o", color=color, markersize=4, alpha=0.7)
    for key, style, label in (
        ("iou_with_true_posterior", "--", "mean, true posterior"),
        ("iou", "-", "mean"),
        ("iou_without_correction", ":", "mean, posterior not corrected"),
    ):
        means = [statistics.fmean(new_iou(lines, count, key=key)) for count in COUNTS]
        left.plot(places, means, style, color="#1c2230", linewidth=2.5 if key == "iou" else 1.5, label=label)
    left.set_ylim(0, 80)
    left.set_title("IoU of the new class, %", loc="left", fontsize=9)
    right.axhline(0, color="#8f98a3", linewidth=1)
    right.set_title("change of the old classes' mIoU, points", loc="left", fontsize=9)
    for axes in (left, right):
        axes.set(xticks=places, xticklabels=COUNTS)
        axes.set_xlabel("images of the new class", fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, linewidth=0.5)
        axes.tick_params(labelsize=8)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    figure.savefig(out, dpi=130)


def provenance(machine: str) -> dict[str, Any]:
    """Where a line comes from."""
    system = describe_system()
    return {
        "commit": (system["git"] or {}).get("commit", "")[:7] or None,
        "torch": system["versions"]["torch"],
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine,
        "command": "python benchmarks/few-images/few_images.py run",
    }


def main(words: Sequence[str] | None = None) -> int:
    """Train the base, run the cells that have no result yet, or draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["base", "run", "figure"])
    parser.add_argument("--data", type=Path, help="voc_animals at 160 pixels")
    parser.add_argument("--work", type=Path, help="a folder for data and runs")
    parser.add_argument("--results", type=Path, default=Path(__file__).with_name("results.jsonl"))
    parser.add_argument("--held-out", action="store_true", help="choose: draws and photographs that are not reported")
    parser.add_argument("--variant", default="", help="what `--set` makes of it")
    parser.add_argument("--set", dest="changes", action="append", default=[], help="KEY=VALUE for the new step")
    parser.add_argument("--machine", default="2 CPU cores")
    parser.add_argument("--out", type=Path, help="of the figure")
    options = parser.parse_args(words)
    if options.what == "figure":
        draw_figure([line for line in read(options.results) if line["on"] == "validation"], options.out)
        return 0
    animals, work = Animals(options.data), options.work
    if options.what == "base":
        train_base(animals, work)
        return 0
    if options.held_out:
        split, images, on, cells = animals.train, animals.held_out, "held out", CHOSEN_ON
    else:
        split, images, on = animals.val, range(len(animals.val.names)), "validation"
        cells = [(name, count, draw) for draw in DRAWS for count in COUNTS for name in NEW]
    validation = Validation(animals, split, images, work / on.replace(" ", "_"), work / "runs" / "base")
    known = {
        (line["on"], line["variant"], line["class"], line["images"], line["draw"]) for line in read(options.results)
    }
    for cell in cells:
        if (on, options.variant, *cell) not in known:
            run, line = run_cell(animals, work, cell, [*SETTINGS, *options.changes])
            about = {"on": on, "variant": options.variant, "changes": options.changes}
            append(options.results, about | line | validation.measure(run, cell[0]) | provenance(options.machine))
    return 0


if __name__ == "__main__":
    sys.exit(main())
