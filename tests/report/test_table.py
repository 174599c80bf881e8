from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from ipseg.report.table import class_table, steps_table


def printed(table: Table) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(table)
    return console.file.getvalue()


def test_what_was_not_measured_is_a_dash(make_run):
    step = make_run().steps[0]
    run = make_run()
    bare = replace(run, steps=(replace(step, iou=step.iou | {"car": None}),))
    assert "–" in printed(steps_table(bare))
    assert next(line for line in printed(class_table(bare.steps[0])).splitlines() if "car" in line).split() == [
        "car",
        "–",
    ]


def test_the_steps_table_has_a_row_for_every_step_with_its_classes(make_run):
    text = printed(steps_table(make_run()))
    assert "bus, sofa" in text
    assert [line.split()[0] for line in text.splitlines() if line.strip()[:1].isdigit()] == ["0", "1", "2"]
