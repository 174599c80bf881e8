"""The HTML page of `ipseg report`: one file without scripts that needs no network."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ipseg.report.compare import ResultTable, TableRow, notes
from ipseg.report.confusion import last_confusion
from ipseg.report.figures import (
    READINGS,
    Losses,
    confusion_map,
    image_accuracy,
    iou_map,
    loss_curves,
    miou_curves,
    plotted,
    run_colors,
)
from ipseg.report.overlay import checked, outline_errors, overlay
from ipseg.report.palette import IGNORE, Bytes, as_hex, colors
from ipseg.visible import visible

LARGEST, SMALLEST = 480, 320
"""Sides of images on the page: larger ones are scaled down, smaller ones enlarged so that outlines stay thin."""
MOST_CLASSES = 24
"""Of a confusion matrix that can be read."""

Labels = NDArray[np.integer]


@dataclass(frozen=True)
class GalleryImage:
    """A validation image with the predictions of several runs. Labels are indices into the gallery's names."""

    name: str
    image: Bytes
    truth: Labels
    """With all classes of the scenario."""
    predictions: Mapping[str, Mapping[int, Labels]] = field(default_factory=dict)
    """Label of the row -> step -> labels."""


@dataclass(frozen=True)
class Gallery:
    """Of one scenario. names[0] is the background, the rest in the order of learning."""

    names: Sequence[str] = ()
    images: Sequence[GalleryImage] = ()
    unseen: int = 0
    """The label of a class before it is learned: 0, background, or 255, ignored."""


@dataclass(frozen=True, kw_only=True)
class MemorySummary:
    """The replay memory of a run after its last step."""

    size: int
    classes: Mapping[str, int]
    """Class -> images that contain it."""
    shown: Sequence[tuple[str, Bytes]] = ()
    """Some of the images with their descriptions."""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """One table and all that is known of its runs, by the labels of rows."""

    table: ResultTable
    gallery: Gallery = Gallery()
    memories: Mapping[str, MemorySummary] = field(default_factory=dict)
    losses: Mapping[str, Losses] = field(default_factory=dict)
    missing: Sequence[str] = ()
    """Sentences: what cannot be shown, and why."""


def render(
    title: str, chapters: Sequence[Chapter], facts: Mapping[str, str], *, intro: str = "", paper: Sequence[str] = ()
) -> str:
    """The page as text; `paper` are figures of the paper's numbers with ours."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("ipseg", "report"),
        autoescape=True,
        finalize=lambda value: visible(value) if type(value) is str else value,  # markup of ours is no plain str
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    values = {"title": title, "intro": intro, "facts": facts, "paper": paper}
    return environment.get_template("page.html.jinja").render(chapters=list(map(_chapter, chapters)), **values)


def _chapter(chapter: Chapter) -> dict[str, Any]:
    """The values that the template shows."""
    table, rows = chapter.table, plotted(chapter.table)
    steps = max((row.results[0].steps for row in rows), key=len)
    names = list(chapter.gallery.names) or list(steps[-1].iou)
    accuracy = [figure for reading in READINGS if (figure := image_accuracy(rows, reading))]
    confusions, without = [], []
    for row in rows:
        confusion = last_confusion(row.results)
        if confusion is None:
            without.append(row.label)
            continue
        confusion = confusion.of([name for name in names if name in confusion.names])
        shown = confusion.worst(MOST_CLASSES)
        confusions.append(
            {
                "row": row.label,
                "figure": confusion_map(row, shown),
                "pairs": confusion.look_alikes(),
                "missed": confusion.missed(),
                "shown": len(shown.names),
                "of": len(confusion.names),
            }
        )
    missing = [f"Confusion matrix of {', '.join(without)}: the results do not have it."] if without else []
    missing += [] if accuracy else ["Image-level accuracy: the results do not have it."]
    missing += [] if len(rows) == len(table.rows) else [f"Figures of all rows: they show {len(rows)} of them."]
    return {
        "table": table,
        "notes": notes([table]),
        "rows": rows,
        "color": dict(zip([row.label for row in rows], run_colors([row.name for row in rows]), strict=True)),
        "class_color": dict(zip(names, map(as_hex, colors()), strict=False)),
        "curves": miou_curves(rows),
        "bands": any(len(row.runs) > 1 for row in rows),
        "dashed": any(row.bound or row.oracle for row in rows),
        "dots": not all(row.measured_alike for row in rows),
        "steps": {name: step.step for step in steps for name in step.new},
        "iou": [row.iou()[-1] for row in rows],
        "forgetting": [row.forgetting() for row in rows],
        "names": names,
        "iou_maps": [(row.label, iou_map(row, names)) for row in rows if len(row.iou()) > 1],
        "confusions": confusions,
        "accuracy": accuracy,
        "gallery": chapter.gallery,
        "shown": _shown_classes(chapter.gallery),
        "images": [_gallery_image(image, chapter.gallery, rows) for image in chapter.gallery.images],
        "memories": [
            (row, memory, [(text, data_url(image, 112)) for text, image in memory.shown])
            for row in rows
            if (memory := chapter.memories.get(row.label))
        ],
        "losses": [loss_curves(row, chapter.losses[row.label]) for row in rows if row.label in chapter.losses],
        "settings": differing_settings([row.runs[0].settings for row in rows]),
        "missing": [*missing, *chapter.missing],
    }


def differing_settings(recipes: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """Settings (`section.key`) with several values among the recipes that have them; those of one method alone are not.

    >>> differing_settings([{"memory.size": 10, "method.alpha_nf": 0.4}, {"memory.size": 0}])
    [('memory.size', ['10', '0'])]
    """

    def texts(key: str) -> list[str]:
        values = [recipe.get(key, "–") for recipe in recipes]
        return [value if isinstance(value, str) else json.dumps(value) for value in values]

    keys = dict.fromkeys(key for recipe in recipes for key in recipe)
    return [(key, found) for key in keys if len({*(found := texts(key))} - {"–"}) > 1]


# ---- images ---------------------------------------------------------------------------------------------------------


def _gallery_image(image: GalleryImage, gallery: Gallery, rows: Sequence[TableRow]) -> dict[str, Any]:
    factor = max(1, SMALLEST // max(image.truth.shape))
    photo = _enlarged(image.image, factor)
    lines = []
    for row in rows:
        cells = []
        for step, labels in image.predictions.get(row.label, {}).items():
            truth = expected(image.truth, gallery.names, row.results[0].steps[step].iou, gallery.unseen)
            wrong = (checked(image.image, labels, gallery.names) != truth) & (truth != IGNORE)
            picture = overlay(photo, _enlarged(labels, factor), gallery.names)
            share = wrong.sum() / max(1, (truth != IGNORE).sum())
            error = f"{100 * share:.0f} % wrong" if share >= 0.005 or not share else "under 1 % wrong"
            alt = f"{row.label} after step {step}: {_class_names(labels, gallery.names)}, {error}"
            url = data_url(outline_errors(picture, _enlarged(wrong, factor)))
            cells.append({"step": step, "error": error, "alt": alt, "url": url})
        if cells:
            lines.append({"row": row.label, "cells": cells})
    return {
        "name": image.name,
        "url": data_url(photo),
        "truth": data_url(overlay(photo, _enlarged(image.truth, factor), gallery.names)),
        "classes": _class_names(image.truth, gallery.names),
        "lines": lines,
    }


def _enlarged(pixels: NDArray[Any], factor: int) -> NDArray[Any]:
    return pixels.repeat(factor, axis=0).repeat(factor, axis=1)


def expected(truth: Labels, names: Sequence[str], seen: Mapping[str, Any], unseen: int = 0) -> Bytes:
    """The correct labels after a step: classes that are not learned yet are `unseen`, background or ignored."""
    table = np.full(256, IGNORE, dtype=np.uint8)
    table[: len(names)] = [i if i == 0 or name in seen else unseen for i, name in enumerate(names)]
    correct: Bytes = table[truth]
    return correct


def _class_names(labels: Labels, names: Sequence[str]) -> str:
    shown = [names[label] for label in np.unique(labels).tolist() if label not in (0, IGNORE)]
    return ", ".join(shown) or "nothing"


def _shown_classes(gallery: Gallery) -> list[str]:
    """The classes in the images and their predictions, for the legend."""
    predicted = chain(*(steps.values() for image in gallery.images for steps in image.predictions.values()))
    maps = chain((image.truth for image in gallery.images), predicted)
    labels = set().union(*(np.unique(labels).tolist() for labels in maps)) - {0, IGNORE}
    return [gallery.names[label] for label in sorted(labels)]


def data_url(image: Bytes | Image.Image, largest: int = LARGEST) -> str:
    """The image as a data address: WebP, small enough for a page of many images to open on a phone."""
    picture = image if isinstance(image, Image.Image) else Image.fromarray(image)
    picture.thumbnail((largest, largest))
    buffer = io.BytesIO()
    picture.save(buffer, format="webp", quality=80)
    return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"
