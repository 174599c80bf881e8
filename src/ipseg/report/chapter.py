"""A chapter of the page, one scenario: what is known about its runs, made into what the template shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipseg.evaluation.results import StepResult
from ipseg.report import plots
from ipseg.report.compare import Section, notes, say
from ipseg.report.compare_formats import columns, extra
from ipseg.report.differences import Differences, differences
from ipseg.report.groups import Drawn, drawn, longest, thinly_drawn, undrawn
from ipseg.report.heat import HeatMap, confusion_map, forgetting_map, iou_over_steps
from ipseg.report.lookalikes import last_confusion, look_alikes, most_confused, say_missed, say_pair
from ipseg.report.palette import IGNORE, Bytes, as_hex, colours
from ipseg.report.pictures import SHARP, Layer, expected, layer, photo, thumbnail

READABLE = 24
"""Classes of a confusion matrix that a page can hold."""


@dataclass(frozen=True)
class SceneRow:
    """One validation image and what every run made of it."""

    image: Bytes
    """(height, width, 3)."""
    truth: NDArray[np.integer]
    """(height, width), labels as indices into the gallery's names, all classes known."""
    predictions: Mapping[str, Sequence[NDArray[np.integer]]]
    """Name of the run -> its label map after every step."""
    name: str = ""


@dataclass(frozen=True)
class Gallery:
    """The scenes of a page. names[0] is the background, the rest in the order of learning."""

    names: Sequence[str]
    scenes: Sequence[SceneRow] = ()
    unseen: int = 0
    """What a class counts as before it is learned: 0, background, or 255, ignored."""


@dataclass(frozen=True, kw_only=True)
class Remembered:
    """What a run remembers after its last step."""

    pictures: int
    classes: Mapping[str, int]
    """Class -> pictures that hold it."""
    shown: Sequence[tuple[str, Bytes]] = ()
    """Some of the pictures, each with what it is of, in words."""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """One scenario. Runs are named as in its table."""

    section: Section
    gallery: Gallery = Gallery(())
    memories: Mapping[str, Remembered] = field(default_factory=dict)
    curves: Mapping[str, plots.Curves] = field(default_factory=dict)
    missing: Sequence[str] = ()
    """What cannot be shown, and why: a sentence each."""


def told(chapter: Chapter) -> dict[str, Any]:
    """What the template shows, as plain values."""
    rows = drawn(chapter.section)
    steps = longest(rows)
    names = list(chapter.gallery.names) or list(steps[-1].iou)
    confusions, unknown = _confusions(rows, names)
    lost = forgetting_map(rows, names) if len(steps) > 1 else None
    accuracy = [svg for reading in plots.READINGS if (svg := plots.image_accuracy(rows, reading))]
    missing = [*unknown, *chapter.missing]
    missing += [] if lost else [f"Forgetting: {_no_forgetting(steps)}."]
    missing += [] if accuracy else ["Image-level accuracy: the results do not hold it."]
    thin = thinly_drawn(chapter.section)
    if rest := undrawn(chapter.section):
        missing.append(f"Lines of {', '.join(rest)}: name fewer runs to see them.")
    return {
        "title": chapter.section.title,
        "steps": steps,
        "chip": dict(zip(names, map(as_hex, colours(256)), strict=False)),
        "headlines": [_headline(row) for row in rows],
        "differences": _differences(rows),
        "rows": rows,
        "columns": columns(chapter.section),
        "lines": _table(chapter.section, rows),
        "notes": notes([chapter.section]),
        "plots": [plots.miou_over_steps(rows, thin), plots.iou_per_class(rows)],
        "curves_note": _curves_note(rows, thin),
        "classes": _heat(rows, names, [step.step for step in steps]),
        "confusions": confusions,
        "forgetting": lost,
        "accuracy": accuracy,
        "memories": [_memory(row, chapter.memories[row.name]) for row in rows if row.name in chapter.memories],
        "training": [plots.training_curve(row, chapter.curves[row.name]) for row in rows if row.name in chapter.curves],
        "shown": _shown(chapter.gallery),
        "scenes": [_scene(scene, chapter.gallery, rows, len(steps)) for scene in chapter.gallery.scenes],
        "missing": missing,
    }


def _curves_note(rows: Sequence[Drawn], thin: Sequence[Drawn]) -> str:
    """What the signs of the curves mean; of those that are there."""
    said, lines = ["Every step adds classes to the mean."], [*rows, *thin]
    if any(mean.spread for row in rows for mean in row.over_steps(lambda step: step.miou.get("all"))):
        said.append("Bands: one standard deviation over seeds, to both sides.")
    if any(row.dashed for row in lines):
        said.append("Dashed: a bound, not a rival.")
    if not all(row.measured_alike for row in lines):
        said.append("Dots without a line: the steps were measured on different pictures or classes.")
    if thin:
        said.append(f"Grey: rows that are drawn here alone; all else shows the {len(rows)} with the highest mIoU.")
    return " ".join(said)


def _no_forgetting(steps: Sequence[StepResult]) -> str:
    return (
        "the steps were measured on different pictures or classes"
        if len(steps) > 1
        else "no run has learned a second step"
    )


def _headline(row: Drawn) -> dict[str, Any]:
    """A row's large figure, and the small ones under it."""
    last = row.over_steps(lambda step: step.miou.get("all"))[-1]
    parts = {
        "base": row.over_steps(lambda step: step.miou.get("base"))[-1].mean,
        "new": row.over_steps(lambda step: step.miou.get("new"))[-1].mean,
    }
    small = parts if parts["new"] is not None else {}  # after one step, base is all there is
    return {
        "name": row.name,
        "colour": row.colour,
        "all": _one(last.mean),
        "spread": None if last.spread is None else _one(last.spread),
        "small": {group: _one(value) for group, value in small.items()},
        "unfinished": bool(row.line.state),
    }


def _one(value: float | None) -> str:
    return say(None if value is None else value / 100, None)


def _table(section: Section, rows: Sequence[Drawn]) -> list[dict[str, Any]]:
    colour = {row.name: row.colour for row in rows}
    return [
        {"name": line.shown, "colour": colour.get(line.shown), "cells": line.cells, "extra": extra(section, line)}
        for line in section.lines
    ]


def _differences(rows: Sequence[Drawn]) -> Differences | None:
    found = differences([row.line.entries[0].settings for row in rows])
    return found if found.differing or found.partial else None


def _heat(rows: Sequence[Drawn], names: Sequence[str], steps: Sequence[int]) -> list[HeatMap]:
    classes = [name for name in names if any(name in row.iou()[-1] for row in rows)]
    return [iou_over_steps(row, classes, steps) for row in rows]


def _confusions(rows: Sequence[Drawn], names: Sequence[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """Each row's matrix with its worst pairs in words; and what has none."""
    found, without = [], []
    for row in rows:
        whole = last_confusion(row.results)
        if whole is None:
            without.append(row.name)
            continue
        whole = whole.of([name for name in names if name in whole.names])  # one order, whoever learned in another
        pairs, missed = look_alikes(whole), say_missed(whole)
        said = [f"{say_pair(pair)}." for pair in pairs] or [
            "No class is taken for another in 1 % of its pixels or more."
        ]
        part = most_confused(whole, READABLE)
        if part is not whole:
            said.append(f"Shown are the {READABLE} classes with most wrong pixels of {len(whole.names)}.")
        said += [f"{missed}."] if missed else []
        found.append({"map": confusion_map(row, part, pairs), "said": said})
    why = f"Confusion matrix: the results of {', '.join(without)} are of an earlier version, which did not store it."
    return found, [why] if without else []


def _memory(row: Drawn, memory: Remembered) -> dict[str, Any]:
    most = max(memory.classes.values(), default=0)
    return {
        "name": row.name,
        "colour": row.colour,
        "seed": row.results[0].seed if len(row.results) > 1 else None,
        "memory": memory,
        "most": max(most, 1),
        "pictures": [(what, thumbnail(image)) for what, image in memory.shown],
    }


def _scene(scene: SceneRow, gallery: Gallery, rows: Sequence[Drawn], steps: int) -> dict[str, Any]:
    """What the template shows of a scene: the picture once, and thin layers of labels and errors for each view."""
    height, width = scene.image.shape[:2]
    views = [{"name": row.name, "colour": row.colour, "layers": _layers(scene, gallery, row, steps)} for row in rows]
    return {
        "photo": photo(scene.image),
        "name": scene.name,
        "sharp": max(height, width) <= SHARP,
        "ratio": f"{width} / {height}",
        "truth": layer(scene.image, scene.truth, gallery.names),
        "runs": [view for view in views if any(view["layers"])],
    }


def _layers(scene: SceneRow, gallery: Gallery, row: Drawn, steps: int) -> list[Layer | None]:
    """A view for every step; none where the run has not been there."""
    maps = scene.predictions.get(row.name, ())
    seen = [step.iou for step in row.results[0].steps]
    made: list[Layer | None] = [
        layer(scene.image, labels, gallery.names, expected(scene.truth, gallery.names, known, gallery.unseen))
        for labels, known in zip(maps, seen, strict=False)
    ]
    nothing: list[Layer | None] = [None] * (steps - len(made))
    return nothing + made if row.level else made + nothing


def _shown(gallery: Gallery) -> list[str]:
    """The classes that any picture shows, true or predicted: the legend of the pictures needs no others."""
    maps = [labels for scene in gallery.scenes for labels in (scene.truth, *chain(*scene.predictions.values()))]
    labels = set().union(*(np.unique(labels).tolist() for labels in maps)) - {0, IGNORE}
    return [gallery.names[label] for label in sorted(labels)]
