"""Images before and after an extension, side by side: of the new classes, and of old ones from the memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image, ImageDraw

from ipseg.apps.model import as_tensor
from ipseg.data.dataset import DatasetSplits
from ipseg.data.memory import ReplayMemory
from ipseg.methods.base import Method
from ipseg.report.overlay import font, legend_entries, overlay, with_legend
from ipseg.report.palette import Bytes

OF_NEW, OF_OLD = 4, 2
"""Images of the new data and of the memory."""
WIDTH, GAP, TITLE = 240, 6, 22
"""In pixels: of a column, between columns and rows, of the line above them."""


def images_to_show(splits: DatasetSplits, memory: ReplayMemory, new: Sequence[str]) -> list[Bytes]:
    """Images to measure on that show a new class, and remembered ones."""
    wanted = {value for value, name in enumerate(splits.classes, start=1) if name in new}
    showing = [index for index, present in enumerate(splits.val.class_presence()) if present & wanted]
    of_new = [splits.val.image(showing[place]) for place in _spread(len(showing), OF_NEW)]
    return of_new + [memory.sample(index).image for index in _spread(len(memory), OF_OLD)]


def _spread(count: int, most: int) -> list[int]:
    """At most so many of so many, evenly.

    >>> _spread(10, 3), _spread(2, 3), _spread(0, 3)
    ([0, 4, 9], [0, 1], [])
    """
    return sorted({round(place) for place in np.linspace(0, count - 1, min(count, most))})


def before_and_after(
    models: Sequence[Method], images: Sequence[Bytes], names: Sequence[str], device: torch.device
) -> Image.Image:
    """A row an image: itself, with the labels of the old model, with those of the new one; and a legend.

    names: of the new model's classes, background first.
    """
    rows, there = [], {0}
    for image in images:
        maps = [model.predict(as_tensor(image, device)).labels[0].cpu().numpy() for model in models]
        there |= set(np.unique(np.stack(maps)).tolist())
        cells = [Image.fromarray(image), *(overlay(image, labels, names) for labels in maps)]
        size = WIDTH, max(1, round(WIDTH * image.shape[0] / image.shape[1]))
        rows.append([cell.resize(size, Image.Resampling.LANCZOS) for cell in cells])
    height = TITLE + sum(row[0].height + GAP for row in rows)
    sheet = Image.new("RGB", (3 * WIDTH + 2 * GAP, height), (255, 255, 255))
    draw, top = ImageDraw.Draw(sheet), TITLE
    for column, title in enumerate(("image", "before", "after")):
        draw.text((column * (WIDTH + GAP), TITLE // 2), title, fill=(34, 38, 46), font=font(13), anchor="lm")
    for row in rows:
        for column, cell in enumerate(row):
            sheet.paste(cell, (column * (WIDTH + GAP), top))
        top += row[0].height + GAP
    return with_legend(sheet, legend_entries(np.array(sorted(there)), names))
