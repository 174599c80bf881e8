"""Ways to read a mask file: by index, or by color. Each is a small value, so that it travels to other processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipseg.data.pictures import read_colors, read_labels
from ipseg.data.source import DataError, Mask, present
from ipseg.scenario.split import IGNORE

Color = tuple[int, int, int]


@dataclass(frozen=True)
class IndexMasks:
    """Palette or gray masks: the byte is the class, 0 the background, 255 not labeled."""

    classes: int
    """Values beyond these are refused."""
    zero_ignored: bool = False
    """Whether 0 is not labeled instead."""

    def __call__(self, path: Path) -> Mask:
        mask = read_labels(path)
        beyond = (mask > self.classes) & (mask != IGNORE)
        if beyond.any():
            raise DataError(
                "unknown_values",
                f"{path} holds the values {sorted(present(mask[beyond]))}; valid are 0 to {self.classes} and 255.",
            )
        if self.zero_ignored:
            mask[mask == 0] = IGNORE
        return mask


@dataclass(frozen=True)
class ColorMasks:
    """Masks in colors: each color has its value."""

    values: tuple[tuple[Color, int], ...]

    def __call__(self, path: Path) -> Mask:
        codes, values = np.array(sorted((_code(np.array(color)), value) for color, value in self.values)).T
        found = _code(read_colors(path))
        at = np.searchsorted(codes, found).clip(max=len(codes) - 1)
        wrong = codes[at] != found
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            red, green, blue = int(found[row, column]).to_bytes(3)
            raise DataError(
                "unknown_values",
                f"{path} holds the color {red} {green} {blue} (#{red:02x}{green:02x}{blue:02x}) in row {row}, column "
                f"{column}, which classes.txt does not name; {wrong.sum()} pixels have such colors. "
                "JPEG and smooth scaling mix colors: save masks as PNG and scale them to the nearest pixel.",
            )
        mask: Mask = values[at].astype(np.uint8)
        return mask


def _code(colors: NDArray[Any]) -> NDArray[np.int64]:
    """Red, green and blue as one number."""
    code: NDArray[np.int64] = colors.astype(np.int64) @ np.array([1 << 16, 1 << 8, 1])
    return code
