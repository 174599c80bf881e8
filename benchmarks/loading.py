"""How many pictures a second the loader gives, without any network: resident, and read by 0, 1, 2 and 4 workers.

`python benchmarks/loading.py DATA --format voc --side 500 > result.json`. Batches are made on the CPU, scaling and
cropping included; on a GPU that part is the GPU's, and what is left stands under "reading". Pictures are copied to a
temporary folder, enlarged so that the longer side has --side pixels: shrunk ones would be read too fast.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from ipseg.data.batch import BatchPlan
from ipseg.data.dataset import DatasetSplits
from ipseg.data.folder import FolderConfig
from ipseg.data.loader import AHEAD, BatchLoader, SampleCache, read_ahead
from ipseg.data.memory import ReplayMemory
from ipseg.data.registry import data_config
from ipseg.data.step_dataset import StepDataset
from ipseg.scenario.split import ScenarioConfig

BATCH = 16
EVERYTHING = float("inf")


def main() -> None:
    """Prepare the pictures, measure every setting and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--format", default="voc")
    parser.add_argument("--pictures", type=int, default=160, help="the first of the training split")
    parser.add_argument("--side", type=int, default=500, help="pixels of the longer side, as VOC has")
    parser.add_argument("--repeat", type=int, default=2, help="the best of so many counts")
    options = parser.parse_args()
    given = data_config({"name": options.format, "path": str(options.data)}).build()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["IPSEG_CACHE"] = f"{folder}/cache"
        write(given, Path(folder), options.pictures, options.side)
        splits = FolderConfig(path=folder).build()
        scenario = ScenarioConfig(name="joint").build("folder", splits.classes)
        view = StepDataset(splits.train, scenario, scenario.steps[0])
        files = [path.stat().st_size for path in Path(folder, "images").iterdir()]
        shapes = [view.sample(position).labels.shape for position in range(len(view))]
        report = {
            "pictures": len(view),
            "mean_pixels": round(float(np.mean([height * width for height, width in shapes]))),
            "mean_jpeg_bytes": round(float(np.mean(files))),
            "kept_bytes_a_picture": kept_bytes(view),
            "batch": BATCH,
            "cores": len(os.sched_getaffinity(0)),
            "torch_threads": torch.get_num_threads(),
            "images_a_second": measure(view, options.repeat),
        }
    print(json.dumps(report, indent=2))


def write(given: DatasetSplits, folder: Path, count: int, side: int) -> None:
    """Some pictures of a data set, enlarged, as a data set of their own."""
    for part in ("images", "masks", "saliency"):
        (folder / part).mkdir()
    (folder / "classes.txt").write_text("\n".join(given.classes) + "\n", encoding="utf-8")
    count = min(count, len(given.train.names))
    for name in ("train.txt", "val.txt"):  # nothing is validated, but a data set has both
        (folder / name).write_text("".join(f"{index:05d}\n" for index in range(count)), encoding="utf-8")
    for index in range(count):
        image, mask = Image.fromarray(given.train.image(index)), Image.fromarray(given.train.mask(index))
        salient = Image.fromarray(given.train.saliency(index))
        size = tuple(round(length * side / max(image.size)) for length in image.size)
        image.resize(size, Image.Resampling.BICUBIC).save(folder / "images" / f"{index:05d}.jpg", quality=90)
        mask.resize(size, Image.Resampling.NEAREST).save(folder / "masks" / f"{index:05d}.png")
        salient.resize(size, Image.Resampling.NEAREST).save(folder / "saliency" / f"{index:05d}.png")


def kept_bytes(view: StepDataset) -> int:
    """Of a picture in memory, in the mean."""
    limit = 1 << 40
    kept = SampleCache(view, limit)
    for position in range(len(view)):
        kept.sample(position)
    return round((limit - kept.left) / len(view))


def measure(view: StepDataset, repeat: int) -> dict[str, dict[str, float]]:
    """Of each crop and of reading alone: resident after the first pass, and read anew each time."""
    settings = {"resident": (EVERYTHING, 0)} | {f"{workers} workers": (0.0, workers) for workers in (0, 1, 2, 4)}
    rates: dict[str, dict[str, float]] = {}
    for crop in (256, 512):
        rates[f"crop {crop}"] = {
            name: best(batches_of(view, crop, keep, workers), len(view) // BATCH * BATCH, repeat)
            for name, (keep, workers) in settings.items()
        }
    rates["reading"] = {
        name: best(reading(view, keep, workers), len(view), repeat) for name, (keep, workers) in settings.items()
    }
    return rates


def batches_of(view: StepDataset, crop: int, keep: float, workers: int) -> Callable[[], None]:
    """A pass over the pictures, as batches."""
    loader = BatchLoader.of(
        view,
        ReplayMemory([], view.split, ()),
        BatchPlan(BATCH),
        crop=(crop, crop),
        scales=(0.5, 2.0),
        flip=True,
        seed=0,
        device=torch.device("cpu"),
        cache_bytes=keep,
        workers=workers,
    )

    def once() -> None:
        with loader.batches(range(len(view) // BATCH)) as batches:
            for _ in batches:
                pass

    return once


def reading(view: StepDataset, keep: float, workers: int) -> Callable[[], None]:
    """The same without laying them on canvases."""
    kept = SampleCache(view, keep)

    def once() -> None:
        groups = [range(start, min(start + BATCH, len(view))) for start in range(0, len(view), BATCH)]
        with read_ahead(kept.sample, groups, workers=workers, ahead=AHEAD) as samples:
            for _ in samples:
                pass

    return once


def best(work: Callable[[], None], pictures: int, repeat: int) -> float:
    """Pictures a second of the fastest pass after a first one, which fills memory and warms up the disk's cache."""
    work()
    seconds = []
    for _ in range(repeat):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return round(pictures / min(seconds), 1)


if __name__ == "__main__":
    main()
