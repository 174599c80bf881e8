"""A learned model in Python: load a run, show it pictures."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from ipseg.config import flat, override, to_dict
from ipseg.data.image_io import read_image, rgb
from ipseg.errors import UserError, quoted
from ipseg.methods.base import Method
from ipseg.models.network import Encoder
from ipseg.models.tiles import Tiles, context_of
from ipseg.scenario.split import BACKGROUND, Scenario, Step
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import Recipe, make_recipe
from ipseg.training.setup import restore
from ipseg.training.system import choose_device

Picture = NDArray[np.uint8] | Image.Image | str | Path
"""What a model looks at: (H, W, 3) bytes, a Pillow image, or a file."""

WHOLE = 3_000_000
"""Pixels of an image that is still seen at once; larger ones are seen tile by tile."""
SIDE = 1472
"""Of a tile with its context, about."""
LEAST = 512
"""Of a tile without its context, unless scores of many classes need it smaller."""
SCORES = 60_000_000
"""Of all classes and pixels, in an image or a tile that is seen at once, at most."""


@dataclass(frozen=True)
class Result:
    """What the model says about one picture. Label 0 is background, then the classes in the order of learning."""

    classes: tuple[str, ...]
    """The name of each label."""
    labels: NDArray[np.uint8]
    """(H, W): the label of each pixel."""
    scores: NDArray[np.float32] | None
    """(1 + C, H, W): the final scores; the label is where they are highest. None where they were not wanted."""
    pixel_labels: NDArray[np.uint8] | None
    """(H, W): the labels without the image posterior; none where a gate has left heads out, or without scores."""
    posterior: dict[str, float] | None
    """The probability that each class is in the picture; none where the method has no image posterior."""
    unknown: NDArray[np.float32] | None
    """(H, W): the probability of an object of no known class; none where the method has none, or it was not wanted."""

    @property
    def present(self) -> tuple[str, ...]:
        """The classes in the picture, by the posterior, or by the pixels where there is none."""
        if self.posterior is None:
            return self.drawn
        return tuple(name for name, probability in self.posterior.items() if probability > 0.5)

    @property
    def drawn(self) -> tuple[str, ...]:
        """The classes that some pixel has."""
        return tuple(self.classes[label] for label in np.unique(self.labels) if label)


class Model:
    """A model as it stood after a step."""

    def __init__(self, method: Method, scenario: Scenario, step: Step, device: torch.device) -> None:
        self.method, self.scenario, self.device = method, scenario, device
        self.step = step.index
        self.classes = (BACKGROUND, *step.seen)

    def predict(self, image: Picture, *, scores: bool = True, unknown: bool = True) -> Result:
        """Label every pixel of an image of any size; a large one tile by tile.

        scores, unknown: whether these maps are wanted too; of large images they take far more memory than all else.
        """
        pixels = as_array(image)
        encoder = getattr(self.method.network, "encoder", None)
        size = pixels.shape[0] * pixels.shape[1]
        if isinstance(encoder, Encoder) and (size > WHOLE or size * len(self.classes) > SCORES):
            return self._predict_in_tiles(pixels, encoder, scores=scores, unknown=unknown)
        return self._result(as_tensor(pixels, self.device), scores=scores, unknown=unknown)

    def _predict_in_tiles(self, pixels: NDArray[np.uint8], encoder: Encoder, *, scores: bool, unknown: bool) -> Result:
        def read(rows: slice, columns: slice) -> torch.Tensor:
            return as_tensor(pixels[rows, columns], self.device)

        size, count = (pixels.shape[0], pixels.shape[1]), len(self.classes)
        context = context_of(encoder)
        side = min(max(SIDE - 2 * context, LEAST), math.isqrt(SCORES // count))
        predict = partial(self._result, scores=scores, unknown=unknown)
        maps: dict[str, NDArray[Any]] = {}
        for part, inner, place in Tiles(encoder, read, size, side, context).predictions(predict):
            for name in ("labels", "scores", "pixel_labels", "unknown"):
                values = getattr(part, name)
                if values is not None:
                    whole = maps.setdefault(name, np.empty((*values.shape[:-2], *size), values.dtype))
                    whole[..., *place] = values[..., *inner]
        return Result(
            classes=self.classes,
            labels=maps["labels"],
            scores=maps.get("scores"),
            pixel_labels=maps.get("pixel_labels"),
            posterior=part.posterior,
            unknown=maps.get("unknown"),
        )

    def _result(self, image: torch.Tensor, *, scores: bool, unknown: bool) -> Result:
        """What the method predicts of an image or a tile, but for the maps that are not wanted: they are freed here."""
        prediction = self.method.predict(image)
        posterior, pixel = prediction.posterior, prediction.pixel if scores else None
        strange = prediction.unknown if unknown else None
        return Result(
            classes=self.classes,
            labels=prediction.labels[0].byte().cpu().numpy(),
            scores=prediction.scores[0].float().cpu().numpy() if scores else None,
            pixel_labels=None if pixel is None else pixel[0].argmax(0).byte().cpu().numpy(),
            posterior=None if posterior is None else dict(zip(self.classes[1:], posterior[0].tolist(), strict=True)),
            unknown=None if strange is None else strange[0].float().cpu().numpy(),
        )


def load_model(
    run: Path | str, step: int | None = None, device: str = "auto", assignments: Sequence[str] = ()
) -> Model:
    """The model of a run after a step. The run's data need not be there any more."""
    folder = RunFolder.open(Path(run))
    recipe = inference_recipe(folder, assignments)
    return restored(folder, recipe, folder.scenario(recipe), finished_step(folder, step), choose_device(device))


def restored(folder: RunFolder, recipe: Recipe, scenario: Scenario, step: int, device: torch.device) -> Model:
    """The model after a step, with its scenario."""
    return Model(restore(recipe, folder, scenario, step, device), scenario, scenario.steps[step], device)


def finished_step(folder: RunFolder, step: int | None) -> int:
    """The step that is asked for, by default the last finished one."""
    finished = folder.finished()
    if finished == 0:
        raise UserError(
            f"{folder.path} has no finished step yet; `ipseg train {quoted(folder.path)} --resume` goes on with it."
        )
    if step is None:
        return finished - 1
    valid = "only step 0 is finished" if finished == 1 else f"steps 0 to {finished - 1} are finished"
    try:
        chosen = operator.index(step)  # numpy's whole numbers too
    except TypeError as error:
        raise UserError(f"a step is a whole number, not {step!r}; of {folder.path} {valid}.") from error
    if not 0 <= chosen < finished:
        raise UserError(f"{folder.path} has no step {chosen}: {valid}.")
    return chosen


def require_outside(out: Path, run: Path) -> None:
    """Raise if something would be written into a run that is only read."""
    if (run / "run.json").is_file() and out.resolve().is_relative_to(run.resolve()):
        raise UserError(f"--out {out} lies in the run {run}, which stays as it is. Choose another place.")


def inference_recipe(folder: RunFolder, assignments: Sequence[str] = ()) -> Recipe:
    """The run's recipe with other settings of inference. What the run has learned with stays as it is."""
    own = folder.settings()
    recipe = make_recipe(override(own, assignments))  # a key that does not exist is told first
    given = flat(to_dict(recipe))
    own_share, share = make_recipe(own).evaluation.held_out, recipe.evaluation.held_out
    if share not in (0, own_share):
        raise UserError(
            f"evaluation.held_out is {share}, but {folder.path} was trained with {own_share}: it has learned from such "
            "pictures. What can be measured afterwards is its own share, or 0, the validation pictures."
        )
    allowed = [key for key in recipe.inference_settings() if not key.startswith("evaluation.")]
    for key, value in flat(to_dict(make_recipe(own))).items():
        if given.get(key) != value and key not in allowed and not key.startswith("evaluation."):
            raise UserError(
                f"{key} is part of how {folder.path} was trained ({value}) and cannot change afterwards. "
                f"What can: {', '.join(allowed)}, evaluation.*; for the rest train again with `ipseg train`."
            )
    return recipe


def as_array(image: Picture) -> NDArray[np.uint8]:
    """(H, W, 3) RGB bytes of a picture; a file or a Pillow image is turned as its EXIF says."""
    if isinstance(image, (str, Path)):
        return read_image(Path(image))
    if isinstance(image, Image.Image):
        if 0 in image.size:
            raise UserError(f"a picture is at least 1 x 1; this Pillow image is {image.width} x {image.height}.")
        return rgb(image)
    if not isinstance(image, np.ndarray):
        raise UserError(f"a picture is a file, a Pillow image or an array, not {type(image).__name__}.")
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or image.size == 0:
        raise UserError(f"a picture is (height, width, 3) uint8, not {image.shape} of {image.dtype}.")
    return image


def as_tensor(image: NDArray[np.uint8], device: torch.device) -> torch.Tensor:
    """(1, 3, H, W) in 0-1."""
    ours = np.require(image, requirements=["C", "W"])  # Pillow's pixels may not be written, and torch warns of such
    return torch.from_numpy(ours).to(device).permute(2, 0, 1)[None].float() / 255


def say_posterior(posterior: Mapping[str, float], least: float = 0.05, most: int = 8) -> str:
    """The likeliest classes with their probabilities.

    >>> say_posterior({"cow": 0.03, "bus": 0.971, "cat": 0.5})
    'bus 0.97, cat 0.50'
    """
    ranked = sorted(posterior.items(), key=lambda item: -item[1])
    said = [f"{name} {probability:.2f}" for name, probability in ranked[:most] if probability >= least]
    return ", ".join(said) or "no class"
