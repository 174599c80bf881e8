"""A trained model in Python: images in, labels, scores and the image posterior out."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from ipseg.data.image_io import read_image, rgb
from ipseg.errors import UserError
from ipseg.files import replacing, require_output
from ipseg.methods.base import Method
from ipseg.models.network import Encoder
from ipseg.models.tiles import Tiles, context_of
from ipseg.report.overlay import legend_entries, overlay, with_legend
from ipseg.report.palette import indexed_image
from ipseg.scenario import BACKGROUND, Scenario, Step
from ipseg.visible import one_line

ImageInput = NDArray[np.uint8] | torch.Tensor | Image.Image | str | Path
"""A file, a Pillow image, an array of bytes, (H, W, 3), (H, W, 4) or (H, W), or a tensor, (3, H, W) or (1, H, W), of
bytes or of numbers in 0-1."""

SAVED_BY = "ipseg predict"
"""The field Software in the metadata of images that are written."""
MAX_PIXELS = 3_000_000
"""Pixels of an image that is still seen at once; larger ones are seen tile by tile."""
TILE_SIDE = 1472
"""Of a tile with its context, about."""
MIN_TILE_SIDE = 512
"""Of a tile without its context, unless scores of many classes need it smaller."""
MAX_SCORES = 60_000_000
"""Of all classes and pixels, in an image or a tile that is seen at once, at most."""


@dataclass(frozen=True)
class Result:
    """The prediction for one image. Label 0 is background, then the classes in the order of learning."""

    image: NDArray[np.uint8]
    """(H, W, 3): the image."""
    classes: tuple[str, ...]
    """The name of each label."""
    labels: NDArray[np.uint8]
    """(H, W): the label of each pixel."""
    scores: NDArray[np.float32] | None
    """(1 + C, H, W): the final scores; the label is where they are highest. None where they were not wanted."""
    pixel_labels: NDArray[np.uint8] | None
    """(H, W): the labels without the image posterior; none where a gate has left heads out, or without scores."""
    posterior: dict[str, float] | None
    """The probability that each class is in the image; none where the method has no image posterior."""
    unknown: NDArray[np.float32] | None
    """(H, W): the probability of an object of no known class; none where the method has none, or it was not wanted."""

    @property
    def present(self) -> tuple[str, ...]:
        """The classes in the image, by the posterior, or by the pixels where there is none."""
        if self.posterior is None:
            return self.drawn
        return tuple(name for name, probability in self.posterior.items() if probability > 0.5)

    @property
    def drawn(self) -> tuple[str, ...]:
        """The classes of the label map."""
        return tuple(self.classes[label] for label in np.unique(self.labels) if label)

    def overlay(self, *, alpha: float = 0.55, legend: bool = True) -> Image.Image:
        """The image with its classes in color, and a legend. alpha: the opacity of the colors."""
        drawn = overlay(self.image, self.labels, self.classes, alpha)
        return with_legend(drawn, legend_entries(self.labels, self.classes)) if legend else drawn

    def save(self, path: Path | str) -> None:
        """Write the label map as a PNG with a palette: a viewer shows colors, a program reads the labels back."""
        out = Path(path)
        require_output(out, (".png",), SAVED_BY.encode())
        save_png(indexed_image(self.labels), out)

    def __repr__(self) -> str:
        height, width = self.labels.shape
        shares = np.bincount(self.labels.ravel(), minlength=len(self.classes))[1:] / self.labels.size
        drawn = [f"{name} {share:.1%}" for name, share in zip(self.classes[1:], shares, strict=True) if share]
        posterior = "" if self.posterior is None else f"; posterior: {format_posterior(self.posterior)}"
        return one_line(f"Result({width} x {height}, {', '.join(drawn) or 'background alone'}{posterior})")

    def _repr_png_(self) -> bytes:
        """What a notebook shows."""
        buffer = io.BytesIO()
        self.overlay().save(buffer, format="PNG")
        return buffer.getvalue()


class Model:
    """The model after a step."""

    def __init__(self, method: Method, scenario: Scenario, step: Step, device: torch.device) -> None:
        self.method, self.scenario, self.device = method, scenario, device
        self.step = step.index
        self.classes = (BACKGROUND, *step.seen)

    def __repr__(self) -> str:
        _, *names = self.classes
        return one_line(
            f"Model({type(self.method).__name__}, step {self.step}, {len(names)} classes: {', '.join(names)})"
        )

    @overload
    def predict(self, images: ImageInput, *, scores: bool = ..., unknown: bool = ...) -> Result: ...
    @overload
    def predict(self, images: list[ImageInput], *, scores: bool = ..., unknown: bool = ...) -> list[Result]: ...
    def predict(
        self,
        images: ImageInput | list[ImageInput],
        *,
        scores: bool = True,
        unknown: bool = True,
    ) -> Result | list[Result]:
        """Label every pixel of an image of any size, or of a list of images; large ones tile by tile.

        scores, unknown: whether these maps are wanted too; of large images they take far more memory than all else.
        """
        if isinstance(images, list):
            return [self.predict(image, scores=scores, unknown=unknown) for image in images]
        pixels = as_array(images)
        encoder = getattr(self.method.network, "encoder", None)
        size = pixels.shape[0] * pixels.shape[1]
        if isinstance(encoder, Encoder) and (size > MAX_PIXELS or size * len(self.classes) > MAX_SCORES):
            return self._predict_in_tiles(pixels, encoder, scores=scores, unknown=unknown)
        return self._result(pixels, as_tensor(pixels, self.device), scores=scores, unknown=unknown)

    def _predict_in_tiles(self, pixels: NDArray[np.uint8], encoder: Encoder, *, scores: bool, unknown: bool) -> Result:
        def read(rows: slice, columns: slice) -> torch.Tensor:
            return as_tensor(pixels[rows, columns], self.device)

        size, count = (pixels.shape[0], pixels.shape[1]), len(self.classes)
        context = context_of(encoder)
        side = min(max(TILE_SIDE - 2 * context, MIN_TILE_SIDE), math.isqrt(MAX_SCORES // count))
        predict = partial(self._result, pixels, scores=scores, unknown=unknown)
        maps: dict[str, NDArray[Any]] = {}
        for part, inner, place in Tiles(encoder, read, size, side, context).predictions(predict):
            for name in ("labels", "scores", "pixel_labels", "unknown"):
                values = getattr(part, name)
                if values is not None:
                    whole = maps.setdefault(name, np.empty((*values.shape[:-2], *size), values.dtype))
                    whole[..., *place] = values[..., *inner]
        return Result(
            image=pixels,
            classes=self.classes,
            labels=maps["labels"],
            scores=maps.get("scores"),
            pixel_labels=maps.get("pixel_labels"),
            posterior=part.posterior,
            unknown=maps.get("unknown"),
        )

    def _result(self, pixels: NDArray[np.uint8], image: torch.Tensor, *, scores: bool, unknown: bool) -> Result:
        """The prediction for an image or a tile of it. Maps that are not wanted are freed here."""
        prediction = self.method.predict(image)
        posterior, pixel = prediction.posterior, prediction.pixel if scores else None
        unknown_map = prediction.unknown if unknown else None
        return Result(
            image=pixels,
            classes=self.classes,
            labels=prediction.labels[0].byte().cpu().numpy(),
            scores=prediction.scores[0].float().cpu().numpy() if scores else None,
            pixel_labels=None if pixel is None else pixel[0].argmax(0).byte().cpu().numpy(),
            posterior=None if posterior is None else dict(zip(self.classes[1:], posterior[0].tolist(), strict=True)),
            unknown=None if unknown_map is None else unknown_map[0].float().cpu().numpy(),
        )


def as_array(image: ImageInput) -> NDArray[np.uint8]:
    """(H, W, 3) RGB bytes of an image; a file or a Pillow image is turned as its EXIF says."""
    if isinstance(image, (str, Path)):
        return read_image(Path(image))
    if isinstance(image, Image.Image):
        if 0 in image.size:
            raise UserError(f"an image is at least 1 x 1; this Pillow image is {image.width} x {image.height}.")
        return rgb(image)
    if isinstance(image, torch.Tensor):
        return _from_tensor(image)
    if not isinstance(image, np.ndarray):
        raise UserError(f"an image is a file, a Pillow image, an array or a tensor, not {type(image).__name__}.")
    fits = image.ndim == 2 or (image.ndim == 3 and image.shape[2] in (3, 4))
    if image.dtype != np.uint8 or not fits or image.size == 0:
        raise UserError(
            f"an image is (height, width, 3), (height, width, 4) or (height, width) uint8, not {image.shape} of "
            f"{image.dtype}."
        )
    return image if image.shape[2:] == (3,) else rgb(Image.fromarray(image))


def _from_tensor(image: torch.Tensor) -> NDArray[np.uint8]:
    """(H, W, 3) bytes of a tensor as torchvision has them."""
    fits = image.ndim == 3 and image.shape[0] in (1, 3) and image.numel() > 0
    if not fits or not (image.dtype == torch.uint8 or image.is_floating_point()):
        raise UserError(
            f"a tensor of an image is (3, height, width) or (1, height, width), uint8 or numbers in 0-1, not "
            f"{tuple(image.shape)} of {image.dtype}."
        )
    if image.is_floating_point():
        if not (image.min() >= 0 and image.max() <= 1):  # NaN is neither
            raise UserError("numbers of an image lie in 0-1: no normalization, which the model does itself.")
        image = (image * 255).round().to(torch.uint8)
    return image.expand(3, -1, -1).permute(1, 2, 0).cpu().contiguous().numpy()


def as_tensor(image: NDArray[np.uint8], device: torch.device) -> torch.Tensor:
    """(1, 3, H, W) in 0-1."""
    writable = np.require(image, requirements=["C", "W"])  # Pillow's pixels are not, and torch warns of such
    return torch.from_numpy(writable).to(device).permute(2, 0, 1)[None].float() / 255


def save_png(image: Image.Image, path: Path, *, optimize: bool = False) -> None:
    """Write an image atomically."""
    metadata = PngInfo()
    metadata.add_text("Software", SAVED_BY)
    with replacing(path) as temporary:
        image.save(temporary, format="PNG", pnginfo=metadata, optimize=optimize)


def format_posterior(posterior: Mapping[str, float]) -> str:
    """At most eight likely classes with their probabilities.

    >>> format_posterior({"cow": 0.03, "bus": 0.971, "cat": 0.5})
    'bus 0.97, cat 0.50'
    """
    ranked = sorted(posterior.items(), key=lambda item: -item[1])[:8]
    return ", ".join(f"{name} {probability:.2f}" for name, probability in ranked if probability >= 0.05) or "no class"
