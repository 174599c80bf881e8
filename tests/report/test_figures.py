"""Figures: what they show, their alternative texts, and that they stand in a page without anything else."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from ipseg.errors import UserError
from ipseg.report.compare import Run, make_tables
from ipseg.report.confusion import Confusion
from ipseg.report.figures import (
    COLORS,
    all_classes,
    confusion_map,
    draw_curves,
    image_accuracy,
    iou_map,
    loss_curves,
    miou_curves,
    new_figure,
    paper_panels,
    paper_rows,
    plotted,
    run_colors,
    save_paper_figure,
    short,
    styled,
    svg,
)


def words(figure: str) -> str:
    return " ".join(ElementTree.fromstring(figure).itertext())


def alternative(figure: str) -> str:
    return ElementTree.fromstring(figure).get("aria-label") or ""


@pytest.fixture(scope="module")
def figures(runs, table_of) -> list[str]:
    rows = table_of(*runs).rows
    confusion = Confusion.of_counts(("background", "cow"), np.array([[90, 5], [30, 70]]))
    losses = {"sum": [(0.5, 3.0), (1.5, 2.0)], "image": [(0.5, 1.0), (1.5, 1.0)]}
    return [
        miou_curves(rows),
        iou_map(rows[0], ["person", "cat"]),
        confusion_map(rows[0], confusion),
        loss_curves(rows[0], losses),
    ]


def test_figures_are_valid_xml_and_refer_to_nothing_outside(figures):
    for figure in figures:
        assert ElementTree.fromstring(figure).tag.endswith("svg")
        assert "<metadata" not in figure
        referred = re.findall(r'(?:href="|url\()#([^")]+)', figure)
        assert set(referred) <= set(re.findall(r'<\w+ id="([^"]+)"', figure))
        assert all(link.startswith(("#", "data:image/png")) for link in re.findall(r'href="([^"]+)', figure))


def test_figures_of_one_page_share_no_id(figures):
    ids = [set(re.findall(r'\bid="([^"]+)"', figure)) for figure in figures]
    assert len(set().union(*ids)) == sum(map(len, ids))


def test_the_same_results_give_the_same_figure(runs, table_of):
    rows = table_of(*runs).rows
    assert miou_curves(rows) == miou_curves(rows)


def test_the_curves_name_every_run_with_its_last_value(make_run, table_of):
    rows = table_of(make_run("mine"), make_run("a <b> & c", 0.4)).rows
    text = words(miou_curves(rows))
    for row in rows:
        assert f"{row.name} {100 * row.means['all']:.1f}" in text


def test_the_alternative_text_has_the_numbers(make_run, table_of):
    run = make_run("a <b> & c")
    numbers = ", ".join(f"{100 * step.miou['all']:.1f}" for step in run.steps)
    assert alternative(miou_curves(table_of(run).rows)).endswith(f"a <b> & c {numbers}")


def test_seeds_are_one_line_with_their_mean_and_a_band(make_run, table_of):
    one, two = make_run("mine", 0.6), make_run("mine", 0.4, seed=1)
    figure = miou_curves(table_of(one, two, make_run("other", 0.3)).rows)
    mean = 50 * sum(run.steps[-1].miou["all"] for run in (one, two))
    assert words(figure).count("mine") == 1
    assert f"mine {mean:.1f}" in words(figure)
    assert "FillBetween" in figure


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


def test_image_level_accuracy_has_a_figure_for_each_reading_that_some_method_has(make_run, table_of):
    def with_accuracy(run, **readings):
        return replace(run, steps=tuple(replace(step, image_accuracy={"all": readings}) for step in run.steps))

    rows = table_of(
        with_accuracy(make_run("posterior"), posterior=0.5, pixel=None, both=0.25),
        with_accuracy(make_run("plain"), posterior=None, pixel=None, both=0.75),
    ).rows
    assert image_accuracy(rows, "pixel") is None
    assert "plain" not in words(image_accuracy(rows, "posterior"))
    assert "plain 75.0" in words(image_accuracy(rows, "both"))


def test_a_class_has_a_cell_after_every_step_from_its_own_on(make_run, table_of):
    (row,) = table_of(make_run(quality=0.5, keep=0.5)).rows
    cells = re.findall(r">(\d\d)</text>", iou_map(row, ["background", "person", "cat", "sofa"]))
    assert cells == ["90", "90", "90", "50", "25", "12", "50", "25", "50"]


def test_a_confusion_matrix_prints_what_is_not_negligible(make_run, table_of):
    (row,) = table_of(make_run()).rows
    confusion = Confusion.of_counts(("background", "cow"), np.array([[9999, 1], [30, 70]]))
    cells = re.findall(r">(\d+)</text>", confusion_map(row, confusion))
    assert cells == ["100", "30", "70"]


def test_losses_are_named_with_their_steps_and_a_single_one_is_a_point(make_run, table_of):
    (row,) = table_of(make_run("mine")).rows
    text = words(loss_curves(row, {"sum": [(0.5, 3.0), (1.5, 2.0)], "image": [(0.5, 1.0)]}))
    assert all(word in text for word in ("mine", "sum", "image", "step"))
    often = loss_curves(row, {"sum": [(i / 20, 1.0) for i in range(1, 20)]})
    assert loss_curves(row, {"sum": [(1.0, 3.0)]}).count("<use") > often.count("<use")


def test_a_known_method_has_its_color_whatever_stands_beside_it():
    def color(*names: str) -> str:
        return run_colors(names)[names.index("ipseg")]

    assert color("ablated", "finetune", "ipseg") == color("ipseg", "ssul_m") == color("ipseg")
    assert len(set(run_colors([*(f"run {i}" for i in range(7)), "ipseg"]))) == 8


def test_a_long_name_loses_its_middle_and_is_never_a_formula(make_run, table_of):
    assert short("ipseg, training.$later_lr$=4", 12) == r"ipseg…_lr\$=4"
    assert short("x" * 22) == "x" * 22
    assert "a$b$c" in words(miou_curves(table_of(make_run("a$b$c"), make_run("other", 0.4)).rows))


def test_letters_that_the_font_lacks_are_drawn_without_a_warning():
    with styled():
        figure, axes = new_figure(2)
        axes.set_title("日本")
        assert "日本" in words(svg(figure, ""))


# ---- the paper's figure ---------------------------------------------------------------------------------------------


@pytest.fixture
def ours(make_run):
    runs = [
        make_run("mine", scenario="voc/15-1"),
        make_run("disjoint", scenario="voc/15-1", setting="disjoint"),
        make_run("other", scenario="voc/15-1"),
        make_run("drawn"),
    ]
    papers = [81.5, 80.0, None, 70.0]
    return make_tables([Run(result=r, group=r.name, paper=paper) for r, paper in zip(runs, papers, strict=True)])


def test_only_runs_of_the_papers_setting_stand_beside_it(ours):
    assert [(scenario, row.name) for scenario, row in paper_rows(ours)] == [("15-1", "mine")]


def test_the_panels_hold_the_papers_numbers_and_ours(ours, make_run):
    over_scenarios, two_two, fifteen_one = map(words, paper_panels(ours))
    assert all("IPSeg 72.4" in panel and "SSUL-M 47.6" in panel for panel in (over_scenarios, two_two))
    assert "IPSeg 81.5" in fifteen_one
    value = f"mine (ours) {100 * make_run().steps[-1].miou['all']:.1f}"
    assert f"{value} at 15-1" in over_scenarios  # where it ends is not the last scenario
    assert f"{value} at 2" in fifteen_one
    assert "ours" not in two_two


def test_without_a_run_of_ours_a_page_has_no_panels(make_run, table_of):
    assert paper_panels([table_of(make_run())]) == []


def test_the_figure_is_written_as_svg_or_png_and_as_nothing_else(ours, tmp_path):
    save_paper_figure(tmp_path / "a.svg", ours)
    save_paper_figure(tmp_path / "a.png")
    assert "mine (ours)" in (tmp_path / "a.svg").read_text()
    with Image.open(tmp_path / "a.png") as drawn:
        assert drawn.size[0] > 2000
    with pytest.raises(UserError, match=r"\.svg or \.png"):
        save_paper_figure(tmp_path / "a.pdf")
    with pytest.raises(UserError, match="missing"):
        save_paper_figure(tmp_path / "nowhere" / "a.png")
