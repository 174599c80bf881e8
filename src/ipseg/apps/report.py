"""`ipseg report`: everything that runs tell about themselves, on one page. What is missing is left out and named."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ipseg.apps.compare import compare
from ipseg.apps.report_pictures import Shelf, gallery, memory, said_once, varied
from ipseg.errors import UserError
from ipseg.files import read_json, require_output, write_text
from ipseg.parsing import parse_json
from ipseg.report.chapter import Chapter, Gallery, Remembered
from ipseg.report.compare import Line, Section
from ipseg.report.groups import drawn
from ipseg.report.page import render
from ipseg.report.paper_figures import paper_panels
from ipseg.report.plots import Curves

POINTS = 60
"""Of a loss in one step: more cannot be told apart in a plot."""
MARK = b"default-src 'none'; img-src data:"
"""Stands in the head of every page of ours: others seldom forbid themselves the network."""
Tell = Callable[[str], None]


def report(
    paths: Sequence[Path],
    out: Path,
    *,
    title: str | None = None,
    intro: str | None = None,
    pictures: int = 4,
    device: str = "auto",
    more_facts: Mapping[str, str] | None = None,
    tell: Tell = lambda _: None,
) -> None:
    """Write the page of these run folders, results.json files and sweeps, a chapter for every scenario.

    intro: what the page is about, by default how many runs and of what; paragraphs are apart by empty lines.
    """
    require_place(out)
    if pictures < 0:
        raise UserError(f"--gallery is {pictures}; it must be at least 0.")
    sections = compare(paths)
    shelf = Shelf(device)
    chapters = [chapter(section, shelf, pictures, tell) for section in sections if drawn(section)]
    if not chapters:
        raise UserError("none of these runs has finished a step: there is nothing to report yet.")
    about, told = intro or introduction(sections), facts(sections) | dict(more_facts or {})
    write_text(out, render(title or "New classes, step after step", about, chapters, told, paper_panels(sections)))


def require_place(out: Path) -> None:
    """Raise if the page cannot be written there; training may be long past, but drawing takes a while too."""
    require_output(out, (".html", ".htm"), MARK)
    if not out.resolve().parent.is_dir():
        raise UserError(f"--out {out}: the folder {out.parent} is missing.")


def chapter(section: Section, shelf: Shelf, pictures: int, tell: Tell) -> Chapter:
    """One scenario, with what its runs' folders and data still hold."""
    lines = [row.line for row in drawn(section)]
    shown, missing = Gallery(()), ["Pictures: --gallery 0 asks for none."]
    if pictures:
        shown, missing = gallery(lines, partial(varied, pictures=pictures), shelf, tell)
    memories: dict[str, Remembered] = {}
    forgotten: dict[str, str] = {}
    for line in lines:
        found = memory(line, shelf, pictures=pictures > 0)
        if isinstance(found, str):
            forgotten[line.shown] = found
        else:
            memories[line.shown] = found
    missing += said_once("Memory", forgotten)
    curves = {line.shown: logged for line in lines if (logged := losses(line))}
    without = [line.shown for line in lines if line.shown not in curves]
    missing += said_once("Training", dict.fromkeys(without, "there is no log.jsonl beside the results."))
    return Chapter(section=section, gallery=shown, memories=memories, curves=curves, missing=missing)


# ---- training curves ------------------------------------------------------------------------------------------------


def losses(line: Line) -> Curves:
    """The losses of the first seed; nothing where no log is."""
    folder = line.entries[0].folder
    log = folder / "log.jsonl" if folder else None
    if log is None or not log.is_file():
        return {}
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for entry in _lines(log.read_text(encoding="utf-8", errors="replace")):
        found[(entry["step"], entry["iteration"])] = entry  # after a kill some stand there twice; the last counts
    curves: dict[str, list[tuple[float, float]]] = {"sum": []}
    for (step, iteration), entry in sorted(found.items()):
        parts = {name: value for name, value in entry["loss"].items() if _is_number(value)}
        total = {"sum": sum(parts.values())} if len(parts) == len(entry["loss"]) else {}
        for name, value in (total | parts).items():
            curves.setdefault(name, []).append((step + iteration / max(1, entry["of"]), value))
    return {name: thinned(points) for name, points in curves.items() if points}


def _lines(text: str) -> Iterable[dict[str, Any]]:
    """The log's lines about training; one that a crash cut short is passed over."""
    for line in text.splitlines():
        try:
            entry = parse_json(line)
        except UserError:
            continue
        if isinstance(entry, dict) and entry.get("event") == "train" and _is_plausible(entry):
            yield entry


def _is_plausible(entry: dict[str, Any]) -> bool:
    step, iteration, of, loss = (entry.get(key) for key in ("step", "iteration", "of", "loss"))
    counts = [value for value in (step, iteration, of) if type(value) is int and 0 <= value < 10**9]
    return len(counts) == 3 and counts[1] <= counts[2] and isinstance(loss, dict)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300  # NaN is not, nor are whole numbers of 400 digits


def thinned(points: Sequence[tuple[float, float]], most: int = POINTS) -> list[tuple[float, float]]:
    """The mean place and value of neighbours, so that no step has more than so many points.

    >>> thinned([(0.5, 1.0), (1.0, 3.0), (1.5, 5.0)], most=1)
    [(0.75, 2.0), (1.5, 5.0)]
    """
    kept: dict[int, list[tuple[float, float]]] = {}
    for place, value in points:
        kept.setdefault(math.ceil(place * most), []).append((place, value))
    means = [[sum(values) / len(part) for values in zip(*part, strict=True)] for part in kept.values()]
    return [(round(place, 4), value) for place, value in means]


# ---- words ----------------------------------------------------------------------------------------------------------


def introduction(sections: Sequence[Section]) -> str:
    """What the page is about, in a sentence or two."""
    entries = [entry for section in sections for line in section.lines for entry in line.entries]
    count = len({(entry.group, entry.result.seed, entry.data_seed, entry.folder) for entry in entries})
    runs = f"{count} run{'' if count == 1 else 's'}"  # joint training may stand in several tables
    places = ", ".join(section.title for section in sections)
    measured = f" Measured on {where}." if (where := " and on ".join(_measured_on(sections))) else ""
    return (
        f"{runs} of {places}. A step brings new classes with their labels alone; "
        f"after each, the model is asked for all classes that it has met so far.{measured}"
    )


def _measured_on(sections: Sequence[Section]) -> list[str]:
    kinds: dict[str, set[int]] = {}
    for section in sections:
        kind = "training pictures that were held out" if section.held_out else "validation pictures"
        images = {row.results[0].steps[-1].images for row in drawn(section)} - {0}
        kinds.setdefault(kind, set()).update(images)
    return [f"{' and '.join(map(str, sorted(images)))} {kind}" for kind, images in kinds.items() if images]


def facts(sections: Sequence[Section]) -> dict[str, str]:
    """Seeds, versions, commits and dates of the runs."""
    lines = [line for section in sections for line in section.lines]
    files = [entry.folder / "run.json" for line in lines for entry in line.entries if entry.folder]
    known = [run for file in dict.fromkeys(files) if (run := _description(file))]
    seeds = sorted({seed for line in lines for seed in line.seeds})
    told = {
        "seeds": ", ".join(map(str, seeds)),
        "memory": _listed(line.entries[0].result.info.get("memory") for line in lines),
        "backbone": _listed(line.entries[0].result.info.get("backbone") for line in lines),
        "oracle settings": _listed(setting for line in lines for setting in line.oracle),
        "begun": _listed(sorted(run["started"][:10] for run in known if "started" in run)),
        "versions": "; ".join(dict.fromkeys(_versions(run) for run in known)),
        "commit": _listed(_commit(run["git"]) for run in known if run.get("git")),
        "platform": _listed(run.get("platform") for run in known),
    }
    return {name: text for name, text in told.items() if text}


def _description(file: Path) -> dict[str, Any]:
    try:
        run = read_json(file, "the run's description")
    except UserError:
        return {}  # a page can do without
    kinds = {"started": str, "git": dict, "versions": dict, "platform": str, "python": str}
    return (
        {key: run[key] for key, kind in kinds.items() if isinstance(run.get(key), kind)}
        if isinstance(run, dict)
        else {}
    )


def _versions(run: dict[str, Any]) -> str:
    versions = {"python": run.get("python"), **run.get("versions", {})}
    return ", ".join(f"{name} {version}" for name, version in versions.items() if version)


def _commit(git: dict[str, Any]) -> str:
    return str(git.get("commit"))[:10] + (" with changes" if git.get("changed") else "")


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value is not None))
