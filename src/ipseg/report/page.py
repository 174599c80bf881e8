"""The HTML page of `ipseg report`: one file without scripts that needs no network."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from ipseg.evaluation.results import StepResult
from ipseg.report.compare import ResultTable, TableRow, notes
from ipseg.report.confusion import last_confusion
from ipseg.report.figures import all_classes, confusion_map, curves, plotted, run_colors, svg
from ipseg.report.overlay import checked, outline_errors, overlay
from ipseg.report.palette import IGNORE, Bytes, as_hex, colors
from ipseg.visible import visible

MAX_SIDE, MIN_SIDE = 480, 320
"""Sides of images on the page: larger ones are scaled down, smaller ones enlarged so that outlines stay thin."""
MAX_CLASSES = 24
"""Of a confusion matrix that can be read."""
READING_NAMES = {"posterior": "the image posterior", "pixel": "the pixels", "both": "the final prediction"}
"""How an image's set of classes may be predicted."""

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
class Chapter:
    """One table, and the predictions of its runs by the labels of rows."""

    table: ResultTable
    gallery: Gallery = Gallery()
    missing: Sequence[str] = ()
    """Sentences: which parts are missing, and why."""


class PageImage(NamedTuple):
    url: str
    alt: str
    caption: str = ""


def render(title: str, chapters: Sequence[Chapter], facts: Mapping[str, str], *, intro: str = "") -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("ipseg", "report"),
        autoescape=True,
        finalize=lambda value: visible(value) if type(value) is str else value,  # markup of ours is no plain str
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("page.html.jinja")
    return template.render(chapters=list(map(_chapter, chapters)), title=title, intro=intro, facts=facts)


def _chapter(chapter: Chapter) -> dict[str, Any]:
    """The values of the template."""
    table, rows = chapter.table, plotted(chapter.table)
    steps = max((row.results[0].steps for row in rows), key=len)
    names = list(chapter.gallery.names) or list(steps[-1].iou)
    predictions = [image.predictions for image in chapter.gallery.images]
    accuracy = []
    for reading, name in READING_NAMES.items():

        def value(step: StepResult, reading: str = reading) -> float | None:
            return (step.image_accuracy or {}).get("all", {}).get(reading)

        if known := [row for row in rows if any(stat.mean is not None for stat in row.over_steps(value))]:
            accuracy.append(_curves(known, value, f"image-level accuracy of {name}, %"))
    confusions = [found for row in rows if (found := _confusions(row, names))]
    without = [row.label for row in rows if row.label not in [found["row"] for found in confusions]]
    missing = [f"Confusion matrix of {', '.join(without)}: the results do not have it."] if without else []
    missing += [] if accuracy else ["Image-level accuracy: the results do not have it."]
    missing += [] if len(rows) == len(table.rows) else [f"Figures of all rows: they show {len(rows)} of them."]
    return {
        "table": table,
        "notes": notes([table]),
        "rows": rows,
        "color": dict(zip([row.label for row in rows], run_colors([row.name for row in rows]), strict=True)),
        "class_color": dict(zip(names, map(as_hex, colors()), strict=False)),
        "curves": [_curves(rows, all_classes, "mIoU over all classes seen so far, %"), *accuracy],
        "bands": any(len(row.runs) > 1 for row in rows),
        "dashed": any(row.bound or row.oracle for row in rows),
        "dots": not all(row.measured_alike for row in rows),
        "steps": {name: step.step for step in steps for name in step.new},
        "iou": [row.iou() for row in rows],
        "forgetting": [row.forgetting() for row in rows],
        "names": names,
        "confusions": confusions,
        "images": [_gallery_image(image, chapter.gallery, rows) for image in chapter.gallery.images],
        "legend": _legend(chapter.gallery),
        "most_steps": max((len(steps) for predicted in predictions for steps in predicted.values()), default=0),
        "settings": differing_settings([row.runs[0].settings for row in rows]),
        "missing": [*missing, *chapter.missing],
    }


def _curves(rows: Sequence[TableRow], value: Any, title: str) -> PageImage:
    means = [(row.label, [stat.mean for stat in row.over_steps(value)]) for row in rows]
    numbers = [f"{label} " + ", ".join("–" if m is None else f"{m:.1f}" for m in found) for label, found in means]
    return PageImage(data_url(curves(rows, value, title)), f"{title}, after every step. {'; '.join(numbers)}")


def _confusions(row: TableRow, names: Sequence[str]) -> dict[str, Any] | None:
    confusion = last_confusion(row.results)
    if confusion is None:
        return None
    confusion = confusion.of([name for name in names if name in confusion.names])
    worst = confusion.worst(MAX_CLASSES)
    alt = f"Confusion matrix of {row.label}; the largest errors are listed below it"
    return {
        "row": row.label,
        "figure": PageImage(data_url(confusion_map(worst)), alt),
        "largest": confusion.largest(),
        "classes": len(worst.names),
        "all_classes": len(confusion.names),
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


def _gallery_image(image: GalleryImage, gallery: Gallery, rows: Sequence[TableRow]) -> dict[str, Any]:
    """The image, its ground truth, and the predictions of every row."""
    names, factor = gallery.names, max(1, MIN_SIDE // max(image.truth.shape))

    def enlarged(pixels: NDArray[Any]) -> NDArray[Any]:
        return pixels.repeat(factor, axis=0).repeat(factor, axis=1)

    photo = enlarged(image.image)
    counted = max(1, int((image.truth != IGNORE).sum()))
    predictions = []
    for row in rows:
        images = []
        for step, labels in image.predictions.get(row.label, {}).items():
            truth = expected(image.truth, names, row.results[0].steps[step].iou, gallery.unseen)
            wrong = (checked(image.image, labels, names) != truth) & (truth != IGNORE)
            share = wrong.sum() / counted
            error = f"{100 * share:.0f} % wrong" if share >= 0.005 or not share else "under 1 % wrong"
            drawn = outline_errors(overlay(photo, enlarged(labels), names), enlarged(wrong))
            alt = f"{row.label} after step {step}: {_class_names(labels, names)}, {error}"
            images.append(PageImage(data_url(drawn), alt, f"step {step}: {error}"))
        if images:
            predictions.append((row.label, images))
    annotated = data_url(overlay(photo, enlarged(image.truth), names))
    inputs = [
        PageImage(data_url(Image.fromarray(photo)), image.name, "image"),
        PageImage(annotated, f"ground truth: {_class_names(image.truth, names)}", "ground truth"),
    ]
    return {"name": image.name, "inputs": inputs, "predictions": predictions}


def expected(truth: Labels, names: Sequence[str], seen: Mapping[str, Any], unseen: int = 0) -> Bytes:
    """The correct labels after a step: classes that are not learned yet are `unseen`, background or ignored."""
    table = np.full(256, IGNORE, dtype=np.uint8)
    table[: len(names)] = [i if i == 0 or name in seen else unseen for i, name in enumerate(names)]
    correct: Bytes = table[truth]
    return correct


def _class_names(labels: Labels, names: Sequence[str]) -> str:
    present = [names[label] for label in np.unique(labels).tolist() if label not in (0, IGNORE)]
    return ", ".join(present) or "nothing"


def _legend(gallery: Gallery) -> list[str]:
    """The classes in the images and their predictions, for the legend."""
    maps = [image.truth for image in gallery.images]
    maps += [labels for image in gallery.images for steps in image.predictions.values() for labels in steps.values()]
    found = {label for labels in maps for label in np.unique(labels).tolist()} - {0, IGNORE}
    return [gallery.names[label] for label in sorted(found)]


def data_url(image: Image.Image | Figure) -> str:
    """A figure as SVG, an image as WebP, small enough for a page of many images to open on a phone."""
    if isinstance(image, Figure):
        kind, content = "svg+xml", svg(image).encode()
    else:
        image.thumbnail((MAX_SIDE, MAX_SIDE))
        buffer = io.BytesIO()
        image.save(buffer, format="webp", quality=80)
        kind, content = "webp", buffer.getvalue()
    return f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}"
