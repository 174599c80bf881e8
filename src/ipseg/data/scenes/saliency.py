"""What a saliency detector would say about a drawn scene: mostly right, and wrong in the ways that detectors are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter

from ipseg.data.scenes.texture import cloudy

MISSED = 0.15
"""The share of objects that it does not notice."""

MISLED = 0.25
"""The share of pictures in which it takes clutter for an object."""


def saliency(
    owner: npt.NDArray[np.int16], objects: Sequence[int], clutter: Sequence[int], rng: np.random.Generator
) -> npt.NDArray[np.bool_]:
    """The map, of who owns each pixel and of which owners are objects and which are clutter."""
    noticed = [one for one in objects if rng.uniform() >= MISSED]
    if clutter and rng.uniform() < MISLED:
        noticed += rng.permutation(np.asarray(clutter))[: int(rng.integers(1, 3))].tolist()
    return _wobbly(np.isin(owner, noticed), rng)


def _wobbly(mask: npt.NDArray[np.bool_], rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """The mask with soft corners, an edge that wanders, and a lean towards too much or too little."""
    height, width = mask.shape
    reach = min(height, width) / 128  # errors grow with the picture, as those of a detector with a fixed input size do
    blurred = Image.fromarray(mask.astype(np.uint8) * 255).filter(
        ImageFilter.GaussianBlur(rng.uniform(0.9, 2.0) * reach)
    )
    edge = 0.5 + rng.uniform(-0.3, 0.12) + 0.14 * cloudy(rng, height, width, max(9 * reach, 2.0))
    found: npt.NDArray[np.bool_] = np.asarray(blurred, dtype=np.float32) / 255 > np.clip(edge, 0.08, 0.92)
    return found
