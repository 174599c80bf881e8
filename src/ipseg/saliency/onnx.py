"""What stands out, by any model of salient objects in ONNX form: U2-Net, IS-Net and their like."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from ipseg.errors import UserError, require_at_least

Three: TypeAlias = tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
class OnnxConfig:
    """What a model takes and gives. The defaults are those of U2-Net."""

    size: int = 320
    """Side of the square that the picture is resized to."""

    scale: Literal["maximum", 255] = "maximum"
    """What pixels are divided by: the picture's largest value, or 255."""

    mean: Three = (0.485, 0.456, 0.406)
    """Then taken off red, green and blue."""

    std: Three = (0.229, 0.224, 0.225)
    """Then divided by."""

    output: int = 0
    """Which of the model's outputs is the map; 0 is the first."""

    min_max: bool = True
    """Stretch the map so that its least value is 0 and its largest 1."""

    def __post_init__(self) -> None:
        require_at_least("model.size", self.size, 1)
        require_at_least("model.output", self.output, 0)
        if not min(self.std) > 0:
            raise UserError(f"model.std is {list(self.std)}; each of the three must be more than 0.")


PRESETS: dict[str, OnnxConfig] = {
    "u2net": OnnxConfig(),
    "u2netp": OnnxConfig(),
    "isnet": OnnxConfig(size=1024, scale=255, mean=(0.5, 0.5, 0.5), std=(1.0, 1.0, 1.0)),
}


class OnnxSaliency:
    """A model, ready to look at pictures on the CPU."""

    def __init__(self, path: Path, config: OnnxConfig, threshold: float = 0.5) -> None:
        self.path, self.config, self.threshold = path, config, threshold
        self._session = _open(path)
        self._input = _checked_input(path, self._session.get_inputs(), config.size)
        outputs = [output.name for output in self._session.get_outputs()]
        if config.output >= len(outputs):
            raise UserError(
                f"{path} has {len(outputs)} outputs: model.output must be 0 to {len(outputs) - 1}, not {config.output}."
            )
        self._output = outputs[config.output]

    def __call__(self, image: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """(H, W), true where something stands out of an (H, W, 3) RGB picture."""
        height, width = image.shape[:2]
        found = Pillow.fromarray(self.scores(image)).resize((width, height), Pillow.Resampling.BILINEAR)
        return np.asarray(found) > self.threshold

    def scores(self, image: NDArray[np.uint8]) -> NDArray[np.float32]:
        """The model's own map, at the size it has there."""
        try:
            (values,) = self._session.run([self._output], {self._input: prepare(image, self.config)})
            values = np.asarray(values, dtype=np.float32)
        except Exception as error:  # its exceptions have no common base
            raise UserError(
                f"{self.path} cannot be run on a picture of model.size={self.config.size} ({_first_line(error)}). "
                "Is it made for another size?"
            ) from error
        if values.ndim < 2 or values.size != values.shape[-2] * values.shape[-1]:
            raise UserError(
                f"{self.path}: output {self.config.output} has the shape {list(values.shape)}; "
                "expected one map of a picture, [1, 1, H, W]."
            )
        scores = values.reshape(values.shape[-2:])
        if not np.isfinite(scores).all():
            raise UserError(
                f"{self.path} gives values that are no numbers. Do model.scale, model.mean and model.std fit it?"
            )
        if self.config.min_max:
            scores = (scores - scores.min()) / max(float(np.ptp(scores)), 1e-6)
        return scores


def prepare(image: NDArray[np.uint8], config: OnnxConfig) -> NDArray[np.float32]:
    """(1, 3, size, size): the picture as the model was trained to see it."""
    resized = Pillow.fromarray(image).resize((config.size, config.size), Pillow.Resampling.BICUBIC)
    pixels = np.asarray(resized, dtype=np.float32)
    top = 255.0 if config.scale == 255 else max(float(pixels.max()), 1e-6)
    mean, std = (np.array(three, dtype=np.float32) for three in (config.mean, config.std))
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


def _checked_input(path: Path, inputs: list[Any], size: int) -> str:
    """The name of the model's input, which must take one picture of the size."""
    expected = [1, 3, size, size]
    shapes = [list(one.shape) for one in inputs]
    fits = len(shapes) == 1 and len(shapes[0]) == 4 and all(map(_fits, shapes[0], expected))
    if not fits or inputs[0].type != "tensor(float)":
        got = ", ".join(f"{one.type} {shape}" for one, shape in zip(inputs, shapes, strict=True))
        raise UserError(
            f"{path} takes {got or 'no input'}; expected tensor(float) {expected}. "
            "A model for another size needs --set model.size=...; see also --preset."
        )
    return str(inputs[0].name)


def _fits(got: int | str | None, expected: int) -> bool:
    """A dimension with a name, or none, takes any size."""
    return not isinstance(got, int) or got == expected


def _first_line(error: Exception) -> str:
    return (str(error).strip() or repr(error)).splitlines()[0]
