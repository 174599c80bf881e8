"""What rows of a table are called, so that no reader takes one for another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipseg.report.compare import Entry

MOST_TOLD = 3
"""Settings that tell rows of one name apart."""


def row_names(entries: Sequence[Entry]) -> dict[str, str]:
    """What each group is called: the name of its first run, and the settings that tell groups of one name apart."""
    firsts = {entry.group: entry for entry in reversed(entries)}
    names = {}
    for group, first in firsts.items():
        alike = [other for other in firsts.values() if other.result.name == first.result.name]
        names[group] = first.result.name + _difference(first, alike)
    return names


def _difference(one: Entry, alike: Sequence[Entry]) -> str:
    """The first few settings that differ, and more of them where these do not tell it from another one."""
    keys = dict.fromkeys(key for other in alike for key in other.settings)
    differing = [key for key in keys if len(_values(alike, [key])) > 1]
    told, left = differing[:MOST_TOLD], differing[MOST_TOLD:]
    twins = [other for other in alike if _values([one, other], told) == _values([one], told)]
    told += [key for key in left if len(_values(twins, [key])) > 1][:MOST_TOLD]
    said = [f"{key}={one.settings[key]}" for key in told if key in one.settings]
    return f" [{', '.join([*said, *(['...'] if len(differing) > len(told) else [])])}]" if said else ""


def _values(entries: Sequence[Entry], keys: Sequence[str]) -> set[tuple[str, ...]]:
    """What these settings are, of the runs that have them: of a lone results.json nobody knows."""
    return {
        tuple(str(one.settings[key]) for key in keys) for one in entries if all(key in one.settings for key in keys)
    }
