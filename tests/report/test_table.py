from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from ipseg.report.rows import COLUMNS, comparison_rows
from ipseg.report.table import class_table, comparison, markdown, steps_table


def printed(table: Table) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(table)
    return console.file.getvalue()


def best_of(results) -> dict[str, list[str]]:
    rows = comparison_rows(results)
    return {column: [row.name for row in rows if row.cells[i].best] for i, column in enumerate(COLUMNS)}


def test_the_best_of_each_column_is_bold(make_run):
    strong, weak = make_run("strong", 0.7, 0.9), make_run("weak", 0.5, 0.5)
    assert best_of([strong, weak])["all"] == ["strong"]
    line = next(line for line in markdown([strong, weak]).splitlines() if "strong" in line)
    assert line.count("**") == 2 * 5  # harmonic is unknown here
    table = comparison([strong, weak])
    bold = [
        str(cell) for column in table.columns for cell in column._cells if getattr(cell, "style", "") == "bold green"
    ]
    assert len(bold) == 5


def test_the_least_forgetting_is_the_best(make_run):
    assert best_of([make_run("keeps", 0.5, 0.95), make_run("forgets", 0.9, 0.3)])["forgetting"] == ["keeps"]


def test_runs_that_show_the_same_number_share_the_bold(make_run):
    assert best_of([make_run("one"), make_run("other")])["all"] == ["one", "other"]


def test_a_run_alone_is_not_called_the_best(make_run):
    assert not any(best_of([make_run()]).values())


def test_an_oracle_is_marked_and_explained_and_never_bold(make_run):
    results = [make_run(), make_run("weak", 0.3), make_run("joint", 0.99, oracle=("all_labels",))]
    text = printed(comparison(results))
    assert "joint †" in text
    assert "† saw labels that a step must not see (all_labels)" in text
    assert best_of(results)["all"] == ["ipseg"]


def test_an_unfinished_run_says_so_and_is_never_bold(make_run):
    half = make_run("half", 0.95, info={"steps": 7})
    assert "half (3 of 7 steps)" in printed(comparison([half, make_run()]))
    assert best_of([half, make_run(), make_run("weak", 0.2)])["all"] == ["ipseg"]


def test_runs_of_different_scenarios_are_not_rivals_and_say_what_they_ran(make_run):
    other = make_run("other", 0.9, scenario="voc/15-1")
    assert not any(best_of([make_run(), other]).values())
    assert "voc/15-1 overlap" in printed(comparison([make_run(), other]))


def test_seeds_tell_runs_of_one_name_apart(make_run):
    assert "ipseg (seed 3)" in printed(comparison([make_run(), make_run(seed=3)]))


def test_what_was_not_measured_is_a_dash(make_run):
    step = make_run().steps[0]
    run = make_run()
    bare = replace(run, steps=(replace(step, iou=step.iou | {"car": None}),))
    assert "–" in printed(comparison([bare]))
    assert "–" in printed(steps_table(bare))
    assert next(line for line in printed(class_table(bare.steps[0])).splitlines() if "car" in line).split() == [
        "car",
        "–",
    ]
    assert "None" not in markdown([bare])


def test_a_run_without_steps_is_a_row_of_dashes(make_run):
    row = comparison_rows([replace(make_run(), steps=())])[0]
    assert [cell.text for cell in row.cells] == ["–"] * len(COLUMNS)


def test_the_steps_table_has_a_row_for_every_step_with_its_classes(make_run):
    text = printed(steps_table(make_run()))
    assert "bus, sofa" in text
    assert [line.split()[0] for line in text.splitlines() if line.strip()[:1].isdigit()] == ["0", "1", "2"]


def test_names_are_never_read_as_markup(make_run):
    odd = make_run("[red]a|b[/red]")
    assert "[red]a|b[/red]" in printed(comparison([odd]))
    assert r"\[red]a\|b\[/red]" in markdown([odd])
