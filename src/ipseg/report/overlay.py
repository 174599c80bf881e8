"""Images for people: a label map over its image, outlines of errors, a legend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageFont

from ipseg.errors import UserError
from ipseg.report.palette import IGNORE, Bytes, as_labels, colors
from ipseg.visible import one_line

LegendEntry = tuple[Sequence[int], str]
"""Color and text."""
_INK, _PAPER = (34, 38, 46), (255, 255, 255)
_LEGIBLE = 320
"""Images with a legend are made at least this wide."""


def overlay(image: Bytes, labels: NDArray[np.integer], names: Sequence[str], alpha: float = 0.55) -> Image.Image:
    """The image with its classes in color and outlined; background stays as it is, ignored pixels are hatched.

    names[0] is the background; `alpha` is the opacity of the colors.
    """
    opacity = np.full(256, alpha)
    opacity[0] = 0
    return paint(image, checked(image, labels, names), colors(), opacity)


def paint(image: Bytes, labels: NDArray[np.integer], table: Bytes, opacity: NDArray[np.float64]) -> Image.Image:
    """The color and the opacity of each label over the image; outlines are darker, ignored pixels hatched.

    Everything is bytes: an image may be large, and floats would take eight times as much.
    """
    color, mask = table[labels], (255 * opacity).round().astype(np.uint8)[labels]
    ignored = labels == IGNORE
    if ignored.any():
        height, width = labels.shape
        stripe = max(2, min(height, width) // 64)
        diagonal = np.add.outer(np.arange(height, dtype=np.int32), np.arange(width, dtype=np.int32))
        mask[ignored & (diagonal // stripe % 2 == 1)] = 255 * 0.15
    edge = outline(labels)
    color[edge] = color[edge] * 0.55
    mask[edge] = np.maximum(mask[edge], round(255 * 0.9))
    return Image.composite(Image.fromarray(color), Image.fromarray(image), Image.fromarray(mask))


def checked(image: Bytes, labels: NDArray[np.integer], names: Sequence[str]) -> Bytes:
    """The labels as bytes. Raise if they do not fit the image or the names."""
    labels = as_labels(labels)
    if image.dtype != np.uint8 or image.shape != (*labels.shape, 3):
        raise UserError(
            f"image {image.shape} of {image.dtype} and labels {labels.shape} do not fit; "
            "an image is (height, width, 3) uint8 and its labels are (height, width)."
        )
    unnamed = sorted(set(np.unique(labels).tolist()) - set(range(len(names))) - {IGNORE})
    if unnamed:
        raise UserError(f"labels {unnamed} have no name: there are {len(names)} names, background included.")
    return labels


def outline(labels: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Where a class begins: pixels with another label beside them. Never background: the image shows there."""
    edge = np.zeros(labels.shape, dtype=bool)
    for width in range(1, 1 + max(1, round(min(labels.shape) / 400))):
        across, down = labels[:, width:] != labels[:, :-width], labels[width:] != labels[:-width]
        edge[:, width:] |= across
        edge[:, :-width] |= across
        edge[width:] |= down
        edge[:-width] |= down
    inside: NDArray[np.bool_] = edge & (labels != 0) & (labels != IGNORE)
    return inside


def outline_errors(image: Image.Image, wrong: NDArray[np.bool_]) -> Image.Image:
    """White outlines of wrong regions; edges that are a pixel or two off are too thin to be outlined."""
    radius, thick = max(1, round(min(wrong.shape) / 100)), max(1, round(min(wrong.shape) / 200))
    mask = Image.fromarray(wrong.astype(np.uint8) * 255)
    smaller, larger = ImageFilter.MinFilter(2 * radius + 1), ImageFilter.MaxFilter(2 * radius + 1)
    regions = mask.filter(smaller).filter(larger)
    line = ImageChops.subtract(regions, regions.filter(ImageFilter.MinFilter(2 * thick + 1)))
    casing = ImageChops.subtract(regions.filter(ImageFilter.MaxFilter(2 * thick + 1)), regions)
    marked = image.copy()
    marked.paste((20, 20, 20), mask=casing)  # white inside black is visible on every color and photograph
    marked.paste((255, 255, 255), mask=line)
    return marked


def legend_entries(labels: NDArray[np.integer], names: Sequence[str]) -> list[LegendEntry]:
    """Color and name of the classes in the labels, in the order of learning, without background."""
    texts = {**dict(enumerate(names)), IGNORE: "ignored"}
    return [(tuple(colors()[label].tolist()), texts[label]) for label in np.unique(labels).tolist() if label]


def with_legend(image: Image.Image, entries: Sequence[LegendEntry]) -> Image.Image:
    """The image with its legend in columns below it. A tiny one is enlarged so that the legend can be read."""
    factor = math.ceil(_LEGIBLE / image.width)
    if factor > 1:
        image = image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
    if not entries:
        return image
    size = max(15, image.width // 55)
    face, line, pad = font(size), round(size * 1.65), round(size * 0.8)
    texts = [_fitted(text, face, image.width - 4 * pad) for _, text in entries]
    column = round(max(map(face.getlength, texts))) + 4 * pad
    columns = max(1, (image.width - pad) // column)
    sheet = Image.new("RGB", (image.width, image.height + 2 * pad + line * math.ceil(len(texts) / columns)), _PAPER)
    sheet.paste(image, (0, 0))
    draw = ImageDraw.Draw(sheet)
    for place, ((color, _), text) in enumerate(zip(entries, texts, strict=True)):
        left = pad + column * (place % columns)
        middle = image.height + pad + line * (place // columns) + line // 2
        box = (left, middle - size // 2, left + size, middle - size // 2 + size)
        draw.rounded_rectangle(box, radius=size // 5, fill=(color[0], color[1], color[2]), outline=(0, 0, 0))
        draw.text((left + size * 1.45, middle), text, fill=_INK, font=face, anchor="lm")
    return sheet


def font(size: int) -> ImageFont.FreeTypeFont:
    """The font of matplotlib: Pillow's own has no ü, я or α."""
    import matplotlib as mpl

    return ImageFont.truetype(Path(mpl.get_data_path(), "fonts/ttf/DejaVuSans.ttf"), size)


def _fitted(text: str, face: ImageFont.FreeTypeFont, width: float) -> str:
    """The text in one line, truncated to a width."""
    text = one_line(text)
    if face.getlength(text) <= width:
        return text
    while text and face.getlength(text + "…") > width:
        text = text[:-1]
    return text.rstrip() + "…"
