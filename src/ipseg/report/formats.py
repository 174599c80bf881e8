"""Tables for the terminal, Markdown, LaTeX, CSV and JSON. Names in them are others': they are escaped everywhere."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from ipseg.evaluation.results import RunResult, StepResult
from ipseg.report.compare import COLUMNS, DAGGER, NEAREST, Cell, ResultTable, notes, percent
from ipseg.scenario import BACKGROUND
from ipseg.visible import one_line

LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", DAGGER: r"$^\dagger$"}
LATEX |= {sign: f"\\{sign}" for sign in "&%$#_{}"}
LATEX_SIGNS = str.maketrans({"–": "--", "±": r"$\pm$", NEAREST: r"$\approx$"})
BAR = 24
"""Characters of a full bar."""


# ---- comparisons ----------------------------------------------------------------------------------------------------


def rich_tables(tables: Sequence[ResultTable]) -> Group:
    parts: list[Table | Text] = []
    for table in tables:
        rich_table = plain_table(table.title, ["run"], table.columns)
        for row in table.rows:
            style = "dim" if row.state else "italic" if row.bound or row.oracle else ""
            cells = [Text(cell.text, style="bold green" if cell.best else "") for cell in table.cells(row)]
            rich_table.add_row(Text(row.label, style=style), *cells)
        parts += [rich_table, Text()]
    return Group(*parts, Text(".\n".join(notes(tables)) + ".", style="dim"))


def markdown(tables: Sequence[ResultTable]) -> str:
    def escaped(name: str) -> str:
        return "".join(f"\\{letter}" if letter in "\\|*_`<[~$" else letter for letter in one_line(name))

    lines = []
    for table in tables:
        cells = [["run", *table.columns], ["---", *["---:"] * len(table.columns)]]
        for row in table.rows:
            numbers = [f"**{cell.text}**" if cell.best else cell.text for cell in table.cells(row)]
            cells.append([escaped(row.label), *numbers])
        lines += [f"### {escaped(table.title)}", "", *(f"| {' | '.join(line)} |" for line in cells), ""]
    return "\n".join([*lines, *(f"{escaped(note)}.  " for note in notes(tables)), ""])


def latex(tables: Sequence[ResultTable]) -> str:
    """LaTeX with booktabs."""

    def number(cell: Cell) -> str:
        text = cell.text.translate(LATEX_SIGNS)
        return rf"\textbf{{{text}}}" if cell.best else text

    lines = []
    for table in tables:
        lines += [f"% {one_line(table.title)}", rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}", r"\toprule"]
        lines += [" & ".join(["run", *table.columns]) + r" \\", r"\midrule"]
        first_bound = next((row for row in table.rows if row.bound), None)
        for row in table.rows:
            lines += [r"\midrule"] if row is first_bound else []
            label = "".join(LATEX.get(letter, letter) for letter in one_line(row.label))
            lines.append(" & ".join([label, *map(number, table.cells(row))]) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}", ""]
    comments = [f"% {one_line(note)}.".replace(DAGGER, "dagger:") for note in notes(tables)]
    return "\n".join([*lines, *comments, ""])


def to_csv(tables: Sequence[ResultTable]) -> str:
    """For a spreadsheet: a line for each row, means and standard deviations in percent with three decimals."""
    file = io.StringIO()
    numbers = [name for column in COLUMNS for name in (column, f"{column}_spread")]
    text = ["scenario", "classes", "setting", "run", "method", "seeds", "oracle", "bound", "state"]
    writer = csv.DictWriter(file, [*text, *numbers, "paper"], lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for row in as_json(tables):
        values = row | {key: " ".join(map(str, row[key])) for key in ("seeds", "oracle")} | row["mean"]
        values |= {f"{column}_spread": value for column, value in row["spread"].items()}
        writer.writerow({key: _csv_cell(value) if isinstance(value, str) else value for key, value in values.items()})
    return file.getvalue()


def _csv_cell(text: str) -> str:
    """Text that a spreadsheet takes for no formula.

    >>> _csv_cell("=1+1"), _csv_cell("ipseg")
    ("'=1+1", 'ipseg')
    """
    return f"'{one_line(text)}" if text.lstrip().startswith(("=", "+", "-", "@")) else one_line(text)


def as_json(tables: Sequence[ResultTable]) -> list[dict[str, Any]]:
    """Plain values, in percent."""

    def in_percent(value: float | None) -> float | None:
        return None if value is None else round(100 * value, 3)

    return [
        {
            "scenario": table.scenario,
            "classes": table.classes,
            "setting": table.setting,
            "run": row.name,
            "method": row.results[0].method,
            "seeds": [run.result.seed for run in row.runs],
            "oracle": list(row.oracle),
            "bound": row.bound,
            "state": row.state or "finished",
            "mean": {column: in_percent(score.mean) for column, score in row.scores.items()},
            "spread": {column: in_percent(score.std) for column, score in row.scores.items()},
            "best": [column for column, cell in zip(COLUMNS, table.cells(row), strict=False) if cell.best],
            "paper": row.paper,
            "nearest": row.nearest,
        }
        for table in tables
        for row in table.rows
    ]


# ---- one run --------------------------------------------------------------------------------------------------------


def steps_table(result: RunResult) -> Table:
    """One row for each step: its new classes, and the mIoU over all classes seen so far."""
    title = f"{result.name} · {result.scenario} {result.setting} · seed {result.seed}"
    table = plain_table(title, ["step", "new classes"], ["base", "new", "all", "images right"])
    table.caption = Text(
        "mIoU in percent; images right: posterior and pixels find exactly the classes of the image.", "dim"
    )
    for step in result.steps:
        groups = [percent(step.miou.get(group)) for group in ("base", "new", "all")]
        exact = (step.image_accuracy or {}).get("all", {}).get("both")
        more = f" and {len(step.new) - 8} more" if len(step.new) > 9 else ""
        names = step.new[:8] if more else step.new
        table.add_row(str(step.step), Text(", ".join(names) + more), *groups, percent(exact))
    return table


def class_table(step: StepResult) -> Table:
    """The IoU of every class after a step, in the order of learning, as a number and a bar."""
    table = plain_table(f"after step {step.step}", ["class"], ["IoU"])
    table.add_column("")
    for name, value in step.iou.items():
        style = "dim" if name == BACKGROUND else "bold" if name in step.new else ""
        table.add_row(Text(name, style=style), percent(value), Text("━" * round(BAR * (value or 0)), style="cyan"))
    if step.new:
        table.caption = Text("IoU in percent; bold: learned in this step.", style="dim")
    return table


def summary_table(step: StepResult) -> Table:
    """The mIoU of the groups, and the share of images whose set of classes is right."""
    unmeasured = [name for name in step.iou if name not in step.measured and name != BACKGROUND]
    note = f"\nNot in their masks, so not measured: {', '.join(unmeasured)}." if unmeasured else ""
    accuracy = (step.image_accuracy or {}).get("all", {})
    cells = {f"mIoU {group}": step.miou.get(group) for group in ("base", "new", "all", "harmonic")}
    cells |= {f"images right: {name}": accuracy.get(name) for name in ("posterior", "pixel", "both")}
    table = plain_table("", [], list(cells))
    table.caption = Text(f"{step.images} image{'' if step.images == 1 else 's'}; in percent.{note}", style="dim")
    table.add_row(*map(percent, cells.values()))
    return table


# ---- parts ----------------------------------------------------------------------------------------------------------


def plain_table(title: str, words: Sequence[str], numbers: Sequence[str] = ()) -> Table:
    """Words left-aligned, numbers right-aligned.

    All columns fold in a narrow terminal: one that may not, or has a minimum width, pushes others out of sight.
    """
    table = Table(
        title=Text(title, style="bold") if title else None,
        box=box.SIMPLE_HEAD,
        caption_justify="left",
        title_justify="left",
    )
    for word in words:
        table.add_column(word, overflow="fold")
    for number in numbers:
        table.add_column(number, justify="right", overflow="fold")
    return table
