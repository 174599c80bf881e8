"""The documentation as a site: `make docs`, then open build/docs/index.html."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import latex2mathml.converter
from docutils import nodes

import ipseg

project, release = "ipseg", ipseg.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["conf.py"]
myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = f"ipseg {release}"
html_math_renderer = "mathml"
html_copy_source = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True


def read_page(app: Any, page: str, source: list[str]) -> None:
    """Let pages of the repository outside of the docs be files to download; make the index's tables the navigation."""
    folder = (Path(app.srcdir) / page).parent

    def link(match: re.Match[str]) -> str:
        outside = not (folder / match[1]).resolve().is_relative_to(app.srcdir)
        return f"](<path:{match[1]}>)" if outside else match[0]

    source[0] = re.sub(r"\]\(([\w./-]+\.md)(?:#[\w-]+)?\)", link, source[0])
    if page != "index":
        return
    for table in re.findall(r"^\| (\w+) \| \|\n((?:\|.*\n)+)", source[0], re.MULTILINE):
        pages = re.findall(r"\]\(([\w/-]+)\.md\)", table[1])
        source[0] += "\n```{{toctree}}\n:hidden:\n:caption: {}\n\n{}\n```\n".format(
            table[0].capitalize(), "\n".join(dict.fromkeys(pages))
        )


def write_math(writer: Any, node: nodes.Element) -> None:
    """MathML, which every browser draws itself: no script of another site."""
    display = "inline" if isinstance(node, nodes.math) else "block"
    writer.body.append(latex2mathml.converter.convert(node.astext(), display=display))
    raise nodes.SkipNode


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", read_page)
    app.add_html_math_renderer("mathml", (write_math, None), (write_math, None))
