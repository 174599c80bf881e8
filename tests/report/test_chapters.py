"""The page of several runs: every section is there, or left out with a sentence that says why."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from ipseg.report.chapter import Chapter, Gallery, Remembered
from ipseg.report.compare import Entry, sections
from ipseg.report.differences import MISSING, differences
from ipseg.report.groups import MOST, MOST_LINES, drawn, sections_of, thinly_drawn
from ipseg.report.page import render
from ipseg.report.plot_style import FAINT

SECTIONS = {
    "What was learned when", "What tells the recipes apart", "mIoU after the last step", "Side by side",
    "Step after step", "Class by class", "Look-alikes: what is taken for what", "Forgetting",
    "Which classes are in a picture", "What is remembered", "Training", "What it sees",
}  # fmt: skip


def headings(page: str) -> set[str]:
    return set(re.findall(r"<h[23][^>]*>([^<]+)</h[23]>", page))


def told(run, **settings):
    """The run with everything that a newer one stores."""
    last = run.steps[-1]
    names = list(last.iou)
    matrix = {name: {name: 60, names[i - 1]: 40} for i, name in enumerate(names)}
    accuracy = {"all": {"posterior": 0.5, "pixel": 0.25, "both": 0.5}}
    steps = [replace(step, image_accuracy=accuracy, confusion=matrix) for step in run.steps]
    return Entry(result=replace(run, steps=tuple(steps)), group=run.name, settings=settings)


@pytest.fixture(scope="module")
def chapter(gallery, make_run):
    runs = [told(make_run("ipseg"), **{"memory.size": 9, "method.gate": "none"}),
            told(make_run("<i>other</i>", 0.5, 0.5), **{"memory.size": 0})]  # fmt: skip
    scene = gallery.scenes[0]
    truth = np.zeros_like(scene.truth)
    truth[10:30, 10:30] = 1
    maps = [np.zeros_like(truth), truth, truth]
    shown = [("old/one: cat & dog", np.zeros((30, 40, 3), np.uint8))]
    return Chapter(
        section=sections(runs)[0],
        gallery=Gallery(gallery.names, [replace(scene, truth=truth, predictions={"ipseg": maps})]),
        memories={"ipseg": Remembered(pictures=9, classes={"cat": 4, "bus": 2}, shown=shown, note="1 of 9 is shown.")},
        curves={"ipseg": {"sum": [(0.5, 2.0), (1.0, 1.0)], "current": [(0.5, 2.0), (1.0, 1.0)]}},
        missing=["Memory of <i>other</i>: it keeps no pictures."],
    )


@pytest.fixture(scope="module")
def page(chapter):
    return render("Title", "Intro.", [chapter], {"seeds": "0"})


def test_a_page_with_everything_has_every_section(page):
    assert headings(page) == SECTIONS | {"What is not shown", "How it was made"}


def test_every_figure_has_an_alternative_text(page):
    assert all(re.search(r'alt="[^"]+"', tag) for tag in re.findall(r"<img [^>]*>", page) if "errors" not in tag)
    drawings = re.findall(r"<svg [^>]*>", page)
    assert len(drawings) == 6
    assert all('role="img" aria-label="' in tag for tag in drawings)
    tables = re.findall(r'<table class="heat">.*?</table>', page, re.DOTALL)
    assert tables
    assert all("<caption>" in table and 'scope="row"' in table for table in tables)


def test_a_page_loads_nothing_from_outside(page):
    addresses = re.findall(r'(?:src|href)="([^"]+)"', page) + re.findall(r"url\(([^)]*)\)", page)
    assert addresses
    assert all(address.startswith(("data:image/", "#")) for address in addresses)
    assert "@import" not in page


def test_names_are_escaped_everywhere(page):
    assert "<i>" not in page
    assert "&lt;i&gt;other&lt;/i&gt;" in page
    assert "<b>dog" not in page


def test_recipes_are_told_apart_by_shared_and_by_own_settings(page):
    table = page.split('class="recipes"')[1].split("</table>")[0]
    assert re.findall(r"<td>([^<]*)</td>", table) == ["9", "0"]
    assert "<code>method.gate=none</code>" in page


def test_the_worst_confusions_are_said_in_words(page):
    assert "40 % of car is called person; hardly any person is called car." in page


def test_what_is_remembered_is_shown_with_its_classes(page):
    assert 'alt="old/one: cat &amp; dog"' in page
    assert "ipseg: 9 pictures" in page


def test_errors_are_outlined_and_counted(page):
    assert page.count('<img class="errors" src="data:image/png') == 1  # step 0 misses it; the others are right
    assert re.findall(r'alt="ipseg after step \d: ([^"]+)"', page) == [
        "nothing, 18 % wrong", "person, 0 % wrong", "person, 0 % wrong",
    ]  # fmt: skip


def test_old_results_alone_make_a_page_that_says_what_is_missing(make_run):
    page = render("t", "", [Chapter(section=sections_of([make_run("old")])[0])], {})
    assert "What is remembered" not in headings(page)
    assert "Look-alikes: what is taken for what" not in headings(page)
    left = page.split("What is not shown")[1]
    assert "Confusion matrix: the results of old are of an earlier version" in left
    assert "Image-level accuracy: the results do not hold it." in left


def test_one_step_alone_has_no_forgetting(make_run):
    page = render("t", "", [Chapter(section=sections_of([make_run(steps=(("cat", "dog"),))])[0])], {})
    assert "Forgetting" not in headings(page)
    assert "Forgetting: no run has learned a second step." in page


def test_scenarios_are_chapters_with_ids_of_their_own(make_run):
    runs = [make_run(), make_run(scenario="scenes/2-2")]
    page = render("t", "", [Chapter(section=section) for section in sections_of(runs)], {})
    assert {"scenes/3-1 overlap", "scenes/2-2 overlap"} <= headings(page)
    ids = re.findall(r'\bid="(c\d-[^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#(c\d-[^"]+)"', page)) <= set(ids)


def test_of_more_runs_than_colours_the_best_have_them_and_the_others_thin_lines(make_run):
    poor, good = make_run("poor", 0.2), [make_run(f"run {i}", 0.5 + i / 100) for i in range(MOST)]
    half = make_run("half", 0.9, info={"steps": 5})  # few classes make a high mean
    section = sections_of([poor, half, *good])[0]
    assert [row.name for row in drawn(section)] == [run.name for run in good]
    page = render("t", "", [Chapter(section=section)], {})
    assert [row.name for row in thinly_drawn(section)] == ["poor", "half (seed 0: 3 of 5 steps)"]
    curves = page.split(">Step after step</h2>")[1].split("</section>")[0]
    assert "poor 3" in curves
    assert FAINT in curves
    assert f"Grey: rows that are drawn here alone; all else shows the {MOST} with the highest mIoU." in curves
    assert '<th scope="row">poor</th>' in page  # the table has it


def test_rows_without_even_a_thin_line_are_named(make_run):
    section = sections_of([make_run(f"run {i}", (i + 1) / 100) for i in range(MOST_LINES + 1)])[0]
    page = render("t", "", [Chapter(section=section)], {})
    assert "Lines of run 0: name fewer runs to see them." in page


def test_the_curves_say_what_their_signs_mean_where_they_have_them(make_run, gallery):
    def said(*runs):
        page = render("t", "", [Chapter(section=sections_of(runs)[0])], {})
        return page.split(">Step after step</h2>")[1].split("</section>")[0]

    plain = said(make_run(), make_run("other", 0.4))
    assert not any(word in plain for word in ("Bands:", "Dashed:", "Dots without a line:", "highest mIoU"))
    assert "Bands: one standard deviation over seeds" in said(make_run(), make_run(quality=0.4, seed=1))
    assert "Dashed: a bound" in said(make_run(), make_run("joint", steps=(gallery.names[1:],)))


def test_a_newcomer_is_told_what_iou_is_and_what_is_counted(page):
    def section(heading):
        return page.split(f">{heading}</h2>")[1].split("</section>")[0]

    assert "IoU: of the pixels that are of a class or are called it" in section("mIoU after the last step")
    assert "how many remembered pictures hold each class" in section("What is remembered")
    assert "Blue is right, red is wrong." in section("Look-alikes: what is taken for what")


def test_regions_of_a_page_have_names_that_tell_them_apart(page):
    names = re.findall(r'role="region" aria-label="([^"]+)"', page)
    assert len(names) == len(set(names))
    assert {"IoU of ipseg, class by class", "confusion matrix of ipseg"} <= set(names)


def test_a_run_that_is_not_finished_is_drawn_as_far_as_it_is(make_run):
    runs = [make_run("whole"), make_run("half", info={"steps": 5})]
    page = render("t", "", [Chapter(section=section) for section in sections_of(runs)], {})
    assert "half (seed 0: 3 of 5 steps)" in page


def test_a_matrix_of_many_classes_is_cut_and_says_so(make_run):
    names = tuple(f"class {i}" for i in range(40))
    run = told(make_run(steps=(names[:20], names[20:])))
    page = render("t", "", [Chapter(section=sections([run])[0])], {})
    assert "Shown are the 24 classes with most wrong pixels of 41." in page


def test_settings_that_some_methods_share_are_said_of_all_of_them():
    first = {"memory.size": 9, "method.gate": "none", "method.alpha": 0.4}
    found = differences([first, first | {"method.alpha": 0.9}, {"memory.size": 9, "method.head": "own"}])
    assert found.differing == (("method.alpha", ("0.4", "0.9", MISSING)),)
    assert found.partial == (((0, 1), ("method.gate=none",)), ((2,), ("method.head=own",)))


def test_steps_that_were_measured_differently_are_named_as_the_reason_for_no_forgetting(make_run):
    run = make_run(scenario="folder/grown")
    grown = replace(run, steps=(replace(run.steps[0], images=9), *run.steps[1:]))
    page = render("t", "", [Chapter(section=sections_of([grown])[0])], {})
    assert "Forgetting: the steps were measured on different pictures or classes." in page
    assert "no run has learned a second step" not in page
