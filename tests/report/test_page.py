"""The page: every section is there or named as missing; names are text; it needs nothing but itself."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from ipseg.errors import UserError
from ipseg.report.compare import ComparedRun, make_tables
from ipseg.report.page import Chapter, Gallery, GalleryImage, differing_settings, expected, render

SECTIONS = ["Results", "Class IoU", "Confusions", "Predictions", "Settings that differ", "Not shown"]


class Reader(HTMLParser):
    """Text, tags, headings and links of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.headings: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "action")]

    def handle_data(self, data):
        self.text.append(data)
        if self.tags and re.fullmatch("h[1-3]", self.tags[-1]) and data.strip():
            self.headings.append(data)


def with_everything(run, **settings):
    """The run with all that a new one stores."""
    names = list(run.steps[-1].iou)
    matrix = {name: {name: 60, names[i - 1]: 40} for i, name in enumerate(names)}
    accuracy = {"all": {"posterior": 0.5, "pixel": 0.25, "both": 0.5}}
    steps = [replace(step, image_accuracy=accuracy, confusion=matrix) for step in run.steps]
    return ComparedRun(result=replace(run, steps=tuple(steps)), group=run.name, settings=settings)


@pytest.fixture(scope="module")
def chapter(gallery, make_run):
    runs = [with_everything(make_run("ipseg"), **{"memory.size": 9, "method.alpha_nf": 0.4}),
            with_everything(make_run("<i>other</i>", 0.5, 0.5), **{"memory.size": 0})]  # fmt: skip
    image = gallery.images[0]
    truth = np.zeros_like(image.truth)
    truth[10:30, 10:30] = 1
    maps = {0: np.zeros_like(truth), 1: truth, 2: truth}
    return Chapter(
        table=make_tables(runs)[0],
        gallery=replace(gallery, images=[replace(image, truth=truth, predictions={"ipseg": maps})]),
        missing=["Predictions of <i>other</i>: its weights are not there."],
    )


@pytest.fixture(scope="module")
def page(chapter) -> str:
    return render("Title <script>", [chapter], {"seeds": "0", "command": "ipseg demo"}, intro="Two & three.")


def alone(make_run, *results, **fields) -> str:
    """A page of results without anything beside them."""
    runs = [ComparedRun(result=result, group=result.name) for result in results]
    return render("t", [Chapter(table=table, **fields) for table in make_tables(runs)], {})


def test_results_come_first_and_provenance_last(page):
    assert Reader(page).headings == ["Title <script>", "scenes/3-1 overlap", *SECTIONS, "Provenance"]


def test_a_page_needs_nothing_but_itself(page):
    links = Reader(page).links
    assert links
    assert all(link.startswith(("data:image/", "#")) for link in links)
    assert not re.findall(r"https?://", page)
    assert all(address.startswith(("data:", "#")) for address in re.findall(r"url\(([^)]*)\)", page))
    assert "@import" not in page
    assert "file:" not in page
    assert str(Path.cwd()) not in page


def test_names_are_text_and_never_markup(page):
    assert not {"i", "script"} & set(Reader(page).tags)
    assert "&lt;i&gt;other&lt;/i&gt;" in page
    assert "<b>dog" not in page
    assert "&lt;b&gt;dog&lt;/b&gt;" in page


def test_every_run_class_and_fact_is_on_the_page(page, chapter):
    text = " ".join(Reader(page).text)
    for word in (*(row.name for row in chapter.table.rows), *chapter.gallery.names, "Two & three.", "ipseg demo"):
        assert word in text


def test_every_image_and_figure_has_an_alternative_text(page):
    images = re.findall(r"<img [^>]*>", page)
    figures = [tag for tag in images if 'src="data:image/svg+xml' in tag]
    assert (len(images), len(figures)) == (5 + 6, 6)  # four curves, two matrices
    assert all(re.search(r'alt="[^"]+"', tag) for tag in images)


def test_the_alternative_text_of_curves_has_the_numbers(make_run):
    run = make_run("a <b> & c")
    numbers = ", ".join(f"{100 * step.miou['all']:.1f}" for step in run.steps)
    assert f'a &lt;b&gt; &amp; c {numbers}"' in alone(make_run, run)


def test_image_level_accuracy_has_a_figure_for_each_reading_that_some_method_has(make_run):
    def with_accuracy(run, **readings):
        return replace(run, steps=tuple(replace(step, image_accuracy={"all": readings}) for step in run.steps))

    one = with_accuracy(make_run("posterior"), posterior=0.5, pixel=None, both=0.25)
    page = alone(make_run, one, with_accuracy(make_run("plain"), posterior=None, pixel=None, both=0.75))
    drawn = dict(re.findall(r'alt="image-level accuracy of ([^,]*), %, after every step. ([^"]*)"', page))
    assert set(drawn) == {"the image posterior", "the final prediction"}
    assert "plain" not in drawn["the image posterior"]
    assert "plain 75.0, 75.0, 75.0" in drawn["the final prediction"]


def test_wide_content_is_reached_by_keyboard_and_has_a_name_of_its_own(page):
    boxes = re.findall(r'<div class="[^"]*scroll"([^>]*)>', page)
    assert boxes
    assert all('tabindex="0" role="region" aria-label="' in box for box in boxes)
    assert len(set(boxes)) == len(boxes)


def test_headings_go_down_one_level_at_a_time(page):
    levels = [int(tag[1]) for tag in Reader(page).tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_every_prediction_has_its_classes_and_its_error(page):
    assert re.findall(r'alt="ipseg after step \d: ([^"]+)"', page) == [
        "nothing, 18 % wrong", "person, 0 % wrong", "person, 0 % wrong",
    ]  # fmt: skip


def test_a_class_that_is_not_learned_yet_should_be_background_or_is_ignored():
    truth, names = np.array([[0, 1, 2, 255]], np.uint8), ("background", "cow", "horse")
    assert expected(truth, names, {"background": 1, "cow": 1}).tolist() == [[0, 1, 0, 255]]
    assert expected(truth, names, {"background": 1, "cow": 1}, unseen=255).tolist() == [[0, 1, 255, 255]]


def test_the_classes_have_their_iou_their_step_and_what_they_lost(make_run):
    table = alone(make_run, make_run("a", 0.6, 0.5)).split('class="iou"')[1].split("</table>")[0]
    rows = [re.findall(r">([^<>\n]+)<", row) for row in table.split("<tr>")[2:]]
    found = {row[0]: [text.strip() for text in row[1:] if text.strip()] for row in rows}
    assert found["person"] == ["0", "15.0", "−45.0"]
    assert found["sofa"] == ["2", "60.0"]


def test_the_largest_errors_are_listed(page):
    assert "car → person 40&nbsp;%" in page


def test_settings_that_one_method_alone_has_are_no_difference(page):
    table = page.split('class="settings"')[1].split("</table>")[0]
    assert re.findall(r"<td>([^<]*)</td>", table) == ["9", "0"]
    assert differing_settings([{"a": True}, {"a": None}, {}]) == [("a", ["true", "null", "–"])]


def test_old_results_alone_make_a_page_that_says_what_is_missing(make_run):
    page = alone(make_run, make_run("old"))
    assert Reader(page).headings == ["t", "scenes/3-1 overlap", "Results", "Class IoU", "Not shown"]
    missing = page.split("Not shown")[1]
    assert "Confusion matrix of old: the results do not have it." in missing
    assert "Image-level accuracy: the results do not have it." in missing


def test_scenarios_are_chapters(make_run):
    page = alone(make_run, make_run(), make_run(scenario="scenes/2-2"))
    assert {"scenes/3-1 overlap", "scenes/2-2 overlap"} <= set(Reader(page).headings)


def test_the_curves_explain_the_marks_that_they_have(make_run, joint, table_of):
    def explained(*results):
        page = render("t", [Chapter(table=table_of(*results))], {})
        return page.split(">Results<")[1].split("<h3>")[0]

    plain = explained(make_run(), make_run("other", 0.4))
    assert not any(word in plain for word in ("Bands:", "Dashed:", "Dots without"))
    assert "Bands: one standard deviation over seeds" in explained(make_run(), make_run(quality=0.4, seed=1))
    assert "Dashed: a bound" in explained(make_run(), joint)


def test_joint_training_and_unfinished_runs_are_on_the_page(make_run, joint, table_of):
    page = render("t", [Chapter(table=table_of(make_run(), make_run("half", info={"steps": 5}), joint))], {})
    assert "half (seed 0: 3 of 5 steps)" in page
    assert "joint †" in page


def test_rows_that_are_not_plotted_are_in_the_table_and_counted(make_run, table_of):
    page = render("t", [Chapter(table=table_of(*(make_run(f"run {i}", (i + 1) / 100) for i in range(9))))], {})
    assert "Figures of all rows: they show 8 of them." in page
    assert ">run 0</th>" in page


def test_a_matrix_of_many_classes_is_cut_and_says_so(make_run):
    names = tuple(f"class {i}" for i in range(40))
    run = with_everything(make_run(steps=(names[:20], names[20:])))
    page = render("t", [Chapter(table=make_tables([run])[0])], {})
    assert "24 of 41 classes, those with most wrong pixels" in page


def test_a_page_stays_small(runs, gallery, table_of):
    random = np.random.default_rng(0)
    blobs = np.kron(random.integers(0, 7, (8, 8)), np.ones((16, 16), int))
    noise = random.integers(0, 256, (128, 128, 3), dtype=np.uint8)  # the worst there is to store
    maps = {run.name: dict.fromkeys(range(3), blobs) for run in runs}
    images = [GalleryImage(f"image {i}", noise, blobs, maps) for i in range(4)]
    page = render("t", [Chapter(table=table_of(*runs), gallery=Gallery(gallery.names, images))], {})
    assert len(page.encode()) < 4_000_000


def test_a_photograph_is_scaled_down_and_the_legend_names_only_what_is_shown(runs, gallery, table_of):
    image = GalleryImage("photo", np.full((900, 1600, 3), 90, np.uint8), np.full((900, 1600), 2))
    page = render("t", [Chapter(table=table_of(*runs), gallery=Gallery(gallery.names, [image]))], {})
    assert 'alt="ground truth: car"' in page
    legend = page.split('class="legend"')[1].split("</div>")[0]
    assert "car" in legend
    assert "person" not in legend
    assert len(page) < 400_000


def test_a_prediction_of_another_size_is_refused(runs, gallery, table_of):
    image = replace(gallery.images[0], predictions={"ipseg": {0: np.zeros((3, 3), int)}})
    with pytest.raises(UserError, match="do not fit"):
        render("t", [Chapter(table=table_of(*runs), gallery=replace(gallery, images=[image]))], {})


def test_a_page_without_results_is_still_a_page():
    page = render("Nothing yet", [], {})
    assert "Nothing yet" in page
    assert "Predictions" not in page


def test_a_mark_never_stands_on_another_line_than_its_name(page):
    rule = re.search(r"^\.mark {([^}]*)}", page, re.MULTILINE)
    assert rule
    assert "display" not in rule[1]  # a line may break beside an inline-block, not beside an inline
