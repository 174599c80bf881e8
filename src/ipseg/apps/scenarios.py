"""The named scenarios as tables."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.table import Table

from ipseg.data.scenes.objects import class_names
from ipseg.report.formats import plain_table
from ipseg.scenario import DATASETS, Scenario, Setting, describe, named_scenarios


def find_scenarios(name: str | None = None, setting: Setting = "overlap") -> list[Scenario]:
    """The scenario of a name, or all named ones, of the public data sets and of the drawn scenes."""
    datasets = DATASETS | {"scenes": class_names()}
    return [describe(one, setting, datasets) for one in (named_scenarios(datasets) if name is None else [name])]


def list_table(scenarios: Sequence[Scenario]) -> Table:
    table = plain_table("", ["scenario", "steps", "classes a step"])
    table.caption = "Any other DATASET/BASE-INCREMENT that fits works as well."
    for scenario in scenarios:
        table.add_row(scenario.name, str(len(scenario.steps)), format_sizes([len(step.new) for step in scenario.steps]))
    return table


def steps_table(scenario: Scenario) -> Table:
    table = plain_table(f"{scenario.name} {scenario.setting}", ["step", "old", "learns"])
    for step in scenario.steps:
        table.add_row(str(step.index), str(len(step.old)), ", ".join(step.new))
    return table


def format_sizes(sizes: Sequence[int]) -> str:
    """Numbers of classes, repeated ones counted.

    >>> format_sizes([15, 1, 1, 1, 1, 1]), format_sizes([15, 2, 2, 1])
    ('15 + 5 x 1', '15 + 2 x 2 + 1')
    """
    counted = [(size, len(list(same))) for size, same in groupby(sizes)]
    return " + ".join(f"{count} x {size}" if count > 1 else str(size) for size, count in counted)
