"""Tables of one run for the terminal, and what all tables are made of."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from ipseg.evaluation.results import BACKGROUND, RunResult, StepResult
from ipseg.report.rows import Cell, percent
from ipseg.visible import one_line

_BAR = 24
"""Characters of a full bar."""


def steps_table(result: RunResult) -> Table:
    """One row a step: what was learned, and how good everything known by then is."""
    title = f"{result.name} · {result.scenario} {result.setting} · seed {result.seed}"
    table = plain_table(title, ["step", "new classes"], ["base", "new", "all", "images right"])
    table.caption = Text("mIoU in percent; images right: posterior and pixels find exactly the classes shown.", "dim")
    for step in result.steps:
        groups = [percent(step.miou.get(group)) for group in ("base", "new", "all")]
        exact = (step.image_accuracy or {}).get("all", {}).get("both")
        table.add_row(str(step.step), Text(_listed(step.new)), *groups, percent(exact))
    return table


def class_table(step: StepResult) -> Table:
    """The IoU of every class after a step, in the order of learning, with a bar to see it at a glance."""
    table = plain_table(f"after step {step.step}", ["class"], ["IoU"])
    table.add_column("")
    for name, value in step.iou.items():
        style = "dim" if name == BACKGROUND else "bold" if name in step.new else ""
        bar = Text("━" * round(_BAR * (value or 0)), style="cyan")
        table.add_row(Text(name, style=style), percent(value), bar)
    if step.new:
        table.caption = Text("IoU in percent; bold: learned in this step.", style="dim")
    return table


def plain_table(title: str | None, words: Sequence[str], numbers: Sequence[str]) -> Table:
    """The frame of every table here: words to the left, numbers to the right.

    In a narrow terminal all of them fold: a column that may not, or has a least width, pushes others out of sight.
    """
    table = Table(title=Text(title, style="bold") if title else None, box=box.SIMPLE_HEAD, caption_justify="left")
    table.title_justify = "left"
    for word in words:
        table.add_column(word, overflow="fold")
    for number in numbers:
        table.add_column(number, justify="right", overflow="fold")
    return table


def rich_cell(cell: Cell) -> Text:
    """A number, the best in bold."""
    return Text(cell.text, style="bold green" if cell.best else "")


def table_line(cells: Sequence[str]) -> str:
    """A line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def escaped(name: str) -> str:
    """A name that Markdown shows as it is."""
    return "".join(f"\\{letter}" if letter in "\\|*_`<[~$" else letter for letter in one_line(name))


def _listed(names: Sequence[str], most: int = 8) -> str:
    """The names, or the first of them and how many follow.

    >>> _listed(["cat", "dog", "cow"], most=1)
    'cat and 2 more'
    """
    if len(names) <= most + 1:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"
