"""One HTML file that tells a whole experiment: what was learned when, how well, and how it looks."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ipseg.evaluation.results import RunResult
from ipseg.files import write_text
from ipseg.report.overlay import DARKER, checked, hatching, outline
from ipseg.report.palette import IGNORE, Bytes, as_hex, colours
from ipseg.report.rows import COLUMNS, comparison_rows, display_names, learned_at_once, notes, percent

_SHARP = 200
"""Pictures up to this size are shown pixel by pixel; larger ones are photographs."""
_LARGEST = 480
"""No picture on the page is larger: a page of many scenes must still open on a phone."""


@dataclass(frozen=True)
class SceneRow:
    """One validation image and what every run made of it."""

    image: Bytes
    """(height, width, 3)."""
    truth: NDArray[np.integer]
    """(height, width), labels as indices into the gallery's names, all classes known."""
    predictions: Mapping[str, Sequence[NDArray[np.integer]]]
    """Name of the run -> its label map after every step."""


@dataclass(frozen=True)
class Gallery:
    """The scenes of a page. names[0] is the background, the rest in the order of learning."""

    names: Sequence[str]
    scenes: Sequence[SceneRow] = ()


def write_page(
    path: Path, title: str, intro: str, results: Sequence[RunResult], gallery: Gallery, facts: Mapping[str, str]
) -> None:
    """Write the page. `intro` may have paragraphs, apart by empty lines; `facts` close the page as a list."""
    write_text(path, render_page(title, intro, results, gallery, facts))


def render_page(
    title: str, intro: str, results: Sequence[RunResult], gallery: Gallery, facts: Mapping[str, str]
) -> str:
    """The page as text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from ipseg.report.plots import iou_per_class, miou_over_steps

    environment = Environment(
        loader=PackageLoader("ipseg", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    measured = [result for result in results if result.steps]
    longest = max(measured, key=lambda result: len(result.steps), default=None)
    return environment.get_template("page.html.jinja").render(
        title=title,
        paragraphs=[part for part in intro.split("\n\n") if part.strip()],
        steps=longest.steps if longest else (),
        chip=dict(zip(gallery.names, map(as_hex, colours(len(gallery.names))), strict=True)),
        headlines=_headlines(measured),
        columns=COLUMNS,
        rows=comparison_rows(measured),
        notes=notes(measured),
        plots=[miou_over_steps(measured), iou_per_class(measured)] if measured else [],
        shown=_shown(gallery),
        scenes=[_scene(scene, gallery.names, measured) for scene in gallery.scenes],
        facts=facts,
    )


def _headlines(results: Sequence[RunResult]) -> list[dict[str, Any]]:
    """Each run's large figure, and the small ones under it."""
    from ipseg.report.plots import run_colour

    headlines = []
    for position, (result, name) in enumerate(zip(results, display_names(results), strict=True)):
        miou = result.steps[-1].miou
        parts = () if miou.get("new") is None else ("base", "new")  # after one step, base is all there is
        small = {group: percent(miou.get(group)) for group in parts}
        colour = run_colour(position)
        headlines.append({"name": name, "colour": colour, "all": percent(miou.get("all")), "small": small})
    return headlines


def _scene(scene: SceneRow, names: Sequence[str], results: Sequence[RunResult]) -> dict[str, Any]:
    """What the template shows of a scene: the picture once, and one thin layer of labels for each view of it."""
    from ipseg.report.plots import run_colour

    height, width = scene.image.shape[:2]
    steps = max((len(result.steps) for result in results), default=0)
    runs = []
    for position, (result, name) in enumerate(zip(results, display_names(results), strict=True)):
        maps = scene.predictions.get(result.name, ())
        layers: list[dict[str, str] | None] = [_layer(scene.image, labels, names) for labels in maps]
        missing: list[dict[str, str] | None] = [None] * (steps - len(layers))
        views = missing + layers if learned_at_once(result, results) else layers + missing
        runs.append({"name": name, "colour": run_colour(position), "layers": views})
    return {
        "photo": _photo(scene.image),
        "sharp": max(height, width) <= _SHARP,
        "ratio": f"{width} / {height}",
        "truth": _layer(scene.image, scene.truth, names),
        "runs": [run for run in runs if any(run["layers"])],
    }


def _shown(gallery: Gallery) -> list[str]:
    """The classes that any picture shows, true or predicted: the legend of the pictures needs no others."""
    maps = [labels for scene in gallery.scenes for labels in (scene.truth, *chain(*scene.predictions.values()))]
    labels = set().union(*(np.unique(labels).tolist() for labels in maps)) - {0, IGNORE}
    return [gallery.names[label] for label in sorted(labels)]


def _photo(image: Bytes) -> str:
    """The image as a data address: exact if small, as JPEG if it is a photograph."""
    picture = Image.fromarray(image)
    if max(picture.size) <= _SHARP:
        return _address(picture, "png", optimize=True)
    picture.thumbnail((_LARGEST, _LARGEST))
    return _address(picture, "jpeg", quality=85)


def _layer(image: Bytes, labels: NDArray[np.integer], names: Sequence[str]) -> dict[str, str]:
    """The labels as a see-through palette PNG of a few hundred bytes, to lie over the image; and what it shows."""
    labels = _thinned(checked(image, labels, names)).copy()
    labels[(labels == IGNORE) & hatching(labels.shape)] = 0
    shown, inverse = np.unique(labels, return_inverse=True)
    indices = inverse.reshape(labels.shape)
    if 2 * len(shown) <= 256:  # an outline takes a second palette entry a class; so many classes need none
        indices = indices + len(shown) * outline(labels)
    fill = colours(256)[shown]
    palette = np.concatenate([fill, (fill * DARKER).astype(np.uint8)])[:256]
    alpha = np.concatenate([np.where(shown == 0, 0, 165), np.full(len(shown), 240)])[:256]
    picture = Image.fromarray(indices.astype(np.uint8))
    picture.putpalette(palette.tobytes())
    opacity = bytes(alpha.astype(np.uint8))
    seen = [("ignored" if label == IGNORE else names[label]) for label in shown.tolist() if label]
    return {
        "source": _address(picture, "png", optimize=True, transparency=opacity),
        "seen": ", ".join(seen) or "nothing",
    }


def _thinned(labels: Bytes) -> Bytes:
    """The labels at the size of the page's photograph."""
    if max(labels.shape) <= _SHARP:
        return labels
    picture = Image.fromarray(labels)
    factor = min(1.0, _LARGEST / max(picture.size))
    size = (max(1, round(picture.width * factor)), max(1, round(picture.height * factor)))
    return np.asarray(picture.resize(size, Image.Resampling.NEAREST))


def _address(picture: Image.Image, kind: str, **options: Any) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, format=kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"
