"""An exported model beside torch: labels that agree, and seconds an image, image by image in turn.

ipseg export RUN model.onnx
python benchmarks/onnx_speed.py RUN model.onnx IMAGES --most 40
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import onnxruntime
import torch

from ipseg.apps.model import as_array
from ipseg.apps.run import Run
from ipseg.data.image_io import find_images

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("run", type=Path)
parser.add_argument("file", type=Path)
parser.add_argument("images", type=Path)
parser.add_argument("--most", type=int, default=40)
args = parser.parse_args()

model = Run.open(args.run).model(device="cpu")
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = torch.get_num_threads()
session = onnxruntime.InferenceSession(args.file, options, providers=["CPUExecutionProvider"])
images = [as_array(path) for path in find_images([args.images])[: args.most]]
model.predict(images[0])
session.run(None, {"image": images[0]})

seconds, same, differences = np.zeros(2), [], []
for image in images:
    start = time.perf_counter()
    result = model.predict(image, unknown=False)
    middle = time.perf_counter()
    labels, scores = session.run(None, {"image": image})
    seconds += middle - start, time.perf_counter() - middle
    same.append((labels == result.labels).mean())
    differences.append(np.abs(scores - result.scores).max())
row = {
    "table": "onnx",
    "model": f"{model.method.config.name}, {model.scenario.name}, step {model.step}",
    "images": len(images),
    "threads": torch.get_num_threads(),
    "torch, s an image": round(seconds[0] / len(images), 4),
    "onnxruntime": round(seconds[1] / len(images), 4),
    "ratio": round(seconds[0] / seconds[1], 2),
    "equal labels, %": round(100 * float(np.mean(same)), 4),
    "worst image, %": round(100 * float(np.min(same)), 4),
    "scores within": f"{max(differences):.1e}",
}
print(json.dumps(row))
