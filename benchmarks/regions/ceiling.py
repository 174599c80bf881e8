"""What methods over regions can reach at most: the mIoU where every region has the class of most of its pixels.

    python benchmarks/regions/ceiling.py --data VOC --machine "2 CPU cores"

VOC is a tree of Pascal VOC (or of voc_animals); every k-th of its validation images, about 80, is read at its own size.
Prints a line a kind of regions, to append to results.jsonl.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
import skimage
import torch
from numpy.typing import NDArray

from ipseg.data.dataset import Image, Regions
from ipseg.data.voc import VocConfig
from ipseg.evaluation.confusion import ConfusionMatrix
from ipseg.evaluation.metrics import iou
from ipseg.methods.regions import label_counts
from ipseg.saliency.regions import MAX_REGIONS, propose_regions
from ipseg.scenario import IGNORE

WANTED = 80


def as_tensor(labels: NDArray[np.generic]) -> torch.Tensor:
    """(1, H, W)."""
    return torch.from_numpy(labels.astype(np.int64))[None]


def grid(image: Image) -> Regions:
    """10 x 10 rectangles."""
    rows, columns = (np.arange(side) * 10 // side for side in image.shape[:2])
    return (10 * rows[:, None] + columns).astype(np.uint8)


def best_labels(regions: Regions, mask: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The mask as regions can show it at best."""
    counts = np.asarray(label_counts(as_tensor(regions), as_tensor(mask), IGNORE)[0])
    return counts.argmax(1)[np.minimum(regions, MAX_REGIONS)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--machine", required=True)
    arguments = parser.parse_args()
    splits = VocConfig(path=str(arguments.data), saliency="none").build()
    indices = range(0, len(splits.val.names), max(1, len(splits.val.names) // WANTED))[:WANTED]
    kinds: dict[str, Callable[[Image], Regions]] = {"grid": grid, "ipseg regions": propose_regions}
    for name, propose in kinds.items():
        confusion, number, seconds = ConfusionMatrix(1 + len(splits.classes)), 0, 0.0
        for index in indices:
            image, mask = splits.val.image(index), splits.val.mask(index)
            start = time.perf_counter()
            regions = propose(image)
            seconds += time.perf_counter() - start
            number += len(np.unique(regions))
            confusion.update(as_tensor(mask), as_tensor(best_labels(regions, mask)))
        values = [value for value in iou(confusion.counts, "skip") if value is not None]
        line = {
            "regions": name,
            "images": len(indices),
            "mean number": round(number / len(indices), 1),
            "classes": len(values),
            "ceiling mIoU": round(100 * float(np.mean(values)), 1),
            "ms an image": round(1000 * seconds / len(indices)),
        }
        command = f"python benchmarks/regions/ceiling.py --data VOC_ANIMALS --machine '{arguments.machine}'"
        commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True).strip()
        about = {"commit": commit, "date": str(date.today()), "scikit-image": skimage.__version__, "command": command}
        print(json.dumps(line | about | {"machine": arguments.machine}))


if __name__ == "__main__":
    main()
