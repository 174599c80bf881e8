"""The paper's figure: its numbers, and runs of ours only where they belong."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from PIL import Image

from ipseg.errors import UserError
from ipseg.report.compare import Entry, sections
from ipseg.report.paper_figures import own_rows, paper_panels, save_paper_figure


def words(svg: str) -> str:
    return " ".join(ElementTree.fromstring(svg).itertext())


@pytest.fixture
def ours(make_run):
    runs = [
        make_run("mine", scenario="voc/15-1"),
        make_run("disjoint", scenario="voc/15-1", setting="disjoint"),
        make_run("other", scenario="voc/15-1"),
        make_run("drawn"),
    ]
    papers = [81.5, 80.0, None, 70.0]
    entries = [Entry(result=run, group=run.name, paper=paper) for run, paper in zip(runs, papers, strict=True)]
    return sections(entries)


def test_only_runs_of_the_papers_setting_stand_beside_it(ours):
    assert [(own.name, own.scenario) for own in own_rows(ours)] == [("mine", "15-1")]


def test_the_panels_hold_the_papers_numbers_and_ours(ours, make_run):
    over_scenarios, two_two, fifteen_one = map(words, paper_panels(ours))
    assert all("IPSeg 72.4" in panel and "SSUL-M 47.6" in panel for panel in (over_scenarios, two_two))
    assert "IPSeg 81.5" in fifteen_one
    value = f"mine (ours) {100 * make_run().steps[-1].miou['all']:.1f}"
    assert f"{value} at 15-1" in over_scenarios  # where it ends is not the last scenario
    assert f"{value} at 2" in fifteen_one
    assert "ours" not in two_two


def test_without_a_run_of_ours_a_page_has_no_panels(make_run):
    assert paper_panels(sections([Entry(result=make_run(), group="x")])) == []


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
