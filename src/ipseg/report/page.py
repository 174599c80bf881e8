"""One HTML file that tells whole experiments: what was learned when, how well, and how it looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ipseg.report.chapter import Chapter, told
from ipseg.visible import visible


def render(
    title: str, intro: str, chapters: Sequence[Chapter], facts: Mapping[str, str], paper: Sequence[str] = ()
) -> str:
    """The page as text, a chapter for every scenario; `paper` are plots of its numbers with ours."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("ipseg", "report"),
        autoescape=True,
        finalize=lambda value: visible(value) if type(value) is str else value,  # markup of ours is no plain str
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
