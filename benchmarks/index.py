"""How long the index of masks takes: built from nothing, read back, and after a few masks have changed.

Run `python benchmarks/index.py`. It makes its own masks (palette PNGs of 500 x 375 with objects, as Pascal VOC's) in a
temporary folder and prints JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image, ImageDraw

from ipseg.data.image_io import read_labels
from ipseg.data.mask_index import class_presence_of
from ipseg.data.parallel import parallel_map

T = TypeVar("T")
PALETTE = [int(value) for value in np.random.default_rng(0).integers(0, 256, 768)]


def main() -> None:
    """Make masks, index them three times and print the seconds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--masks", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["IPSEG_CACHE"] = f"{folder}/cache"
        paths = [Path(folder) / f"{number:06d}.png" for number in range(options.masks)]
        parallel_map(draw_mask, paths, "drawing masks")
        index = partial(class_presence_of, paths, read_labels)
        built, build_s = timed(index)
        again, read_back_s = timed(index)
        assert built == again
        for path in paths[:10]:
            draw_mask(path, seed=1)
        _, ten_changed_s = timed(index)
        (cache,) = Path(folder, "cache").iterdir()
        report = {
            "masks": len(paths),
            "bytes_a_mask": sum(path.stat().st_size for path in paths) // len(paths),
            "cores": len(os.sched_getaffinity(0)),
            "build_s": build_s,
            "read_back_s": read_back_s,
            "ten_changed_s": ten_changed_s,
            "cache_bytes": cache.stat().st_size,
        }
    print(json.dumps(report, indent=2))


def draw_mask(path: Path, seed: int = 0) -> None:
    """One to four blobs of VOC's classes, each with a border that is not labeled."""
    rng = np.random.default_rng([seed, int(path.stem)])
    mask = Image.new("P", (500, 375))
    mask.putpalette(PALETTE)
    draw = ImageDraw.Draw(mask)
    for _ in range(rng.integers(1, 5)):
        angles = np.sort(rng.uniform(0, 2 * np.pi, 60))
        radii = rng.uniform(40, 150) * rng.uniform(0.7, 1.0, 60)
        center = rng.uniform((50, 50), (450, 325))
        outline = center + radii[:, None] * np.stack([np.cos(angles), np.sin(angles)], 1)
        draw.polygon([tuple(point) for point in outline], fill=int(rng.integers(1, 21)), outline=255, width=4)
    mask.save(path)


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """The result and the seconds it took."""
    began = time.perf_counter()
    result = work()
    return result, round(time.perf_counter() - began, 3)


if __name__ == "__main__":
    main()
