"""A comparison for the terminal, Markdown, LaTeX, CSV and JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ipseg.report.compare import NEAREST, Line, Section, notes
from ipseg.report.rows import COLUMNS, DAGGER
from ipseg.report.table import escaped, plain_table, rich_cell, table_line
from ipseg.visible import one_line

_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", DAGGER: r"$^\dagger$"}
_LATEX_SIGNS = str.maketrans({"–": "--", "±": r"$\pm$", NEAREST: r"$\approx$"})


def rich_tables(sections: Sequence[Section]) -> Group:
    """For the terminal."""
    said = Text(".\n".join(notes(sections)) + ".", style="dim")
    return Group(*(part for section in sections for part in (_rich_table(section), Text())), said)


def _rich_table(section: Section) -> Table:
    table = plain_table(section.title, ["run"], columns(section))
    for line in section.lines:
        style = "dim" if line.state else "italic" if line.bound or line.oracle else ""
        rest = [Text(text, style="dim") for text in extra(section, line)]
        table.add_row(Text(line.shown, style=style), *map(rich_cell, line.cells), *rest)
    return table


def markdown(sections: Sequence[Section]) -> str:
    """For a README or a pull request."""
    said = "".join(f"{escaped(note)}.  \n" for note in notes(sections))
    return "\n".join([*(_markdown(section) for section in sections), said])


def _markdown(section: Section) -> str:
    heads = columns(section)
    lines = [f"### {escaped(section.title)}", "", table_line(["run", *heads])]
    lines.append(table_line(["---", *(["---:"] * len(heads))]))
    for line in section.lines:
        cells = [f"**{cell.text}**" if cell.best else cell.text for cell in line.cells]
        lines.append(table_line([escaped(line.shown), *cells, *extra(section, line)]))
    return "\n".join([*lines, ""])


def latex(sections: Sequence[Section]) -> str:
    """For a paper; needs the package booktabs."""
    said = "".join(f"% {one_line(note)}.\n" for note in notes(sections)).replace(DAGGER, "dagger:")
    return "\n".join([*(_latex(section) for section in sections), said])


def _latex(section: Section) -> str:
    heads = columns(section)
    lines = [f"% {one_line(section.title)}", rf"\begin{{tabular}}{{l{'r' * len(heads)}}}", r"\toprule"]
    lines += [_latex_line(["run", *heads]), r"\midrule"]
    bounds = False
    for line in section.lines:
        if line.bound and not bounds:
            lines.append(r"\midrule")
            bounds = True
        cells = [_latex_number(cell.text, best=cell.best) for cell in line.cells]
        rest = [text.translate(_LATEX_SIGNS) for text in extra(section, line)]
        lines.append(_latex_line([_latex_text(line.shown), *cells, *rest]))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex_number(text: str, *, best: bool) -> str:
    text = text.translate(_LATEX_SIGNS)
    return rf"\textbf{{{text}}}" if best else text


def _latex_text(text: str) -> str:
    """A name that LaTeX prints as it is."""
    return "".join(_LATEX.get(letter, f"\\{letter}" if letter in "&%$#_{}" else letter) for letter in one_line(text))


def to_csv(sections: Sequence[Section]) -> str:
    """For a spreadsheet: one line a row, means and spreads in percent with all their digits."""
    rows = as_json(sections)
    file = io.StringIO()
    names = [name for column in COLUMNS for name in (column, f"{column}_spread")]
    plain = ["scenario", "classes", "setting", "run", "method", "bound", "state", "paper"]
    heads = [*plain[:5], "seeds", "oracle", *plain[5:7], *names, "paper"]
    writer = csv.DictWriter(file, heads, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        listed = {key: " ".join(map(str, row[key])) for key in ("seeds", "oracle")}
        values = {column: row["mean"][column] for column in COLUMNS}
        values |= {f"{column}_spread": row["spread"][column] for column in COLUMNS}
        cells = {key: row[key] for key in plain} | listed | values
        writer.writerow({key: _csv_cell(cell) if isinstance(cell, str) else cell for key, cell in cells.items()})
    return file.getvalue()


def _csv_cell(text: str) -> str:
    """Text that a spreadsheet takes for no formula.

    >>> _csv_cell("=1+1"), _csv_cell("ipseg")
    ("'=1+1", 'ipseg')
    """
    return f"'{one_line(text)}" if text.lstrip().startswith(("=", "+", "-", "@")) else one_line(text)


def as_json(sections: Sequence[Section]) -> list[dict[str, Any]]:
    """Plain values, in percent."""
    return [
        {
            "scenario": section.scenario,
            "classes": section.classes,
            "setting": section.setting,
            "run": line.name,
            "method": line.method,
            "seeds": list(line.seeds),
            "oracle": list(line.oracle),
            "bound": line.bound,
            "state": line.state or "finished",
            "mean": {column: _percent(value) for column, value in line.means.items()},
            "spread": {column: _percent(value) for column, value in line.spreads.items()},
            "best": [column for column, cell in zip(COLUMNS, line.cells, strict=True) if cell.best],
            "paper": line.paper,
            "nearest": line.nearest,
        }
        for section in sections
        for line in section.lines
    ]


def _percent(value: float | None) -> float | None:
    return None if value is None else round(100 * value, 3)


def columns(section: Section) -> list[str]:
    """The numbers that a row of a section has, by name."""
    return [*COLUMNS, "n", *(["paper"] if section.has_paper else [])]


def extra(section: Section, line: Line) -> list[str]:
    """What a row says after its measurements: how many seeds, and the paper's number where the section has one."""
    seeds = "–" if line.state else str(len(line.seeds))
    paper = "–" if line.paper is None else f"{NEAREST} " * line.nearest + f"{line.paper:.1f}"
    return [seeds, *([paper] if section.has_paper else [])]
