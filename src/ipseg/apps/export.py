"""`ipseg export`: a model as one ONNX file, with normalization, padding and fusion inside, checked against torch."""

from __future__ import annotations

import io
import json
import logging
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ipseg import __version__
from ipseg.apps.model import as_tensor
from ipseg.apps.run import Run, require_outside, require_parent
from ipseg.errors import UserError, require_at_least
from ipseg.files import replacing, require_output
from ipseg.methods.base import Method
from ipseg.report.palette import as_hex, colors

OPSET = 17
SIZES = ((321, 481), (240, 320), (97, 130), (64, 33), (500, 375))
"""Heights and widths on which a file is checked, odd ones among them."""
AGREEMENT = 0.999
"""Share of the pixels of every checked image that must have the same label as with torch."""


@dataclass(frozen=True)
class Check:
    """The file beside torch, on one image."""

    size: tuple[int, int]
    agreement: float
    """Share of the pixels with the same label."""
    difference: float
    """The largest difference of a score."""


class OnnxModel(nn.Module):
    """What the file computes: (H, W, 3) uint8 RGB -> (H, W) uint8 labels and (1 + C, H, W) float32 scores."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method, self.network = method, method.network

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Labels and scores of one image."""
        prediction = self.method.predict(image.permute(2, 0, 1)[None].float() / 255)
        return prediction.labels[0].to(torch.uint8), prediction.scores[0].float()


def export(run: Path | str, out: Path, step: int | None = None, size: tuple[int, int] | None = None) -> list[Check]:
    """Write the model after a step, and compare it with torch; one that disagrees is not written.

    size: the height and width that the file takes; any by default.
    """
    require_outside(out, Path(run))
    require_parent(out)
    require_output(out, (".onnx",), b"ipseg")
    for side in size or ():
        require_at_least("--size", side, 1)
    if missing := [name for name in ("onnx", "onnxruntime") if find_spec(name) is None]:
        raise UserError(f"export needs {' and '.join(missing)}: pip install 'ipseg[export]'")
    opened = Run.open(run)
    if opened.recipe.method.uses_regions:
        raise UserError(
            f"{opened.recipe.method.name} needs a map of regions for every image, which an ONNX file cannot compute. "
            "Export a run of another method, or use `ipseg predict`."
        )
    if getattr(opened.recipe.method, "gate", "none") != "none":  # it decides by values which heads run
        opened = Run.open(run, ["method.gate=none"])
    model = opened.model(step, "cpu")
    facts = {
        "ipseg": __version__,
        "method": opened.recipe.method.name,
        "step": str(model.step),
        "classes": json.dumps(model.classes),
        "palette": json.dumps([as_hex(color) for color in colors(len(model.classes))]),
    }
    data = to_onnx(model.method, size, facts)
    checks = compare(model.method, data, [size] if size else SIZES)
    worst = min(checks, key=lambda check: check.agreement)
    if worst.agreement < AGREEMENT:
        raise UserError(
            f"the ONNX file disagrees with torch in {1 - worst.agreement:.1%} of the pixels of an image of "
            f"{worst.size[0]} x {worst.size[1]}, so it is not written. Some backbones (Swin) can be exported for one "
            "size alone: --size HEIGHTxWIDTH."
        )
    with replacing(out) as temporary:
        temporary.write_bytes(data)
    return checks


def parse_size(text: str) -> tuple[int, int]:
    """Height and width as `HxW`.

    >>> parse_size("512x384")
    (512, 384)
    """
    height, separator, width = text.partition("x")
    if not separator or not height.isdecimal() or not width.isdecimal():
        raise UserError(f'--size is "{text}"; it must be HEIGHTxWIDTH in pixels, for example 512x512.')
    return int(height), int(width)


def to_onnx(method: Method, size: tuple[int, int] | None, facts: dict[str, str]) -> bytes:
    """The file's content.

    Torch's tracing exporter: the newer one, by torch.export, gives the same numbers and takes minutes to simplify the
    sizes that follow from an image of any size, against seconds.
    """
    import onnx

    image = torch.zeros(*(size or (75, 101)), 3, dtype=torch.uint8)
    buffer, axes = io.BytesIO(), {"image": {0: "height", 1: "width"}}
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # sizes that it takes for constants: `compare` tells if one matters
            torch.onnx.export(
                OnnxModel(method).eval(),
                (image,),
                buffer,  # type: ignore[arg-type]
                dynamo=False,
                opset_version=OPSET,
                input_names=["image"],
                output_names=["labels", "scores"],
                dynamic_axes=None if size else axes,
            )
    except (RuntimeError, torch.onnx.errors.OnnxExporterError) as error:
        raise UserError(f"this network cannot be exported ({str(error).splitlines()[0]}).") from error
    file = onnx.load_model_from_string(buffer.getvalue())
    file.producer_name = "ipseg"
    onnx.helper.set_model_props(file, facts)
    outputs: dict[str, list[str | int]] = {"labels": ["height", "width"], "scores": ["classes", "height", "width"]}
    for output in file.graph.output if size is None else []:  # traced as the products of the sizes inside
        for dim, name in zip(output.type.tensor_type.shape.dim, outputs[output.name], strict=True):
            dim.dim_param = str(name)
    return bytes(file.SerializeToString())


def compare(method: Method, data: bytes, sizes: Any) -> list[Check]:
    """Run the file by onnxruntime and the method by torch on an image of each size."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    checks = []
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        for size in sizes:
            image = sample_image(*size)
            labels, scores = session.run(["labels", "scores"], {"image": image})
            with torch.no_grad():
                prediction = method.predict(as_tensor(image, torch.device("cpu")))
            if labels.shape != size:
                return [Check(size, 0.0, float("inf"))]
            same = labels == prediction.labels[0].byte().numpy()
            difference = np.abs(scores - prediction.scores[0].float().numpy()).max()
            checks.append(Check(size, float(same.mean()), float(difference)))
    except Exception as error:  # onnxruntime's exceptions have no common base
        raise UserError(
            f"onnxruntime cannot run the file ({str(error).splitlines()[0]}), so it is not written. Some backbones can "
            "be exported for one size alone: --size HEIGHTxWIDTH."
        ) from error
    return checks


def sample_image(height: int, width: int) -> NDArray[np.uint8]:
    """An image of blobs of many sizes and colors, always the same."""
    draw = np.random.default_rng(0)
    rows, columns = np.mgrid[:height, :width]
    image = np.full((height, width, 3), draw.integers(0, 256, 3), np.uint8)
    for _ in range(24):
        center, radius = draw.uniform(0, (height, width)), draw.uniform(0.03, 0.3) * max(height, width)
        blob = (rows - center[0]) ** 2 + (columns - center[1]) ** 2 < radius**2
        image[blob] = np.clip(draw.integers(0, 256, 3) + draw.normal(0, 20, (int(blob.sum()), 3)), 0, 255)
    return image
