from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from ipseg.report.plots import iou_per_class, miou_over_steps

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
    run = make_run("mine")
    assert f"mine {100 * run.steps[-1].miou['all']:.1f}" in words(miou_over_steps([run]))


@pytest.mark.parametrize(("runs_n", "classes"), [(1, 2), (8, 2), (8, 150)])
def test_plots_hold_one_to_eight_runs_and_two_to_150_classes(runs_n, classes, make_run):
    names = tuple(f"class {i}" for i in range(classes))
    results = [make_run(f"run {i}", steps=(names[: classes // 2], names[classes // 2 :])) for i in range(runs_n)]
    text = words(iou_per_class(results))
    assert all(name in text for name in names)
    assert f"run {runs_n - 1}" in words(miou_over_steps(results))


def test_a_run_that_learned_at_once_reaches_the_last_step(make_run, gallery):
    at_once = make_run("joint", steps=(gallery.names[1:],))
    assert "joint" in words(miou_over_steps([make_run(), at_once]))


def test_a_dollar_in_a_name_is_no_formula(make_run):
    assert "a$b$c" in words(miou_over_steps([make_run("a$b$c")]))
