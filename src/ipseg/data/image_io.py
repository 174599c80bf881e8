"""Read files that people made: images, masks and saliency maps, with errors that name the file."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow
from PIL.ExifTags import Base

from ipseg.data.dataset import DataError, Image, Mask, Regions, Saliency, present_classes
from ipseg.errors import UserError
from ipseg.saliency.regions import MAX_REGIONS, NO_REGION
from ipseg.scenario import IGNORE

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff")
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF")
"""What these suffixes stand for; JPEG includes the MPO of some cameras. Pillow goes by what is in a file and knows far
more, some of it dangerous: EPS starts Ghostscript."""
STRIP = 1024
"""Rows that are converted at a time."""
DEEP = ("I;16", "I;16L", "I;16B", "I", "F")
"""Pillow's modes of more than a byte a pixel. Its own conversion cuts off all that is brighter than 255."""
STRETCHED = {"L;2": 85, "L;4": 17}
"""Pillow stretches gray PNGs of 2 or 4 bits to 0-255: right for an image, wrong for classes."""
COLORS = {"1": 1, "L": 1, "LA": 1, "P": 1, "PA": 1, "RGB": 3, "RGBA": 3, "RGBX": 3}
"""Pillow's modes of bytes in which 0 is black, and how many of their bytes are color: the rest is transparency."""
TURNS = {
    2: Pillow.Transpose.FLIP_LEFT_RIGHT,
    3: Pillow.Transpose.ROTATE_180,
    4: Pillow.Transpose.FLIP_TOP_BOTTOM,
    5: Pillow.Transpose.TRANSPOSE,
    6: Pillow.Transpose.ROTATE_270,
    7: Pillow.Transpose.TRANSVERSE,
    8: Pillow.Transpose.ROTATE_90,
}
"""By EXIF's orientation; 1 is upright. Pillow's own function also writes the other tags anew, and fails at odd ones."""


def read_image(path: Path) -> Image:
    """(H, W, 3) RGB, turned as its EXIF says."""
    with _open(path, "image") as opened:
        return rgb(opened)


def rgb(opened: Pillow.Image) -> Image:
    """(H, W, 3) bytes of a Pillow image of any mode, turned as its EXIF says."""
    opened.load()  # TIFF is turned by this already
    turn = TURNS.get(opened.getexif().get(Base.Orientation, 1))
    turned = opened if turn is None else opened.transpose(turn)
    if turned.mode in DEEP:
        turned = Pillow.fromarray(_bytes(np.asarray(turned), turned.mode))
    pixels = np.empty((turned.height, turned.width, 3), dtype=np.uint8)
    for top in range(0, turned.height, STRIP):  # at once it would take three more copies of a large image
        strip = turned.crop((0, top, turned.width, min(top + STRIP, turned.height)))
        pixels[top : top + STRIP] = np.asarray(strip.convert("RGB"))
    return pixels


def _bytes(values: NDArray[Any], mode: str) -> Image:
    """16 bits are scaled from 0-65535, numbers with a point from 0-1."""
    top = 1 if mode == "F" else 65535
    if not (values.min() >= 0 and values.max() <= top):  # NaN is neither
        raise ValueError(f"values from {values.min()} to {values.max()}; known are 0 to {top}: save it with 8 bits")
    return (values * (255 / top) + 0.5).astype(np.uint8)


def read_labels(path: Path) -> Mask:
    """(H, W) of bytes: a palette, gray or one-bit PNG."""
    with _open(path, "mask", exact=True) as opened:
        if opened.mode not in ("P", "L", "1"):
            raise UserError(
                f"{path} has mode {opened.mode}; a mask has one byte a pixel (palette or gray): the class. "
                "If its colors are the classes, use the data set `folder` and end each line of its classes.txt with "
                'the color ("cow 64 128 0").'
            )
        packed = [str(tile[3]) for tile in getattr(opened, "tile", [])]  # gone once the pixels are read
        values = np.array(opened, dtype=np.uint8)
        return values // np.uint8(STRETCHED[packed[0]]) if packed and packed[0] in STRETCHED else values


def read_colors(path: Path) -> Image:
    """(H, W, 3): the colors of a mask, an opaque one or one with a palette."""
    with _open(path, "mask", exact=True) as opened:
        if opened.mode in DEEP:
            raise UserError(
                f"{path} has mode {opened.mode}; a mask in colors has one byte for each of red, green, blue."
            )
        return np.array(opened.convert("RGB"))


def read_salient(path: Path) -> Saliency:
    """(H, W): a saliency map, true where it is not 0 (with a palette: of another index), in any of its colors."""
    with _open(path, "saliency map", exact=True) as opened:
        if opened.mode not in COLORS:
            raise UserError(
                f"{path} has mode {opened.mode}; a saliency map has bytes, gray or in colors, that are not zero where "
                "something is salient. Save it anew as a gray PNG of 8 bits, or of 1."
            )
        values = np.array(opened)
        salient: Saliency = (values.reshape(*values.shape[:2], -1)[..., : COLORS[opened.mode]] != 0).any(axis=-1)
        return salient


def read_regions(path: Path) -> Regions:
    """(H, W): a map of regions, as `ipseg regions` and the maps of Mask2Former that MicroSeg publishes have them."""
    regions = read_labels(path)
    beyond = regions[(regions >= MAX_REGIONS) & (regions != NO_REGION)]
    if beyond.size:
        raise DataError(
            "unknown_values",
            f"{path} holds the region {beyond[0]}; valid are 0 to {MAX_REGIONS - 1}, and {NO_REGION} for none.",
        )
    return regions


@contextmanager
def _open(path: Path, kind: str, *, exact: bool = False) -> Iterator[Pillow.Image]:
    """Name the file in all errors of opening and decoding it. exact: a JPEG is refused."""
    try:
        with Pillow.open(path, formats=FORMATS) as opened:
            if exact and opened.format in ("JPEG", "MPO"):
                raise UserError(
                    f"{path} is a JPEG, which mixes the values of neighbors. Save it anew as PNG, from the original."
                )
            yield opened
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing.") from error
    except UserError:
        raise
    except Pillow.DecompressionBombError as error:
        most = 2 * (Pillow.MAX_IMAGE_PIXELS or 0) / 1e6
        raise UserError(
            f"{path} is too large: at most {most:.0f} megapixels are read. Scale it down, or cut it up."
        ) from error
    except (OSError, SyntaxError, ValueError, EOFError, struct.error) as error:
        raise UserError(f"{path} is not a readable {kind} ({error}).") from error


def find_images(paths: list[Path], warn: Callable[[str], None] = lambda _: None) -> list[Path]:
    """The files themselves, and the images in the folders, sorted; hidden ones are leavings of systems.

    Folders below those are not opened, as what was written for images may lie there; `warn` tells what is left out.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_file():
            found.append(path)
            continue
        if not path.is_dir():
            raise UserError(f"{path} is neither an image nor a folder.")
        visible = [file for file in sorted(path.rglob("*")) if not _hidden(file.relative_to(path))]
        images = [file for file in visible if file.suffix.lower() in IMAGE_SUFFIXES and not file.is_dir()]
        inside = [file for file in images if file.parent == path and file.is_file()]
        below = [file for file in images if file.parent != path]
        left = f"in folders below it: {len(below)}, the first in {below[0].parent}" if below else ""
        if not inside:
            more = f" There are some {left}. Name such folders instead." if below else ""
            raise UserError(f"{path} holds no images (looked for {', '.join(IMAGE_SUFFIXES)}).{more}")
        for file in images:
            if file.parent == path and not file.is_file():
                warn(f"{file}: left out, it is no file (a link to nothing, or a pipe).")
        if below:
            warn(f"{path}: left out are images {left}. Name such folders too.")
        found += inside
    return found


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


# ---- masks, in the values of a data set -----------------------------------------------------------------------------


Color = tuple[int, int, int]


@dataclass(frozen=True)
class IndexMasks:
    """Palette or gray masks: the byte is the class, 0 the background, 255 not labeled."""

    classes: int
    """Values beyond these are refused."""
    ignore_zero: bool = False
    """Whether 0 is not labeled instead."""

    def __call__(self, path: Path) -> Mask:
        mask = read_labels(path)
        beyond = (mask > self.classes) & (mask != IGNORE)
        if beyond.any():
            raise DataError(
                "unknown_values",
                f"{path} holds the values {sorted(present_classes(mask[beyond]))}; "
                f"valid are 0 to {self.classes} and 255.",
            )
        if self.ignore_zero:
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
