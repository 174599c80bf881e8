"""Heat maps as tables of text: read aloud, copied and printed like any table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ipseg.report.groups import Drawn
from ipseg.report.lookalikes import Confusion, Pair

Tone = Literal["good", "bad", "plain"]


@dataclass(frozen=True)
class HeatCell:
    """A number and how strongly it is tinted."""

    text: str = ""
    strength: float = 0.0
    """0 to 1."""
    tone: Tone = "plain"
    marked: bool = False
    """It is called out in the text."""


@dataclass(frozen=True)
class HeatMap:
    """A table whose rows are classes."""

    caption: str
    corner: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[HeatCell, ...]], ...]
    heads: bool = False
    """The columns are classes too: many, so their names stand upright."""
    colour: str = ""
    """Of the run that it shows."""


def iou_over_steps(row: Drawn, classes: Sequence[str], steps: Sequence[int]) -> HeatMap:
    """How every class fares, step after step."""
    found = row.iou()
    at = {mean.step: ious for mean, ious in zip(row.over_steps(lambda step: step.miou.get("all")), found, strict=True)}
    if row.level:
        at = {steps[-1]: found[-1]}
    cells = tuple((name, tuple(_iou_cell(at.get(step, {}), name) for step in steps)) for name in classes)
    return HeatMap(row.name, "after step", tuple(map(str, steps)), cells, colour=row.colour)


def _iou_cell(ious: dict[str, float | None], name: str) -> HeatCell:
    if name not in ious:
        return HeatCell()
    value = ious[name]
    return HeatCell("–") if value is None else HeatCell(whole(value), value / 100)


def confusion_map(row: Drawn, confusion: Confusion, pairs: Sequence[Pair]) -> HeatMap:
    """Of each class's pixels (rows), what they are called (columns); pairs that the text names are marked."""
    shares = confusion.shares
    told = {(a, b) for pair in pairs for a, b in ((pair.first, pair.second), (pair.second, pair.first))}
    rows = []
    for true, values in zip(confusion.names, shares.tolist(), strict=True):
        cells = [
            _share_cell(value, right=true == said, marked=(true, said) in told)
            for said, value in zip(confusion.names, values, strict=True)
        ]
        rows.append((true, tuple(cells)))
    return HeatMap(row.name, "true ↓ called →", confusion.names, tuple(rows), heads=True, colour=row.colour)


def _share_cell(value: float, *, right: bool, marked: bool) -> HeatCell:
    if math.isnan(value):
        return HeatCell("–")
    text = whole(100 * value) if value >= 0.005 else ""
    # the root makes small confusions visible beside large ones
    return HeatCell(text, value if right else math.sqrt(value), "plain" if right else "bad", marked and bool(text))


def forgetting_map(rows: Sequence[Drawn], classes: Sequence[str]) -> HeatMap | None:
    """What each class lost since it was best: a column a run; nothing where no run has an earlier step."""
    lost = {row.name: row.forgetting() for row in rows if not row.level}
    lost = {name: values for name, values in lost.items() if values}
    known = [name for name in classes if any(name in values for values in lost.values())]
    if not known:
        return None
    body = tuple((name, tuple(_lost_cell(values.get(name)) for values in lost.values())) for name in known)
    means = [[value for value in values.values() if value is not None] for values in lost.values()]
    mean = tuple(_lost_cell(sum(values) / len(values) if values else None) for values in means)
    return HeatMap("points of IoU lost", "class", tuple(lost), (*body, ("mean", mean)))


def _lost_cell(value: float | None) -> HeatCell:
    if value is None:
        return HeatCell("–")
    strength = min(1.0, abs(value) / 60)
    return HeatCell(f"{value:.1f}".replace("-0.0", "0.0").replace("-", "−"), strength, "bad" if value > 0 else "good")


def whole(value: float) -> str:
    """A percentage without decimals; cells are small.

    >>> whole(63.6), whole(-0.2)
    ('64', '0')
    """
    return f"{value:.0f}".replace("-0", "0")
