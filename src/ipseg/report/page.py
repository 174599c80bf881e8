"""One HTML file that tells whole experiments: what was learned when, how well, and how it looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ipseg.evaluation.results import RunResult
from ipseg.files import write_text
from ipseg.report.chapter import Chapter, told
from ipseg.report.chapter import Gallery as Gallery  # noqa: PLC0414 - who writes a page names its parts here
from ipseg.report.chapter import SceneRow as SceneRow  # noqa: PLC0414
from ipseg.report.groups import sections_of


def write_page(
    path: Path, title: str, intro: str, results: Sequence[RunResult], gallery: Gallery, facts: Mapping[str, str]
) -> None:
    """Write the page of one scenario. `intro` may have paragraphs, apart by empty lines; `facts` close the page."""
    write_text(path, render_page(title, intro, results, gallery, facts))


def render_page(
    title: str, intro: str, results: Sequence[RunResult], gallery: Gallery, facts: Mapping[str, str]
) -> str:
    """The page of one scenario as text; results of another one get a chapter without pictures."""
    chapters = [
        Chapter(section=section, gallery=gallery if place == 0 else Gallery(()))
        for place, section in enumerate(sections_of(results))
    ]
    return render(title, intro, chapters, facts)


def render(
    title: str, intro: str, chapters: Sequence[Chapter], facts: Mapping[str, str], paper: Sequence[str] = ()
) -> str:
    """The page as text, a chapter for every scenario; `paper` are plots of its numbers with ours."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("ipseg", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.jinja").render(
        title=title,
        paragraphs=[part for part in intro.split("\n\n") if part.strip()],
        chapters=[told(chapter) for chapter in chapters],
        paper=paper,
        facts=facts,
    )
