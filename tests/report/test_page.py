from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from ipseg.errors import UserError
from ipseg.evaluation.results import RunResult
from ipseg.report.chapter import Chapter, Gallery, SceneRow
from ipseg.report.groups import sections_of
from ipseg.report.page import render


def render_page(title: str, intro: str, results: list[RunResult], gallery: Gallery, facts: dict[str, str]) -> str:
    """The page of results that stand for themselves."""
    return render(title, intro, [Chapter(section=section, gallery=gallery) for section in sections_of(results)], facts)


class Reader(HTMLParser):
    """What a page says and where its links lead."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.said: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "action")]

    def handle_data(self, data):
        self.said.append(data)


@pytest.fixture(scope="session")
def page(runs, gallery) -> str:
    return render_page("Title <script>", "One.\n\nTwo & three.", runs, gallery, {"seed": "0", "command": "ipseg demo"})


def test_a_page_needs_nothing_but_itself(page):
    links = Reader(page).links
    assert links
    assert all(link.startswith(("data:image/", "#")) for link in links)
    assert set(re.findall(r"https?://[^\"' <]+", page)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert all(address.startswith(("data:", "#")) for address in re.findall(r"url\(([^)]*)\)", page))
    assert "@import" not in page
    assert "file:" not in page
    assert str(Path.cwd()) not in page


def test_names_are_text_and_never_markup(page):
    tags = Reader(page).tags
    assert "i" not in tags
    assert tags.count("script") == 1
    assert "<b>dog" not in page
    assert "&lt;b&gt;dog&lt;/b&gt;" in page


def test_every_run_class_step_and_fact_is_on_the_page(page, runs, gallery):
    said = " ".join(Reader(page).said)
    for word in (*(run.name for run in runs), *gallery.names, "Step 0", "Step 2", "Two & three.", "seed", "ipseg demo"):
        assert word in said


def test_every_run_has_a_picture_for_every_step(page, runs):
    for run in runs:
        name = run.name.replace("<", "&lt;").replace(">", "&gt;")
        assert [page.count(f'alt="{name} after step {step}:') for step in range(3)] == [1, 1, 1]


def test_a_page_stays_small(runs, make_run, gallery):
    random = np.random.default_rng(0)
    blobs = np.kron(random.integers(0, 7, (8, 8)), np.ones((16, 16), int))
    image = random.integers(0, 256, (128, 128, 3), dtype=np.uint8)  # noise: the worst there is to store
    scene = SceneRow(image, blobs, {run.name: [blobs] * 6 for run in runs})
    six = tuple((name,) for name in gallery.names[1:])
    results = [make_run(run.name, steps=six) for run in runs]
    assert len(render_page("t", "i", results, Gallery(gallery.names, [scene] * 4), {}).encode()) < 1_500_000


def test_a_photograph_is_stored_smaller_than_it_came(runs, gallery):
    image = np.full((900, 1600, 3), 90, np.uint8)
    labels = np.full((900, 1600), 2)
    page = render_page("t", "", runs, Gallery(gallery.names, [SceneRow(image, labels, {})]), {})
    assert "data:image/jpeg" in page
    assert 'alt="truth: car"' in page


def test_a_run_that_learned_at_once_stands_below_the_last_step(runs, gallery, make_run):
    scene = gallery.scenes[0]
    joint = make_run("joint", steps=(gallery.names[1:],))
    scene = replace(scene, predictions={**scene.predictions, "joint": [scene.truth]})
    page = render_page("t", "", [*runs, joint], Gallery(gallery.names, [scene]), {})
    assert 'alt="joint after step 2:' in page


def test_the_figure_of_an_unfinished_run_says_that_it_is_not_the_last(runs, gallery, make_run):
    half = make_run("half", info={"steps": 7})
    assert render_page("t", "", [*runs, half], Gallery(gallery.names), {}).count("so far, of the classes") == 1
    assert "so far, of the classes" not in render_page("t", "", runs, Gallery(gallery.names), {})


def test_a_page_without_pictures_or_results_is_still_a_page():
    page = render_page("Nothing yet", "", [], Gallery(["background"]), {})
    assert "Nothing yet" in page
    assert "What it sees" not in page


def test_a_prediction_of_another_size_is_refused(runs, gallery):
    scene = replace(gallery.scenes[0], predictions={"ipseg": [np.zeros((3, 3), int)]})
    with pytest.raises(UserError, match="do not fit"):
        render_page("t", "", runs, Gallery(gallery.names, [scene]), {})


def test_the_legend_of_the_pictures_names_only_what_they_show(runs, gallery):
    image, labels = np.zeros((8, 8, 3), np.uint8), np.full((8, 8), 2)
    page = render_page("t", "", runs, Gallery(gallery.names, [SceneRow(image, labels, {})]), {})
    legend = page.split("What it sees")[1].split("<label")[0]
    assert "</span>car" in legend
    assert "</span>person" not in legend


def test_headings_go_down_one_level_at_a_time(page):
    levels = [int(tag[1]) for tag in Reader(page).tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_what_may_be_cut_off_is_reached_by_keyboard_and_has_a_name(page):
    boxes = re.findall(r'<div class="[^"]*scroll"[^>]*>', page)
    assert boxes
    assert all('tabindex="0" role="region" aria-label="' in box for box in boxes)


def test_a_large_figure_never_stands_without_its_percent_sign(runs, gallery, make_run):
    page = render_page("t", "", [*runs, make_run("ipseg", 0.4, seed=1)], Gallery(gallery.names), {})
    figures = re.findall(r'<div class="figure">(.*?)</div>', page)
    assert [re.sub(r"[\d.]+", "N", figure) for figure in figures] == [
        "<b>N</b><wbr><small>± N %</small>",  # too long for a narrow card: it breaks before ±
        "<b>N</b><small>%</small>",
        "<b>N</b><small>%</small>",
    ]
    rule = re.search(r"\.headlines \.figure {([^}]*)}", page)
    assert rule
    assert "white-space: nowrap" in rule[1]
    assert "inline-block" not in page.split(".headlines .figure small {")[1].split("}")[0]  # breaks go around such


def test_a_mark_never_stands_on_another_line_than_its_name(page):
    rule = re.search(r"^\.mark {([^}]*)}", page, re.MULTILINE)
    assert rule
    assert "display" not in rule[1]  # a line may break beside an inline-block, not beside an inline


def test_a_plot_that_is_taller_than_a_sheet_is_printed_whole(page):
    assert ".plots svg { max-height: 23cm; }" in page.split("@media print")[1]
