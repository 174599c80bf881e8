"""Images for people: a label map over its image, outlines of errors, legends, contact sheets, heat maps."""

from __future__ import annotations

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

DARKER = 0.55
"""An outline is its class's color times this."""
STRIP = 256
"""Rows of an overlay that are drawn at a time."""
_INK, _PAPER = (34, 38, 46), (255, 255, 255)
_LEGIBLE = 320
"""Images with a legend are made at least this wide."""


def overlay(image: Bytes, labels: NDArray[np.integer], names: Sequence[str], alpha: float = 0.55) -> Image.Image:
    """The image with its classes in color and outlined; background stays as it is, ignored pixels are hatched.

    names[0] is the background; `alpha` is the opacity of the colors.
    """
    labels = checked(image, labels, names)
    width, stripe = outline_width(labels.shape), stripe_width(labels.shape)
    blended = np.empty_like(image)
    for top in range(0, len(labels), STRIP):  # the whole of a large image would take 60 bytes a pixel
        rows, above = slice(top, top + STRIP), max(0, top - width)
        near = labels[above : top + STRIP + width]
        edge = outline(near, width)[top - above :][:STRIP]
        blended[rows] = _blend(image[rows], labels[rows], edge, hatching(labels[rows].shape, stripe, top), alpha)
    return Image.fromarray(blended)


def _blend(image: Bytes, labels: Bytes, edge: NDArray[np.bool_], gaps: NDArray[np.bool_], alpha: float) -> Bytes:
    share = np.full(labels.shape, alpha)
    share[labels == 0] = 0
    share[(labels == IGNORE) & gaps] = 0.15
    color = colors()[labels] * 1.0
    color[edge] *= DARKER
    share[edge] = max(alpha, 0.9)
    blended: Bytes = (image + share[..., None] * (color - image)).round().astype(np.uint8)
    return blended


def checked(image: Bytes, labels: NDArray[np.integer], names: Sequence[str]) -> Bytes:
    """The labels as bytes; an error where they do not belong to the image or the names."""
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


def outline_width(shape: tuple[int, ...]) -> int:
    """Of an image of this size, in pixels."""
    return max(1, round(min(shape) / 400))


def outline(labels: Bytes, thickness: int | None = None) -> NDArray[np.bool_]:
    """Where a class begins: pixels with another label beside them. Never background: the image shows there."""
    edge = np.zeros(labels.shape, dtype=bool)
    for width in range(1, 1 + (thickness or outline_width(labels.shape))):
        across, down = labels[:, width:] != labels[:, :-width], labels[width:] != labels[:-width]
        edge[:, width:] |= across
        edge[:, :-width] |= across
        edge[width:] |= down
        edge[:-width] |= down
    inside: NDArray[np.bool_] = edge & (labels != 0) & (labels != IGNORE)
    return inside


def stripe_width(shape: tuple[int, ...]) -> int:
    """Of the hatching of an image of this size, in pixels."""
    return max(2, min(shape) // 64)


def hatching(shape: tuple[int, ...], stripe: int | None = None, top: int = 0) -> NDArray[np.bool_]:
    """Diagonal stripes, of rows from `top`: true on the gaps between them."""
    height, width = shape
    rows = np.arange(top, top + height)
    gaps: NDArray[np.bool_] = np.add.outer(rows, np.arange(width)) // (stripe or stripe_width(shape)) % 2 == 1
    return gaps


def outline_errors(picture: Image.Image, wrong: NDArray[np.bool_]) -> Image.Image:
    """White outlines of wrong regions; edges that are a pixel or two off are too thin to be outlined."""
    radius, thick = max(1, round(min(wrong.shape) / 100)), max(1, round(min(wrong.shape) / 200))
    mask = Image.fromarray(wrong.astype(np.uint8) * 255)
    smaller, larger = ImageFilter.MinFilter(2 * radius + 1), ImageFilter.MaxFilter(2 * radius + 1)
    regions = mask.filter(smaller).filter(larger)
    line = ImageChops.subtract(regions, regions.filter(ImageFilter.MinFilter(2 * thick + 1)))
    casing = ImageChops.subtract(regions.filter(ImageFilter.MaxFilter(2 * thick + 1)), regions)
    marked = picture.copy()
    marked.paste((20, 20, 20), mask=casing)  # white inside black is visible on every color and photograph
    marked.paste((255, 255, 255), mask=line)
    return marked


def legend_entries(labels: NDArray[np.integer], names: Sequence[str]) -> list[LegendEntry]:
    """Color and name of the classes in the labels, in the order of learning, without background."""
    texts = {**dict(enumerate(names)), IGNORE: "ignored"}
    return [(tuple(colors()[label].tolist()), texts[label]) for label in np.unique(labels).tolist() if label]


def with_legend(picture: Image.Image, entries: Sequence[LegendEntry]) -> Image.Image:
    """The image with its legend below it. A tiny one is enlarged so that the legend can be read."""
    picture = _enlarged(picture, _LEGIBLE)
    if not entries:
        return picture
    size = max(15, picture.width // 55)
    face = font(size)
    pad = round(size * 0.8)
    spots = _flow([fitted(text, face, picture.width - 4 * pad) for _, text in entries], face, picture.width, pad)
    line = round(size * 1.65)
    sheet = Image.new("RGB", (picture.width, picture.height + 2 * pad + line * (spots[-1][1] + 1)), _PAPER)
    sheet.paste(picture, (0, 0))
    draw = ImageDraw.Draw(sheet)
    for (color, _), (left, row, text) in zip(entries, spots, strict=True):
        middle = picture.height + pad + line * row + line // 2
        box = (left, middle - size // 2, left + size, middle - size // 2 + size)
        draw.rounded_rectangle(box, radius=size // 5, fill=(color[0], color[1], color[2]), outline=(0, 0, 0))
        draw.text((left + size * 1.45, middle), text, fill=_INK, font=face, anchor="lm")
    return sheet


def grid(rows: list[list[Image.Image]], column_titles: Sequence[str], row_titles: Sequence[str]) -> Image.Image:
    """A contact sheet: one row a thing, one column a view of it. Rows may be short; small pictures are enlarged."""
    if len(row_titles) != len(rows) or any(len(row) > len(column_titles) for row in rows):
        raise UserError(f"{len(rows)} rows of pictures, {len(row_titles)} row and {len(column_titles)} column titles.")
    rows = [[_enlarged(picture, 160) for picture in row] for row in rows]
    widths = [max((row[i].width for row in rows if i < len(row)), default=0) for i in range(len(column_titles))]
    heights = [max((picture.height for picture in row), default=0) for row in rows]
    size = max(14, max(widths, default=0) // 18)
    face = font(size)
    gap = size // 2
    row_titles = [fitted(title, face, 12 * size) for title in row_titles]
    margin = 2 * gap + round(max((face.getlength(title) for title in row_titles), default=0))
    head = 3 * gap + size
    lefts = np.cumsum([margin + gap, *(width + gap for width in widths)]).tolist()
    tops = np.cumsum([head, *(height + gap for height in heights)]).tolist()
    sheet = Image.new("RGB", (lefts[-1], tops[-1]), _PAPER)
    draw = ImageDraw.Draw(sheet)
    for title, left, width in zip(column_titles, lefts, widths, strict=False):
        draw.text((left + width / 2, head / 2), fitted(title, face, width), fill=_INK, font=face, anchor="mm")
    for title, row, top, height in zip(row_titles, rows, tops, heights, strict=False):
        draw.text((margin - gap / 2, top + height / 2), title, fill=_INK, font=face, anchor="rm")
        for picture, left, width in zip(row, lefts, widths, strict=False):
            sheet.paste(picture, (left + (width - picture.width) // 2, top + (height - picture.height) // 2))
    return sheet


def heatmap(values: NDArray[np.floating]) -> Image.Image:
    """Values from 0 (dark) to 1 (light) in colors; light gray where there is no value (NaN)."""
    import matplotlib as mpl

    if values.ndim != 2:
        raise UserError(f"a heat map shows (height, width) values, not {values.shape}.")
    pixels = mpl.colormaps["magma"](np.clip(values, 0, 1), bytes=True)[..., :3].copy()
    pixels[np.isnan(values)] = colors()[IGNORE]
    return Image.fromarray(pixels)


def font(size: int) -> ImageFont.FreeTypeFont:
    """matplotlib's, for Pillow's own has no ü, я or α."""
    import matplotlib as mpl

    return ImageFont.truetype(Path(mpl.get_data_path(), "fonts/ttf/DejaVuSans.ttf"), size)


def _enlarged(picture: Image.Image, least: int) -> Image.Image:
    """The picture at least this wide, whole pixels becoming whole squares."""
    factor = -(-least // picture.width)
    picture = picture if picture.mode == "RGB" else picture.convert("RGB")  # a large one is not copied
    if factor <= 1:
        return picture
    return picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.NEAREST)


def fitted(text: str, face: ImageFont.FreeTypeFont, width: float) -> str:
    """The text in one line, cut short where it is wider than the room for it."""
    text = one_line(text)
    if face.getlength(text) <= width:
        return text
    while text and face.getlength(text + "…") > width:
        text = text[:-1]
    return text.rstrip() + "…"


def _flow(texts: Sequence[str], face: ImageFont.FreeTypeFont, width: int, pad: int) -> list[tuple[int, int, str]]:
    """Left edge and row of each entry, written like words on lines."""
    spots, left, row = [], pad, 0
    for text in texts:
        needed = round(face.getlength(text)) + 3 * pad
        if left > pad and left + needed > width:
            left, row = pad, row + 1
        spots.append((left, row, text))
        left += needed + pad
    return spots
