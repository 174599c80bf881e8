"""How good saliency maps are: those that came with the data, an ONNX model's, and the fallback's.

Against the annotated foreground of some classes, and against the maps that came with the data. On a VOC tree with
saliency_map/: `python benchmarks/saliency.py DATA --model u2netp.onnx --pictures 0 > result.json`.
"""

from __future__ import annotations

import argparse
import io
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from ipseg.data.voc import VocConfig
from ipseg.saliency.fallback import salient
from ipseg.saliency.onnx import PRESETS, OnnxSaliency
from ipseg.scenario.split import IGNORE

SHRUNK = 0.64  # 500 pixels to 320, as voc_animals was made


def main() -> None:
    """Look at the pictures with each detector and print the comparison as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--preset", default="u2netp", choices=PRESETS)
    parser.add_argument("--split", default="val", choices=["train", "val"])
    parser.add_argument("--pictures", type=int, default=100, help="spread evenly over the split; 0: all")
    parser.add_argument("--classes", nargs="+", default=["cat", "cow", "dog", "horse", "person", "sheep"])
    options = parser.parse_args()
    splits = VocConfig(path=str(options.data), saliency="given").build()
    split = splits.split(options.split)
    indices = np.unique(np.linspace(0, len(split.names) - 1, options.pictures or len(split.names)).astype(int))
    values = [splits.classes.index(name) + 1 for name in options.classes]
    masks = [split.mask(index) for index in indices]
    truth = [(np.isin(mask, values), mask != IGNORE) for mask in masks]
    maps = {"given": [split.saliency(index) for index in indices]}
    detectors: dict[str, Callable[[np.ndarray], np.ndarray]] = {"fallback": salient}
    if options.model:
        detectors["onnx"] = OnnxSaliency(options.model, PRESETS[options.preset])
    rows: dict[str, dict[str, float]] = {"given": {}}
    for name, detect in detectors.items():
        maps[name], rows[name] = look(detect, [split.image(index) for index in indices])
    for name, found in maps.items():
        rows[name] |= {f"{key}, against the masks": value for key, value in compare(found, truth).items()}
        if name != "given":
            everywhere = [(one, np.ones_like(one)) for one in maps["given"]]
            rows[name] |= {f"{key}, against given": value for key, value in compare(found, everywhere).items()}
    if options.model:
        some = slice(None, None, 5)
        again = [detectors["onnx"](shrunk(split.image(index))) for index in indices[some]]
        own = [(one, np.ones_like(one)) for one in maps["onnx"][some]]
        rows["onnx, pictures shrunk and coded once more"] = {
            f"{key}, against onnx": value for key, value in compare(again, own).items()
        }
    rounded = {name: {key: round(float(value), 3) for key, value in row.items()} for name, row in rows.items()}
    facts = {"split": options.split, "pictures": len(indices), "classes": ", ".join(options.classes)}
    print(json.dumps(facts | rounded, indent=2))


def look(detect: Callable[[np.ndarray], np.ndarray], images: list[np.ndarray]) -> tuple[list[np.ndarray], dict]:
    """The maps of the pictures, and how long one takes."""
    began, worked = time.perf_counter(), time.process_time()
    found = [detect(image) for image in images]
    wall, work = time.perf_counter() - began, time.process_time() - worked
    times = {"milliseconds a picture": wall, "processor milliseconds a picture": work}
    return found, {name: 1000 * seconds / len(images) for name, seconds in times.items()}


def compare(found: list[np.ndarray], truth: list[tuple[np.ndarray, np.ndarray]]) -> dict[str, float]:
    """Means over pictures, where they count; recall and precision where there is something, or something is found."""
    ious, recalls, precisions = [], [], []
    for one, (real, counts) in zip(found, truth, strict=True):
        a, b = one[counts], real[counts]
        both, either = (a & b).sum(), (a | b).sum()
        ious.append(both / either if either else 1.0)
        recalls += [both / b.sum()] if b.any() else []
        precisions += [both / a.sum()] if a.any() else []
    names = {"IoU": np.mean(ious), "median IoU": np.median(ious)}
    return names | {"recall": np.mean(recalls), "precision": np.mean(precisions)}


def shrunk(image: np.ndarray) -> np.ndarray:
    """The picture after a loss of the kind that data sets undergo when they are made smaller."""
    height, width = image.shape[:2]
    file = io.BytesIO()
    small = Image.fromarray(image).resize((round(width * SHRUNK), round(height * SHRUNK)), Image.Resampling.BICUBIC)
    small.save(file, "JPEG", quality=75)
    return np.asarray(Image.open(file).resize((width, height), Image.Resampling.BICUBIC))


if __name__ == "__main__":
    main()
