"""What `ipseg data check` found, for people and for programs."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ipseg.apps.data_check import KINDS, Findings

FIRST = 10
"""Problems of a kind that a person is shown; a program gets all."""


def as_json(found: Findings) -> dict[str, Any]:
    """Plain values; the keys are documented in docs/data.md."""
    per_step, scenario = found.images_per_step(), found.scenario
    return {
        "path": str(found.path),
        "format": found.format,
        "images": found.total("images"),
        "masks": found.total("masks"),
        "saliency_maps": found.total("saliency_maps"),
        "splits": {name: split.pictures for name, split in found.splits.items()},
        "classes_per_image": {name: found.classes_per_image(name) for name in found.splits},
        "images_per_class": {name: found.images_per_class(name) for name in found.splits},
        **{kind: found.problems(kind) for kind in KINDS},
        "notes": found.notes(),
        "scenario": scenario and scenario.name,
        "setting": scenario and scenario.setting,
        "images_per_step": per_step,
    }


def as_tables(found: Findings) -> RenderableType:
    """The same to look at, with the first problems of each kind."""
    parts: list[RenderableType] = [_splits_table(found), _classes_table(found)]
    if found.scenario:
        parts.append(_steps_table(found))
    parts += [Text(f"Note: {note}.") for note in found.notes()]
    for kind in KINDS:
        problems = found.problems(kind)
        if problems:
            more = [f"... and {len(problems) - FIRST} more"] if len(problems) > FIRST else []
            title = f"{kind.replace('_', ' ').capitalize()}: {len(problems)}"
            parts.append(Text("\n  ".join([title, *problems[:FIRST], *more])))
    return Group(*parts)


def _splits_table(found: Findings) -> Table:
    table = _table("split", "pictures", "images", "masks", "saliency maps", "classes in a picture: pictures")
    for name, split in found.splits.items():
        shares = ", ".join(f"{classes}: {count}" for classes, count in found.classes_per_image(name).items())
        counts = (split.pictures, split.images, split.masks, split.saliency_maps)
        table.add_row(name, *map(str, counts), shares)
    return table


def _classes_table(found: Findings) -> Table:
    table = _table("class", "train", "val")
    train, val = (found.images_per_class(name) for name in ("train", "val"))
    for name in found.classes:
        table.add_row(Text(name), str(train[name]), str(val[name]))  # a name in brackets is no markup
    return table


def _steps_table(found: Findings) -> Table:
    assert found.scenario is not None
    table = _table("step", "learns", "pictures")
    table.title, table.title_justify = f"{found.scenario.name} {found.scenario.setting}", "left"
    for step, count in zip(found.scenario.steps, found.images_per_step() or (), strict=True):
        table.add_row(str(step.index), Text(", ".join(step.new)), str(count))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
