"""Figures: what they show, and that they stand in a page without anything else."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
from matplotlib.figure import Figure

from ipseg.report.confusion import Confusion
from ipseg.report.figures import (
    COLORS,
    all_classes,
    confusion_map,
    curves,
    draw_curves,
    plotted,
    run_colors,
    short,
    svg,
)


def figure(table) -> Figure:
    return curves(table.rows, all_classes, "mIoU")


def words(drawn: Figure) -> str:
    return " ".join(ElementTree.fromstring(svg(drawn)).itertext())


def test_a_figure_is_valid_xml_and_refers_to_nothing_outside(runs, table_of):
    confusion = Confusion.of_counts(("background", "cow"), np.array([[90, 5], [30, 70]]))
    for text in (svg(figure(table_of(*runs))), svg(confusion_map(confusion))):
        assert ElementTree.fromstring(text).tag.endswith("svg")
        assert all(link.startswith(("#", "data:image/png")) for link in re.findall(r'href="([^"]+)', text))


def test_the_curves_name_every_run_with_its_last_value(make_run, table_of):
    table = table_of(make_run("mine"), make_run("a <b> & c", 0.4))
    text = words(figure(table))
    for row in table.rows:
        assert f"{row.name} {100 * row.scores['all'].mean:.1f}" in text


def test_seeds_are_one_line_with_their_mean_and_a_band(make_run, table_of):
    one, two = make_run("mine", 0.6), make_run("mine", 0.4, seed=1)
    drawn = figure(table_of(one, two, make_run("other", 0.3)))
    mean = 50 * sum(run.steps[-1].miou["all"] for run in (one, two))
    assert words(drawn).count("mine") == 1
    assert f"mine {mean:.1f}" in words(drawn)
    assert "FillBetween" in svg(drawn)


def lines(table):
    axes = Figure().add_subplot()
    draw_curves(axes, table.rows, all_classes, "")
    return axes


def test_joint_training_is_a_level_dashed_line_up_to_the_last_step(make_run, joint, table_of):
    ipseg, bound = lines(table_of(make_run(), joint)).lines
    assert (ipseg.get_linestyle(), bound.get_linestyle()) == ("-", "--")
    assert list(bound.get_xdata()) == [0, 2]
    assert len(set(bound.get_ydata())) == 1


def test_numbers_that_do_not_belong_together_are_marks_without_a_line(make_run, table_of):
    runs = [make_run("mine", quality, seed=seed, scenario="x/grown") for seed, quality in enumerate((0.5, 0.6))]
    other = [replace(run, steps=(replace(run.steps[0], images=9), *run.steps[1:])) for run in runs]
    axes = lines(table_of(*other))
    (line,) = axes.lines
    assert (line.get_linestyle(), line.get_marker(), len(axes.collections)) == ("None", "o", 0)


def test_the_best_rows_are_plotted_where_there_are_more_than_colors(make_run, table_of):
    poor, good = make_run("poor", 0.2), [make_run(f"run {i}", 0.5 + i / 100) for i in range(len(COLORS))]
    half = make_run("half", 0.9, info={"steps": 5})  # few classes make a high mean
    assert [row.name for row in plotted(table_of(poor, half, *good))] == [run.name for run in good]


def test_a_confusion_matrix_prints_what_is_not_negligible():
    confusion = Confusion.of_counts(("background", "cow"), np.array([[9999, 1], [30, 70]]))
    cells = re.findall(r">(\d+)</text>", svg(confusion_map(confusion)))
    assert cells == ["100", "30", "70"]


def test_a_known_method_has_its_color_whatever_stands_beside_it():
    def color(*names: str) -> str:
        return run_colors(names)[names.index("ipseg")]

    assert color("ablated", "finetune", "ipseg") == color("ipseg", "ssul_m") == color("ipseg")
    assert len(set(run_colors([*(f"run {i}" for i in range(7)), "ipseg"]))) == 8


def test_a_long_name_loses_its_middle_and_is_never_a_formula(make_run, table_of):
    assert short("ipseg, training.$later_lr$=4", 12) == r"ipseg…_lr\$=4"
    assert short("x" * 22) == "x" * 22
    assert "a$b$c" in words(figure(table_of(make_run("a$b$c"), make_run("other", 0.4))))


def test_letters_that_the_font_lacks_are_drawn_without_a_warning(make_run, table_of):
    assert "日本" in words(figure(table_of(make_run("日本"))))
