"""The tables of the docs from what collect.py wrote: they are made, never typed.

    python benchmarks/tables.py benchmarks/results/NAME.jsonl                      the first three tables, printed
    python benchmarks/tables.py A.jsonl B.jsonl --table ablation --reference ipseg --run "ipseg, memory.*"
    python benchmarks/tables.py --into docs/results.md                             every table of the page, made anew

main      a row a run: mIoU groups and forgetting, mean ± spread over seeds, and the share of joint training's mIoU
ablation  a row a run: mIoU over all classes, and its difference to a reference run, seed by seed
classes   a row a run: the IoU of every class after the last step
varied    a row a run, a column a value of the one setting that a grid varied: mIoU groups
order     a row a pair of look-alikes and run: which of them was learned first, and which is called the other
cost      a row a run: parameters, multiply-adds, speeds and memory, from what costs.py wrote
oracles   a row a run: mIoU with one part or another replaced by the truth, from what real/oracles.py wrote

In a page a table stands between `<!-- table NAME ... -->` and `<!-- end -->`. After the NAME stand files of
benchmarks/results (none: those of the command line), `scenario=2-1`, `reference=ipseg` and any number of
`run=PATTERN`, quoted as in a shell. Rows come in the order of these patterns.
"""

from __future__ import annotations

import argparse
import re
import shlex
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from collect import read
from costs import cost_table
from oracle_table import oracle_table
from order_table import order_table
from varied import varied_table

from ipseg.apps.compare import with_bounds
from ipseg.errors import WRONG, UserError, unknown
from ipseg.files import write_text
from ipseg.report.compare import (
    COLUMNS,
    DEFINITIONS,
    ResultTable,
    Run,
    TableRow,
    format_mean,
    make_tables,
    mean_of,
    notes,
    percent,
    std_of,
)
from ipseg.report.formats import bold_if_best, escaped, table_line

RESULTS = Path(__file__).parent / "results"
BEGIN, END = "<!-- table ", "<!-- end -->"
MARK = re.compile(rf"^{BEGIN}(.*?)-->\n(.*?)^{END}$", re.MULTILINE | re.DOTALL)
OPTIONS = ("scenario", "reference", "run")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A table that somebody asks for."""

    table: str
    files: tuple[Path, ...]
    scenario: str | None = None
    """As a grid names it; none: all of them."""
    reference: str = "ipseg"
    """What an ablation is compared with."""
    runs: tuple[str, ...] = ()
    """Names, or patterns of them; none: all."""

    def made(self) -> str:
        """The table, and what a reader must know to read it."""
        if self.table in OF_FILES:
            return OF_FILES[self.table](self.files)
        if self.table not in TABLES:
            raise unknown("table", self.table, [*TABLES, *OF_FILES])
        return TABLES[self.table](self.sections(), self)

    def sections(self) -> list[ResultTable]:
        """What was asked for, a scenario each."""
        return _of_scenario(make_tables(with_bounds(self._chosen())), self.scenario)

    def _chosen(self) -> list[Run]:
        entries = read(self.files)
        names = dict.fromkeys(entry.result.name for entry in entries)
        for pattern in self.runs:
            if not any(_fits(name, pattern) for name in names):
                raise unknown("run", pattern, names, "A run is its name in the grid, or a pattern: ipseg*.")
        patterns = [*([self.reference] if self.table == "ablation" else []), *self.runs]
        places = {name: [at for at, one in enumerate(patterns) if _fits(name, one)] for name in names}
        fitting = [entry for entry in entries if places[entry.result.name] or not self.runs]
        return sorted(fitting, key=lambda entry: min(places[entry.result.name], default=len(patterns)))


def _fits(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


def _of_scenario(found: list[ResultTable], wanted: str | None) -> list[ResultTable]:
    """Those of one scenario, in every order of its classes: 2-1, 2-1 disjoint, or with the data's name before it."""
    names = [f"{section.scenario} {section.setting}".removesuffix(" overlap") for section in found]
    fitting = [
        section for name, section in zip(names, found, strict=True) if wanted in (None, name, name.rpartition("/")[2])
    ]
    if not fitting:
        raise unknown("scenario", wanted, dict.fromkeys(names))
    return fitting


# ---- tables ---------------------------------------------------------------------------------------------------------

Part = tuple[list[str], Callable[[TableRow], list[str]]]
"""Of a scenario's table: the names of its columns, and what a row says in them."""


def main_table(found: Sequence[ResultTable], _wanted: Wanted) -> str:
    """What `ipseg compare` says, and how near each comes to joint training."""
    joint = any(line.bound for section in found for line in section.rows)
    said = ["of joint: the mean of all as a share of joint training's"] if joint else []
    return _page(found, _main_part, DEFINITIONS, said)


def _main_part(section: ResultTable) -> Part:
    bound = next((line.means["all"] for line in section.rows if line.bound), None)

    def cells(line: TableRow) -> list[str]:
        value = line.means["all"]
        told = list(map(bold_if_best, section.cells(line)[: len(COLUMNS)]))
        return told + ([f"{percent(None if value is None else value / bound)} %"] if bound else [])

    return [*COLUMNS, *(["of joint"] if bound else [])], cells


def ablation_table(found: Sequence[ResultTable], wanted: Wanted) -> str:
    """What each change is worth, seed by seed: what seeds have in common cancels out."""
    against = {section.title: line for section in found if (line := _reference(section, wanted.reference))}
    if not against:
        names = {line.name for section in found for line in section.rows}
        raise unknown("reference run", wanted.reference, names, "Name another one as the reference.")
    told = [section for section in found if section.title in against]
    said = f"difference: to all of {wanted.reference} with the same seed, over the pairs of seeds that both have"
    first = "mIoU in percent over all classes, after the last step"
    return _page(told, lambda section: _ablation_part(against[section.title]), [first], [said])


def _reference(section: ResultTable, name: str) -> TableRow | None:
    fitting = [line for line in section.rows if name in (line.name, line.runs[0].result.name)]
    if len(fitting) > 1:
        rows = "; ".join(line.name for line in fitting)
        raise UserError(f'"{name}" is several rows of {section.title}: {rows}. Name one of them as the reference.')
    return fitting[0] if fitting else None


def _ablation_part(reference: TableRow) -> Part:
    beside = _all_by_seed(reference)

    def cells(line: TableRow) -> list[str]:
        differences = [value - beside[seed] for seed, value in _all_by_seed(line).items() if seed in beside]
        told = ["–", "–"] if line is reference else [_signed(differences), str(len(differences))]
        return [format_mean(line.means["all"], line.spreads["all"]), *told]

    return ["all", "difference", "pairs"], cells


def _all_by_seed(line: TableRow) -> dict[int, float]:
    measured = {entry.result.seed: entry.result.steps[-1].miou["all"] for entry in line.runs}
    return {seed: value for seed, value in measured.items() if value is not None}


def _signed(values: Sequence[float]) -> str:
    said = format_mean(mean_of(values), std_of(values)) if values else "–"
    return said if said.startswith(("-", "–", "0.0")) else f"+{said}"


def class_table(found: Sequence[ResultTable], _wanted: Wanted) -> str:
    """What each run knows in the end, class by class."""
    return _page(found, _class_part, ["IoU in percent after the last step"])


def _class_part(section: ResultTable) -> Part:
    names = list(dict.fromkeys(name for line in section.rows for name in line.runs[0].result.steps[-1].iou))

    def cells(line: TableRow) -> list[str]:
        last = [entry.result.steps[-1].iou for entry in line.runs]
        values = [[iou.get(name) for iou in last] for name in names]
        return [format_mean(mean_of(seeds), std_of(seeds)) for seeds in values]

    return [escaped(name) for name in names], cells


def _page(
    found: Sequence[ResultTable], part: Callable[[ResultTable], Part], about: Sequence[str], more: Sequence[str] = ()
) -> str:
    """A table a scenario, named where there are several, and the notes: about its columns, its rows, and more."""
    parts = []
    for section in found:
        names, cells = part(section)
        head = ["run", *names, *section.columns[len(COLUMNS) :]]
        rows = []
        for row in section.rows:
            rest = [cell.text for cell in section.cells(row)[len(COLUMNS) :]]
            rows.append([escaped(row.label), *cells(row), *rest])
        lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
        parts += [f"**{escaped(section.title)}**"] * (len(found) > 1) + ["\n".join(map(table_line, lines))]
    told = [*about, *notes(found)[len(DEFINITIONS) :], *more]
    return "\n\n".join([*parts, "  \n".join(textwrap.fill(f"{note}.", 118) for note in told)])


OF_FILES = {"cost": cost_table, "oracles": oracle_table}
"""Tables of other files than those of collect.py."""
TABLES = {
    "main": main_table,
    "ablation": ablation_table,
    "classes": class_table,
    "varied": varied_table,
    "order": order_table,
}


# ---- a page's tables ------------------------------------------------------------------------------------------------


def filled(text: str, page: str, files: Sequence[Path] = (), only: str | None = None) -> str:
    """A page's text with its tables made anew; if `only` says so, those of one name."""
    marks = [(mark, _asked(mark[1], files)) for mark in MARK.finditer(text)]
    if len(marks) < text.count(f"\n{BEGIN}") + text.startswith(BEGIN) or any(BEGIN in mark[2] for mark, _ in marks):
        raise UserError(f"{page}: after a `{BEGIN}... -->` there is no `{END}` on a line of its own.")
    marks = [(mark, wanted) for mark, wanted in marks if only in (None, wanted.table)]
    if not marks:
        what = f"the table {only}" if only else "any table"
        raise UserError(
            f"{page} has no place for {what}: write `{BEGIN}{only or 'main'} NAME.jsonl -->`, then `{END}`."
        )
    if files and not any(wanted.files == tuple(files) for _, wanted in marks):
        raise UserError(f"{page}: every table there names its own files; change those, or leave yours out.")
    for mark, wanted in reversed(marks):  # from the end, so that places stay
        try:
            table = wanted.made()
        except UserError as error:
            raise UserError(f"{page}, {BEGIN}{mark[1]}-->: {error}") from error
        text = f"{text[: mark.start()]}{BEGIN}{mark[1]}-->\n\n{table}\n\n{END}{text[mark.end() :]}"
    return text


def _asked(mark: str, files: Sequence[Path]) -> Wanted:
    """What a mark's words ask for."""
    try:
        name, *words = shlex.split(mark)
    except ValueError as error:
        raise UserError(f"{BEGIN}{mark}-->: a mark is a table's name, files and options ({error}).") from error
    options = [word.partition("=")[::2] for word in words if "=" in word]
    for key, _ in options:
        if key not in OPTIONS:
            raise unknown(f"option in {BEGIN}{mark}-->:", key, OPTIONS)
    single = {key: value for key, value in options if key != "run"}
    own = tuple(RESULTS / word for word in words if "=" not in word)
    runs = tuple(value for key, value in options if key == "run")
    return Wanted(table=name, files=own or tuple(files), runs=runs, **single)


def main() -> None:
    """Print tables, or put them into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*", help="what collect.py wrote")
    parser.add_argument(
        "--table", metavar="NAME", help=f"one of {', '.join([*TABLES, *OF_FILES])}; without it the first three"
    )
    parser.add_argument("--scenario", help="one scenario: 2-1, or 2-1 disjoint")
    parser.add_argument("--reference", help="the run that an ablation is compared with: ipseg")
    parser.add_argument("--run", dest="runs", action="append", help="a run's name, or a pattern; again for more")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="replace the tables between the marks of a page")
    options = parser.parse_args()
    files = tuple(options.files)
    rest = {key: value for key in ("scenario", "reference", "runs") if (value := getattr(options, key))}
    try:
        if options.into is None:
            names = [options.table] if options.table else list(TABLES)[:3]
            print("\n\n".join(Wanted(table=name, files=files, **rest).made() for name in names))
        elif rest:
            raise UserError(f"--into and --{next(iter(rest))}: what a page's table shows stands in its mark.")
        elif not options.into.is_file():
            raise UserError(f"--into {options.into}: there is no such page.")
        else:
            page = options.into.read_text(encoding="utf-8")
            write_text(options.into, filled(page, str(options.into), files, options.table))
    except UserError as error:
        parser.exit(WRONG, f"tables.py: {error}\n")


if __name__ == "__main__":
    main()
