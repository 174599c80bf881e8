from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from ipseg.report import plots
from ipseg.report.groups import drawn, sections_of
from ipseg.report.plot_style import label_ends, new_figure, run_colours, short, styled, svg


def miou_over_steps(results):
    return plots.miou_over_steps(drawn(sections_of(results)[0]))


def iou_per_class(results):
    return plots.iou_per_class(drawn(sections_of(results)[0]))


PLOTS = [miou_over_steps, iou_per_class]


def words(svg: str) -> str:
    return " ".join(ElementTree.fromstring(svg).itertext())


@pytest.mark.parametrize("plot", PLOTS)
def test_a_plot_is_valid_xml_and_names_every_run(plot, runs):
    svg = plot(runs)
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert all(run.name in words(svg) for run in runs)


@pytest.mark.parametrize("plot", PLOTS)
def test_a_plot_refers_to_nothing_outside_itself(plot, runs):
    svg = plot(runs)
    assert "<metadata" not in svg
    ids = re.findall(r'<\w+ id="([^"]+)"', svg)
    referred = re.findall(r'(?:href="|url\()#([^")]+)', svg)
    assert set(referred) <= set(ids)
    assert re.findall(r'href="(?!#)', svg) == []


def test_two_plots_in_one_page_share_no_id(runs):
    first, second = (set(re.findall(r'\bid="([^"]+)"', plot(runs))) for plot in PLOTS)
    assert first
    assert not first & second


@pytest.mark.parametrize("plot", PLOTS)
def test_the_same_results_give_the_same_plot(plot, runs):
    assert plot(runs) == plot(runs)


def test_every_class_is_in_the_plot_of_classes(runs, gallery):
    text = words(iou_per_class(runs))
    assert all(name in text for name in gallery.names)


def test_a_line_ends_with_its_run_and_its_number(make_run):
    run, number = make_run("mine"), f"{100 * make_run('mine').steps[-1].miou['all']:.1f}"
    assert f"mine {number}" in words(miou_over_steps([run, make_run("other", 0.4)]))
    alone = words(miou_over_steps([run]))
    assert number in alone
    assert "mine" not in alone  # nobody asks which run it is


@pytest.mark.parametrize(("runs_n", "classes"), [(1, 2), (8, 2), (8, 150)])
def test_plots_hold_one_to_eight_runs_and_two_to_150_classes(runs_n, classes, make_run):
    names = tuple(f"class {i}" for i in range(classes))
    results = [make_run(f"run {i}", steps=(names[: classes // 2], names[classes // 2 :])) for i in range(runs_n)]
    text = words(iou_per_class(results))
    assert all(name in text for name in names)
    assert (f"run {runs_n - 1}" in words(miou_over_steps(results))) == (runs_n > 1)


def test_a_run_that_learned_at_once_reaches_the_last_step(make_run, gallery):
    at_once = make_run("joint", steps=(gallery.names[1:],))
    assert "joint" in words(miou_over_steps([make_run(), at_once]))


def test_a_dollar_in_a_name_is_no_formula(make_run):
    assert "a$b$c" in words(miou_over_steps([make_run("a$b$c"), make_run("other", 0.4)]))


def test_seeds_are_one_line_with_their_mean_and_a_band(make_run):
    one, two = make_run("mine", 0.6), make_run("mine", 0.4, seed=1)
    svg = miou_over_steps([one, two, make_run("other", 0.3)])
    mean = 50 * sum(run.steps[-1].miou["all"] for run in (one, two))
    assert words(svg).count("mine") == 1
    assert f"mine {mean:.1f}" in words(svg)
    assert "FillBetween" in svg


def test_a_plot_tells_its_numbers_to_those_who_do_not_see_it(make_run):
    run = make_run("a <b> & c")
    label = ElementTree.fromstring(miou_over_steps([run])).get("aria-label")
    assert label.endswith("a <b> & c " + ", ".join(f"{100 * step.miou['all']:.1f}" for step in run.steps))


def test_image_accuracy_has_a_plot_for_each_reading_that_some_method_has(make_run):
    def with_accuracy(run, **readings):
        steps = [replace(step, image_accuracy={"all": readings}) for step in run.steps]
        return replace(run, steps=tuple(steps))

    rows = drawn(
        sections_of(
            [
                with_accuracy(make_run("posterior"), posterior=0.5, pixel=None, both=0.25),
                with_accuracy(make_run("plain"), posterior=None, pixel=None, both=0.75),
            ]
        )[0]
    )
    assert plots.image_accuracy(rows, "pixel") is None
    assert "plain" not in words(plots.image_accuracy(rows, "posterior"))
    assert "plain 75.0" in words(plots.image_accuracy(rows, "both"))


def test_a_training_curve_names_its_losses_and_its_steps(make_run):
    (row,) = drawn(sections_of([make_run("mine")])[0])
    curves = {"sum": [(0.5, 3.0), (1.5, 2.0)], "image": [(0.5, 1.0), (1.5, 1.0)], "current": [(0.5, 2.0), (1.5, 1.0)]}
    text = words(plots.training_curve(row, curves))
    assert all(word in text for word in ("mine", "sum", "image", "current", "step 0", "step 1"))


def test_a_loss_that_was_logged_once_is_a_point(make_run):
    (row,) = drawn(sections_of([make_run("joint")])[0])
    often = plots.training_curve(row, {"sum": [(i / 20, 1.0) for i in range(20)]})
    assert plots.training_curve(row, {"sum": [(1.0, 3.0)]}).count("<use") > often.count("<use")


def test_a_known_method_has_its_colour_whatever_stands_beside_it(make_run):
    def colour(*names: str) -> str:
        rows = drawn(sections_of([make_run(name) for name in names])[0])
        return next(row.colour for row in rows if row.name == "ipseg")

    assert colour("ablated", "finetune", "ipseg") == colour("ipseg", "ssul_m") == colour("ipseg")
    many = [f"run {i}" for i in range(7)]
    assert len(set(run_colours([*many, "ipseg"]))) == 8


def test_a_long_name_loses_its_middle_and_keeps_the_end_that_tells_it_apart():
    assert short("ipseg, training.later_lr=0.4") == "ipseg, tra…ater_lr=0.4"
    assert short("ipseg, training.$later_lr$=4", 12) == r"ipseg…_lr\$=4"
    assert short("x" * 22) == "x" * 22


@pytest.mark.parametrize("height", [0, 40, 99.5, 100])
def test_names_at_the_ends_of_lines_stay_beside_the_plot_and_can_be_read(height):
    with styled():
        figure, axes = new_figure(3.1)
        axes.set_ylim(0, 100)
        axes.set_title("the title", loc="left")
        label_ends(axes, [(height, f"run {i}", "red") for i in range(8)])
        figure.draw_without_rendering()
    names = [text.get_window_extent() for text in axes.texts if text.get_text().startswith("run")]
    assert min(name.y0 for name in names) >= axes.bbox.y0
    assert max(name.y1 for name in names) <= axes.bbox.y1
    assert all(upper.y0 > lower.y0 + 0.7 * lower.height for lower, upper in pairwise(names))


def test_letters_that_the_font_lacks_are_drawn_without_a_warning():
    with styled():
        figure, axes = new_figure(2)
        axes.set_title("日本")
        assert "日本" in words(svg(figure, ""))


def test_numbers_that_do_not_belong_together_are_marks_without_a_line(make_run):
    def lines(**fields):
        runs = [make_run("mine", quality, seed=seed, **fields) for seed, quality in enumerate((0.5, 0.6))]
        other = [replace(run, steps=(replace(run.steps[0], images=9), *run.steps[1:])) for run in runs]
        axes = Figure().add_subplot()
        plots.draw_miou_over_steps(axes, drawn(sections_of(other)[0]))
        (line,) = axes.lines
        return line.get_linestyle(), line.get_marker(), len(axes.collections)

    assert lines() == ("-", "o", 1)
    assert lines(scenario="folder/grown") == ("None", "o", 0)


def test_a_run_alone_needs_no_legend_for_its_classes(make_run):
    alone = words(iou_per_class([make_run("mine")]))
    assert "mine" not in alone
    assert plots.CLASSES_TITLE in alone


def test_a_narrow_plot_of_many_steps_leaves_room_between_their_numbers(make_run):
    run = make_run("a method with a long name", steps=tuple((f"class {i}",) for i in range(11)))
    accurate = [replace(step, image_accuracy={"all": {"both": 0.5}}) for step in run.steps]
    rows = drawn(sections_of([replace(run, steps=tuple(accurate)), make_run("other", steps=(("class 0",),))])[0])
    ticks = re.findall(r">(\d+)</text>", plots.image_accuracy(rows, "both").split("matplotlib.axis_2")[0])
    assert ticks == ["0", "2", "4", "6", "8", "10"]
    assert re.findall(r">(10?)</text>", miou_over_steps([run]).split("matplotlib.axis_2")[0]) == ["1", "10"]


@pytest.mark.parametrize(("classes", "scales"), [(20, 1), (80, 2)])
def test_a_tall_plot_of_classes_has_its_scale_at_both_ends(classes, scales, make_run):
    names = tuple(f"class {i}" for i in range(classes))
    assert iou_per_class([make_run(steps=(names,))]).count(">60</text>") == scales


def test_losses_that_have_no_sum_are_drawn_without_it(make_run):
    (row,) = drawn(sections_of([make_run("mine")])[0])
    text = words(plots.training_curve(row, {"image": [(0.5, 1.0)], "current": [(0.5, 2.0)]}))
    assert "current" in text
    assert "sum" not in text
