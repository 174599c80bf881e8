"""Reading files that people made: pictures, label maps and saliency maps, with errors that name the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image as Pillow
from PIL import ImageOps

from ipseg.data.source import Image, Mask
from ipseg.errors import UserError

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff")


def read_image(path: Path) -> Image:
    """(H, W, 3) RGB, turned as its EXIF says."""
    try:
        with Pillow.open(path) as opened:
            return np.array(ImageOps.exif_transpose(opened).convert("RGB"))
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing.") from error
    except (OSError, SyntaxError, ValueError, Pillow.DecompressionBombError) as error:
        raise UserError(f"{path} is not a readable image ({error}).") from error


def read_labels(path: Path) -> Mask:
    """(H, W) of bytes: a palette, grey or one-bit PNG."""
    try:
        with Pillow.open(path) as opened:
            if opened.mode not in ("P", "L", "1"):
                raise UserError(f"{path} has mode {opened.mode}; a mask has one byte a pixel (palette or grey).")
            return np.array(opened, dtype=np.uint8)
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing.") from error
    except (OSError, SyntaxError, Pillow.DecompressionBombError) as error:
        raise UserError(f"{path} is not a readable mask ({error}).") from error


def find_images(paths: list[Path]) -> list[Path]:
    """The files themselves, and the pictures in the folders, sorted."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(file for file in path.iterdir() if file.suffix.lower() in IMAGE_SUFFIXES)
            if not inside:
                raise UserError(f"{path} holds no pictures (looked for {', '.join(IMAGE_SUFFIXES)}).")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise UserError(f"{path} is neither a picture nor a folder.")
    return found
