"""Ways to read a mask file: by index, or by colour. Each is a small value, so that it travels to other processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipseg.data.pictures import read_colours, read_labels
from ipseg.data.source import DataError, Mask, present
from ipseg.scenario.split import IGNORE

Colour = tuple[int, int, int]


@dataclass(frozen=True)
class IndexMasks:
    """Palette or grey masks: the byte is the class, 0 the background, 255 not labelled."""

    classes: int
    """Values beyond these are refused."""
    zero_ignored: bool = False
    """Whether 0 is not labelled instead."""

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
class ColourMasks:
    """Masks in colours: each colour has its value."""

    values: tuple[tuple[Colour, int], ...]

    def __call__(self, path: Path) -> Mask:
        codes, values = np.array(sorted((_code(np.array(colour)), value) for colour, value in self.values)).T
        found = _code(read_colours(path))
        at = np.searchsorted(codes, found).clip(max=len(codes) - 1)
        wrong = codes[at] != found
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            red, green, blue = int(found[row, column]).to_bytes(3)
            raise DataError(
                "unknown_values",
                f"{path} holds the colour {red} {green} {blue} (#{red:02x}{green:02x}{blue:02x}) in row {row}, column "
                f"{column}, which classes.txt does not name; {wrong.sum()} pixels have such colours. "
                "JPEG and smooth scaling mix colours: save masks as PNG and scale them to the nearest pixel.",
            )
        mask: Mask = values[at].astype(np.uint8)
        return mask


def _code(colours: NDArray[Any]) -> NDArray[np.int64]:
    """Red, green and blue as one number."""
    code: NDArray[np.int64] = colours.astype(np.int64) @ np.array([1 << 16, 1 << 8, 1])
    return code
