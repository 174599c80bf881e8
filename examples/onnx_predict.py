"""Label an image with a file of `ipseg export`, without ipseg and torch: python onnx_predict.py MODEL IMAGE OUT."""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

model, image, out = sys.argv[1:]
session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
facts = session.get_modelmeta().custom_metadata_map
classes, palette = json.loads(facts["classes"]), json.loads(facts["palette"])

with Image.open(image) as file:
    pixels = np.asarray(ImageOps.exif_transpose(file).convert("RGB"))
labels, scores = session.run(["labels", "scores"], {"image": pixels})

drawn = Image.fromarray(labels)
drawn.putpalette(bytes.fromhex("".join(palette).replace("#", "")))
drawn.save(out)
for label in np.unique(labels):
    print(f"{classes[label]}: {np.mean(labels == label):.1%} of the image")
