from __future__ import annotations

import csv
import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from ipseg.report.compare import ComparedRun, ResultTable, make_tables, notes
from ipseg.report.formats import as_json, class_table, latex, markdown, rich_tables, steps_table, to_csv


@pytest.fixture
def entry(make_run):
    def make(name: str = "ipseg", quality: float = 0.6, *, group: str = "", **fields) -> ComparedRun:
        known = {key: fields.pop(key) for key in ("settings", "bound", "paper") if key in fields}
        run = make_run(name, quality, **fields)
        return ComparedRun(result=run, group=group or name, **known)

    return make


def rows(table: ResultTable) -> dict[str, list[str]]:
    return {row.label: [cell.text for cell in table.cells(row)[:6]] for row in table.rows}


def best(table: ResultTable, column: str = "all") -> list[str]:
    place = table.columns.index(column)
    return [row.name for row in table.rows if table.cells(row)[place].best]


def printed(found: list[ResultTable], width: int = 140) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(rich_tables(found))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_seeds_are_one_row_with_mean_and_spread(entry):
    found = make_tables([entry(quality=0.5, seed=0), entry(quality=0.6, seed=1), entry("other", 0.4)])
    (table,) = found
    own, _ = table.rows
    assert [run.result.seed for run in own.runs] == [0, 1]
    both = [run.result.final()["average"] for run in (entry(quality=0.5), entry(quality=0.6))]
    assert own.scores["average"].mean == pytest.approx(sum(both) / 2)
    assert own.scores["average"].std == pytest.approx(abs(both[0] - both[1]) / 2**0.5)
    assert " ± " in rows(table)["ipseg"][2]
    assert "±" not in rows(table)["other"][2]
    assert any("standard deviation of n runs" in note for note in notes(found))


def test_scenarios_stand_in_tables_of_their_own_and_have_their_own_best(entry):
    found = make_tables([entry("a", 0.5), entry("b", 0.6), entry("c", 0.9, setting="disjoint")])
    assert [table.title for table in found] == ["scenes/3-1 overlap", "scenes/3-1 disjoint"]
    assert [best(table) for table in found] == [["b"], []]


EXTENDED = {"scenario": "folder/grown", "steps": (("cow", "bus"), ("cat",), ("sheep",))}


def test_extended_runs_of_other_classes_are_no_rivals(entry):
    """One scenario's name stands for all of them: what they learned and were measured on tells them apart."""
    more = EXTENDED | {"steps": (*EXTENDED["steps"], ("goat",))}
    found = make_tables([entry("a", 0.5, **EXTENDED), entry("more", 0.9, **more), entry("b", 0.6, **EXTENDED)])
    assert [table.title for table in found] == [
        "folder/grown (cow, bus + cat + sheep) overlap",
        "folder/grown (cow, bus + cat + sheep + goat) overlap",
    ]
    assert [best(table) for table in found] == [["b"], []]
    assert any("the same classes" in note for note in notes(found))
    assert {row["classes"] for row in as_json(found)} == {table.classes for table in found}
    assert not any("extended" in note for note in notes(make_tables([entry("a")])))


def test_extended_runs_that_were_measured_on_other_classes_are_no_rivals(entry):
    whole, part = entry("whole", 0.5, **EXTENDED), entry("part", 0.9, **EXTENDED)
    last = part.result.steps[-1]
    seen = replace(last, iou=last.iou | {"cow": None, "bus": None, "cat": None})
    part = replace(part, result=replace(part.result, steps=(*part.result.steps[:-1], seen)))
    found = make_tables([whole, part])
    assert found[1].title == "folder/grown (cow, bus + cat + sheep; measured: sheep) overlap"
    assert not any(cell.best for table in found for row in table.rows for cell in table.cells(row))
    assert rows(found[1])["part"][-2:] == ["–", "–"]  # average and forgetting would mix them with the steps before
    assert "–" not in rows(found[0])["whole"][-2:]
    assert any("empty where its steps were measured on different images" in note for note in notes(found))
    assert not any("empty where" in note for note in notes(found[:1]))


OTHERS = (("bus", "cow"), ("cat",), ("sheep",))
"""The classes of a run in another order."""


def test_runs_of_one_scenario_that_learned_other_classes_or_in_another_order_are_no_rivals(entry):
    forwards = {"steps": (("cat", "cow"), ("bus",), ("sheep",))}
    found = make_tables(
        [entry("a", 0.5, **forwards), entry("backwards", 0.9, steps=OTHERS), entry("b", 0.6, **forwards)]
    )
    assert [table.title for table in found] == [
        "scenes/3-1 (cat, cow + bus + sheep) overlap",
        "scenes/3-1 (bus, cow + cat + sheep) overlap",
    ]
    assert [best(table) for table in found] == [["b"], []]
    assert any("the same classes in the same steps" in note for note in notes(found))


def test_an_unfinished_run_stands_with_those_that_go_on_as_it_began(entry):
    begun = entry("half", steps=OTHERS[:2], info={"steps": 3})
    found = make_tables([begun, entry("a"), entry("b", steps=OTHERS)])
    assert [[row.name for row in table.rows] for table in found] == [["b", "half"], ["a"]]


def test_no_two_rows_have_one_name(entry):
    """A page finds by it what belongs to them."""
    settings = [
        {"model.width": 16, "memory.size": 6, "method.alpha_nf": 0.4, "training.epochs": 1, "training.lr": 0.1},
        {"model.width": 24, "memory.size": 4, "method.alpha_nf": 0.6, "training.epochs": 2, "training.lr": 0.1},
        {"model.width": 24, "memory.size": 4, "method.alpha_nf": 0.6, "training.epochs": 8, "training.lr": 0.1},
    ]
    runs = [entry(group=str(place), settings=values) for place, values in enumerate(settings)]
    (table,) = make_tables(runs)
    names = [row.name for row in table.rows]
    assert len(set(names)) == 3
    assert names[2] == "ipseg [model.width=24, training.epochs=8]"  # as many as it takes
    halves = [entry(group="one", info={"steps": 7}), entry(group="one", info={"steps": 7})]
    (table,) = make_tables(halves)
    assert len({row.label for row in table.rows}) == 2


def test_what_is_not_known_of_a_lone_file_is_not_told_as_a_setting(entry):
    (table,) = make_tables([entry(group="lone"), entry(group="run", settings={"memory.size": 6})])
    assert [row.name for row in table.rows] == ["ipseg", "ipseg (2)"]


def test_an_unfinished_run_is_shown_as_such_and_counts_nowhere(entry):
    half = entry(quality=0.99, seed=1, info={"steps": 7})
    (table,) = make_tables([half, entry(quality=0.5), entry("other", 0.4)])
    assert list(rows(table)) == ["ipseg", "other", "ipseg (seed 1: 3 of 7 steps)"]
    assert [run.result.seed for run in table.rows[0].runs] == [0]
    assert set(rows(table)["ipseg (seed 1: 3 of 7 steps)"]) == {"–"}
    assert "ipseg" in best(table)


def test_bounds_and_oracles_are_marked_explained_and_never_best(entry):
    found = make_tables([entry("joint", 0.9, bound=True), entry("cheat", 0.8, oracle=("all_labels",)), entry("a", 0.5),
                      entry("b", 0.4)])  # fmt: skip
    assert [row.label for row in found[0].rows] == ["cheat †", "a", "b", "joint †"]
    assert best(found[0]) == ["a"]
    assert rows(found[0])["joint †"][-2:] == ["–", "–"]  # average and forgetting are of steps
    text = " ".join(notes(found))
    assert "(all_labels)" in text
    assert "learned all classes at once" in text


def test_rows_of_one_name_are_told_apart_by_their_settings(entry):
    found = make_tables([
        entry(group="1", settings={"memory.size": 100, "training.lr": 0.1}),
        entry(group="2", settings={"memory.size": 0, "training.lr": 0.1}),
    ])  # fmt: skip
    assert list(rows(found[0])) == ["ipseg [memory.size=100]", "ipseg [memory.size=0]"]


def test_the_papers_number_has_a_column_where_there_is_one(entry):
    with_it = make_tables([entry(paper=81.6), entry("other", 0.5)])
    header, _, first, second = [line for line in markdown(with_it).splitlines() if line.startswith("|")]
    assert header.endswith("| n | paper |")
    assert (first.split()[-2], second.split()[-2]) == ("81.6", "–")
    assert "paper" not in markdown(make_tables([entry()]))


def test_the_papers_rows_without_decoupling_are_marked_as_the_nearest_counterparts(entry):
    none, both = {"method.decoupling": False}, {"method.decoupling": True}
    found = make_tables([entry("none", 0.5, paper=71.9, settings=none), entry("both", 0.6, paper=81.3, settings=both)])
    assert "| ≈ 71.9 |" in markdown(found)
    assert "| 81.3 |" in markdown(found)
    assert "does not say which heads" in printed(found)
    assert r"$\approx$ 71.9 \\" in latex(found)
    assert [(row["paper"], row["nearest"]) for row in as_json(found)] == [(71.9, True), (81.3, False)]
    assert "nearest" not in printed(found[:0] + make_tables([entry("none", settings=none)]))


def test_every_format_says_the_same_and_escapes_what_it_must(entry):
    found = make_tables([entry("a_b & 100%|x", 0.5, seed=0), entry("a_b & 100%|x", 0.6, seed=1), entry("weak", 0.2)])
    mean = found[0].cells(found[0].rows[0])[2].text
    assert f"**{mean}**" in markdown(found)
    assert r"a\_b & 100%\|x" in markdown(found)
    assert r"\textbf{" + mean.replace("±", r"$\pm$") + "}" in latex(found)
    assert r"a\_b \& 100\%|x" in latex(found)
    assert latex(found).count(r"\begin{tabular}{lrrrrrrr}") == 1
    assert mean in printed(found)
    table = list(csv.DictReader(io.StringIO(to_csv(found))))
    assert [row["run"] for row in table] == ["a_b & 100%|x", "weak"]
    assert f"{float(table[0]['all']):.1f} ± {float(table[0]['all_spread']):.1f}" == mean
    assert table[0]["seeds"] == "0 1"
    plain = as_json(found)[0]
    assert plain["mean"]["all"] == pytest.approx(float(table[0]["all"]))
    assert "all" in plain["best"]


def test_a_mean_is_never_over_fewer_runs_than_the_row_says(entry):
    one, other = entry(seed=0), entry(seed=1)
    last = other.result.steps[-1]
    unknown = replace(last, miou=last.miou | {"new": None})
    other = replace(other, result=replace(other.result, steps=(*other.result.steps[:-1], unknown)))
    (table,) = make_tables([one, other])
    assert table.rows[0].scores["new"].mean is None


def test_the_least_forgetting_is_the_best_and_equal_numbers_share_it(entry):
    (table,) = make_tables([entry("keeps", 0.5, keep=0.95), entry("forgets", 0.9, keep=0.3)])
    assert best(table, "forgetting") == ["keeps"]
    (table,) = make_tables([entry("one"), entry("other")])
    assert best(table) == ["one", "other"]


def test_names_are_never_read_as_markup(entry):
    found = make_tables([entry("[red]a|b[/red]")])
    assert "[red]a|b[/red]" in printed(found)
    assert r"\[red]a\|b\[/red]" in markdown(found)


@pytest.mark.parametrize("width", [80, 60])
def test_a_narrow_terminal_folds_names_and_numbers_and_drops_none(entry, width):
    names = ["ipseg, training.later_lr=low", "ipseg, training.later_lr=high", "finetune"]
    found = make_tables([entry(name, 0.5 + seed / 10, seed=seed, paper=81.6) for name in names for seed in range(3)])
    head, body = re.split("─+", printed(found, width).split("mIoU in percent")[0])
    assert "n" in head.split()
    assert re.findall("[a-z]", body) == re.findall("[a-z]", "".join(names))
    assert [line.split()[-2:] for line in body.splitlines() if "81.6" in line] == [["3", "81.6"]] * len(names)


def printed_table(table) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_unmeasured_values_of_a_run_are_dashes(make_run):
    run = make_run()
    step = replace(run.steps[0], iou=run.steps[0].iou | {"car": None})
    assert "–" in printed_table(steps_table(replace(run, steps=(step,))))
    assert next(line for line in printed_table(class_table(step)).splitlines() if "car" in line).split() == ["car", "–"]


def test_the_steps_table_has_a_row_for_every_step_with_its_classes(make_run):
    text = printed_table(steps_table(make_run()))
    assert "bus, sofa" in text
    assert [line.split()[0] for line in text.splitlines() if line.strip()[:1].isdigit()] == ["0", "1", "2"]


def test_a_class_that_one_seeds_validation_lacks_has_the_mean_of_the_others(make_run, table_of):
    def without(run, *names):
        steps = (replace(step, iou={**step.iou, **dict.fromkeys(names)}) for step in run.steps)
        return replace(run, steps=tuple(steps))

    seeds = [make_run(quality=0.4, keep=1), make_run(quality=0.6, keep=1, seed=1)]
    (row,) = table_of(without(seeds[0], "person", "car"), without(seeds[1], "car")).rows
    last = row.iou()
    assert (last["person"], last["car"]) == (pytest.approx(60), None)
    assert last["<b>dog</b>"] == pytest.approx(50)


def test_forgetting_is_known_of_classes_with_an_earlier_step_in_runs_that_were_measured_alike(make_run, table_of):
    (row,) = table_of(make_run("a", 0.6, 0.5)).rows
    lost = row.forgetting()
    assert lost["person"] == pytest.approx(45)
    assert "bus" not in lost
    extended = make_run(scenario="folder/grown")
    other = replace(extended, steps=(replace(extended.steps[0], images=9), *extended.steps[1:]))
    assert table_of(other).rows[0].forgetting() == {}
