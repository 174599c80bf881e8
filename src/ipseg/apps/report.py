"""`ipseg report`: results, predictions, memories and losses of runs on one page; missing parts are named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ipseg.apps.compare import compare
from ipseg.apps.gallery import SourceCache, brief, make_gallery, memory_summary, spread_over_data
from ipseg.errors import UserError
from ipseg.files import read_json, require_output, write_text
from ipseg.parsing import parse_json
from ipseg.report.compare import ResultTable
from ipseg.report.figures import Losses, paper_panels, plotted
from ipseg.report.page import Chapter, Gallery, MemorySummary, render
from ipseg.training.system import choose_device

MARK = b"default-src 'none'; img-src data:"
"""In the head of every page of ours: others seldom forbid themselves the network."""
MOST_STEPS = 10_000
"""Of a log that is drawn: a damaged one may name any step."""


def report(
    paths: Sequence[Path],
    out: Path,
    *,
    title: str = "ipseg report",
    intro: str = "",
    images: int = 4,
    device: str = "auto",
    more_facts: Mapping[str, str] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Write the page of these run folders, results.json files and sweeps, with a chapter for every table."""
    require_place(out)
    if images < 0:
        raise UserError(f"--gallery is {images}; it must be at least 0.")
    tables = [table for table in compare(paths) if plotted(table)]
    if not tables:
        raise UserError("none of these runs has finished a step: there is nothing to report yet.")
    sources = SourceCache()
    chapters = [_make_chapter(table, sources, images, device, say) for table in tables]
    facts = provenance(tables) | dict(more_facts or {})
    write_text(out, render(title, chapters, facts, intro=intro, paper=paper_panels(tables)))


def require_place(out: Path) -> None:
    """Raise before anything is computed if the page cannot be written there."""
    require_output(out, (".html", ".htm"), MARK)
    if not out.resolve().parent.is_dir():
        raise UserError(f"--out {out}: the folder {out.parent} is missing.")


def _make_chapter(
    table: ResultTable, sources: SourceCache, images: int, device: str, say: Callable[[str], None]
) -> Chapter:
    """What the folders and the data of its runs still hold."""
    rows = plotted(table)
    gallery, missing = Gallery(), ["Predictions: --gallery 0 leaves them out."]
    if images:
        choose = partial(spread_over_data, count=images)
        gallery, reasons = make_gallery(rows, choose, sources, choose_device(device), say)
        missing = _by_reason("Predictions", reasons)
    memories: dict[str, MemorySummary] = {}
    reasons = {}
    for row in rows:
        try:
            memories[row.label] = memory_summary(row.runs[0], sources, images=images > 0)
        except UserError as error:
            reasons[row.label] = f"{brief(error)}."
    missing += _by_reason("Replay memory", reasons)
    losses = {row.label: found for row in rows if (found := read_losses(row.runs[0].folder))}
    without = [row.label for row in rows if row.label not in losses]
    missing += _by_reason("Training losses", dict.fromkeys(without, "there is no log.jsonl beside the results."))
    return Chapter(table=table, gallery=gallery, memories=memories, losses=losses, missing=missing)


def _by_reason(what: str, reasons: Mapping[str, str]) -> list[str]:
    """A sentence for each reason, however many runs have it.

    >>> _by_reason("Replay memory", {"mib": "it keeps no images.", "plop": "it keeps no images."})
    ['Replay memory of mib, plop: it keeps no images.']
    """
    runs: dict[str, list[str]] = {}
    for label, reason in reasons.items():
        runs.setdefault(reason, []).append(label)
    return [f"{what} of {', '.join(labels)}: {reason}" for reason, labels in runs.items()]


def read_losses(folder: Path | None) -> Losses:
    """The logged losses over the steps, and their sum; lines that a crash cut short are skipped."""
    log = folder / "log.jsonl" if folder else None
    if log is None or not log.is_file():
        return {}
    logged: dict[tuple[int, int], dict[str, Any]] = {}
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            entry = parse_json(line)
            step, iteration, of, loss = (entry[key] for key in ("step", "iteration", "of", "loss"))
        except (UserError, KeyError, TypeError):
            continue
        counts = all(type(count) is int for count in (step, iteration, of)) and 0 <= step < MOST_STEPS
        if entry.get("event") == "train" and counts and 0 <= iteration <= of != 0 and isinstance(loss, dict):
            logged[step, iteration] = entry  # after a kill some are there twice; the last counts
    losses: dict[str, list[tuple[float, float]]] = {"sum": []}
    for (step, iteration), entry in sorted(logged.items()):
        parts = {name: value for name, value in entry["loss"].items() if _is_number(value)}
        total = {"sum": sum(parts.values())} if len(parts) == len(entry["loss"]) > 1 else {}
        for name, value in (total | parts).items():
            losses.setdefault(str(name), []).append((step + iteration / entry["of"], float(value)))
    return {name: points for name, points in losses.items() if points}


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300  # their sum is finite, too


def provenance(tables: Sequence[ResultTable]) -> dict[str, str]:
    """Seeds, images, versions, commits and dates of the runs."""
    runs = [run for table in tables for row in table.rows for run in row.runs]
    described = [_description(folder) for folder in dict.fromkeys(run.folder for run in runs if run.folder)]
    git = [found["git"] for found in described if found.get("git")]
    kinds = [("held-out training" if run.setup.held_out else "validation", run.result.steps) for run in runs]
    versions = [{"python": found.get("python")} | found.get("versions", {}) for found in described]
    facts = {
        "seeds": _join(sorted({run.result.seed for run in runs})),
        "measured on": _join(
            f"{steps[-1].images} {kind} images" for kind, steps in kinds if steps and steps[-1].images
        ),
        "memory": _join(run.result.info.get("memory") for run in runs),
        "backbone": _join(run.result.info.get("backbone") for run in runs),
        "oracle settings": _join(setting for run in runs for setting in run.result.oracle),
        "begun": _join(sorted({found["started"][:10] for found in described if "started" in found})),
        "versions": _join(f"{name} {version}" for found in versions for name, version in found.items() if version),
        "commit": _join(str(one.get("commit"))[:10] + (" with changes" if one.get("changed") else "") for one in git),
        "platform": _join(found.get("platform") for found in described),
    }
    return {name: text for name, text in facts.items() if text}


def _description(folder: Path) -> dict[str, Any]:
    try:
        described = read_json(folder / "run.json", "the run's description")
    except UserError:
        return {}  # a page can do without
    kinds = {"started": str, "git": dict, "versions": dict, "platform": str, "python": str}
    right = isinstance(described, dict)
    return {key: described[key] for key, kind in kinds.items() if right and isinstance(described.get(key), kind)}


def _join(values: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value is not None))
