"""The classes of the drawn scenes: pairs of look-alikes, ordered so that learning in steps tears the pairs apart."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from ipseg.data.scenes import creatures, glyphs, things
from ipseg.data.scenes.figure import Sketch
from ipseg.errors import require_between

FEWEST, MOST = 2, 60
WORLD = 20
"""Kinds of objects there are at least, as in Pascal VOC: where fewer are classes, the others are unknown foreground."""


class Kind(NamedTuple):
    """One kind of object."""

    name: str
    sketch: Sketch
    """The function that draws one."""
    pair: int
    """Which pair of look-alikes it belongs to."""


DRAWN_PAIRS: tuple[tuple[tuple[str, Sketch], tuple[str, Sketch]], ...] = (
    (("cow", creatures.cow), ("horse", creatures.horse)),
    (("bus", things.bus), ("car", things.car)),
    (("cup", things.cup), ("teapot", things.teapot)),
    (("cat", creatures.cat), ("dog", creatures.dog)),
    (("sailboat", things.sailboat), ("steamer", things.steamer)),
    (("house", things.house), ("church", things.church)),
    (("tree", things.tree), ("mushroom", things.mushroom)),
    (("fish", creatures.fish), ("whale", creatures.whale)),
    (("chair", things.chair), ("table", things.table)),
    (("star", things.star), ("flower", things.flower)),
)
PAIRS = DRAWN_PAIRS + glyphs.PAIRS  # everyday things first; then outlines with marks, as many as anyone needs


def pair_count(count: int) -> int:
    """How many pairs `count` classes come from; with an odd count the last pair stays without its look-alike."""
    require_between("data.classes", count, FEWEST, MOST)
    return (count + 1) // 2


def class_names(count: int = 12) -> tuple[str, ...]:
    """The names of `count` classes: the first of every pair, then their look-alikes in the same order.

    >>> class_names(6)
    ('cow', 'bus', 'cup', 'horse', 'car', 'teapot')
    """
    return tuple(kind.name for kind in _members(count))


@cache
def world(count: int) -> tuple[Kind, ...]:
    """All kinds of objects that pictures of `count` classes show: the classes, then those that have no label there."""
    classes = _members(count)
    return (*classes, *(kind for kind in _members(max(count, WORLD)) if kind not in classes))


def look_alike(index: int, count: int) -> int | None:
    """The class that class `index` is easily taken for, or None if it is not among the `count` classes.

    >>> look_alike(0, 12), look_alike(6, 12), look_alike(2, 5)
    (6, 0, None)
    """
    pairs = pair_count(count)
    require_between("class", index, 0, count - 1)
    other = index + pairs if index < pairs else index - pairs
    return other if other < count else None


def _members(count: int) -> list[Kind]:
    chosen = list(enumerate(PAIRS[: pair_count(count)]))
    firsts = [Kind(name, sketch, pair) for pair, ((name, sketch), _) in chosen]
    seconds = [Kind(name, sketch, pair) for pair, (_, (name, sketch)) in chosen]
    return [*firsts, *seconds][:count]
