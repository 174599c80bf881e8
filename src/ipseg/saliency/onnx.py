"""Saliency by a salient object detector in ONNX form: U2-Net, IS-Net and their like."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from ipseg.errors import UserError, require_between, unknown


class Preset(NamedTuple):
    """The input that a model was trained with."""

    size: int
    """Side of the square, where the model itself takes any."""
    maximum: bool
    """Divide pixels by the image's largest value, instead of by 255."""
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


PRESETS = {
    "u2net": Preset(320, maximum=True, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
    "isnet": Preset(1024, maximum=False, mean=(0.5, 0.5, 0.5), std=(1.0, 1.0, 1.0)),
}


class OnnxSaliency:
    """A detector on the CPU. Its map is stretched to 0-1 before the threshold."""

    def __init__(self, path: Path, preset: str = "u2net", threshold: float = 0.5) -> None:
        if preset not in PRESETS:
            raise unknown("value for --preset:", preset, PRESETS)
        require_between("--threshold", threshold, 0, 1)
        self.path, self.preset, self.threshold = path, PRESETS[preset], threshold
        self._session = _open(path)
        self._input, self.size = _checked_input(path, self._session.get_inputs(), self.preset.size)
        self._output = self._session.get_outputs()[0].name

    def __call__(self, image: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """(H, W), true where an object of the (H, W, 3) RGB image is salient."""
        height, width = image.shape[:2]
        large = Pillow.fromarray(self.scores(image)).resize((width, height), Pillow.Resampling.BILINEAR)
        return np.asarray(large) > self.threshold

    def scores(self, image: NDArray[np.uint8]) -> NDArray[np.float32]:
        """The model's map in 0-1, at the model's size."""
        try:
            (values,) = self._session.run([self._output], {self._input: prepare(image, self.preset, self.size)})
            values = np.asarray(values, dtype=np.float32)
        except Exception as error:  # its exceptions have no common base
            raise UserError(
                f"{self.path} cannot be run on an image of {self.size} x {self.size} ({_first_line(error)}). "
                "Is it made for another size? See --preset."
            ) from error
        if values.ndim < 2 or values.size != values.shape[-2] * values.shape[-1]:
            raise UserError(
                f"{self.path}: its first output has the shape {list(values.shape)}; expected one map, [1, 1, H, W]."
            )
        scores = values.reshape(values.shape[-2:])
        if not np.isfinite(scores).all():
            raise UserError(f"{self.path} gives values that are not finite. Does --preset fit it?")
        stretched: NDArray[np.float32] = (scores - scores.min()) / max(float(np.ptp(scores)), 1e-6)
        return stretched


def prepare(image: NDArray[np.uint8], preset: Preset, size: int) -> NDArray[np.float32]:
    """(1, 3, size, size): the image in the model's normalization."""
    pixels = np.asarray(Pillow.fromarray(image).resize((size, size), Pillow.Resampling.BICUBIC), dtype=np.float32)
    top = max(float(pixels.max()), 1e-6) if preset.maximum else 255.0
    mean, std = np.array(preset.mean, dtype=np.float32), np.array(preset.std, dtype=np.float32)
    return np.ascontiguousarray(((pixels / top - mean) / std).transpose(2, 0, 1)[None])


def _open(path: Path) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise UserError(
            "ONNX models need onnxruntime: pip install 'ipseg[saliency]'. Without it, --fallback writes maps as well."
        ) from error
    if not path.is_file():
        raise UserError(f"{path} is not a file; --model takes an ONNX model of salient objects, such as u2netp.onnx.")
    try:
        return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions have no common base
        raise UserError(f"{path} is not an ONNX model that can be read ({_first_line(error)}).") from error


def _checked_input(path: Path, inputs: list[Any], default: int) -> tuple[str, int]:
    """The name and the side of the model's only input, one square image; `default` where it takes any size."""
    shapes = [list(one.shape) for one in inputs]
    if len(shapes) == 1 and len(shapes[0]) == 4 and inputs[0].type == "tensor(float)":
        fixed = [side for side in shapes[0][2:] if isinstance(side, int)]  # others have a name, or none
        size = fixed[0] if fixed else default
        pairs = zip(shapes[0], (1, 3, size, size), strict=True)
        if size > 0 and all(got == expected for got, expected in pairs if isinstance(got, int)):
            return str(inputs[0].name), size
    got = ", ".join(f"{one.type} {shape}" for one, shape in zip(inputs, shapes, strict=True))
    raise UserError(f"{path} takes {got or 'no input'}; expected one image, tensor(float) [1, 3, SIDE, SIDE].")


def _first_line(error: Exception) -> str:
    return (str(error).strip() or repr(error)).splitlines()[0]
