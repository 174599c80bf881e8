"""`ipseg report`: results and predictions of runs on one page; missing parts are named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ipseg.apps.compare import compare
from ipseg.apps.gallery import make_gallery
from ipseg.apps.run import require_parent
from ipseg.errors import UserError
from ipseg.files import read_json, require_output, write_text
from ipseg.report.compare import ResultTable
from ipseg.report.figures import plotted
from ipseg.report.page import Chapter, Gallery, render
from ipseg.training.system import choose_device

MARK = b"default-src 'none'; img-src data:"
"""In the head of every page of ours: others seldom forbid themselves the network."""


def report(
    paths: Sequence[Path],
    out: Path,
    *,
    title: str = "ipseg report",
    intro: str = "",
    images: int = 4,
    device: str = "auto",
    more_facts: Mapping[str, str] | None = None,
    log: Callable[[str], None] = lambda _: None,
) -> None:
    """Write the page of these run folders, results.json files and sweeps, with a chapter for every table."""
    require_page(out)
    if images < 0:
        raise UserError(f"--gallery is {images}; it must be at least 0.")
    tables = [table for table in compare(paths) if plotted(table)]
    if not tables:
        raise UserError("none of these runs has finished a step: there is nothing to report yet.")
    chapters = []
    for table in tables:
        gallery, missing = Gallery(), ["Predictions: --gallery 0 leaves them out."]
        if images:
            gallery, reasons = make_gallery(plotted(table), images, choose_device(device), log)
            runs: dict[str, list[str]] = {}
            for label, reason in reasons.items():
                runs.setdefault(reason, []).append(label)
            missing = [f"Predictions of {', '.join(labels)}: {reason}" for reason, labels in runs.items()]
        chapters.append(Chapter(table=table, gallery=gallery, missing=missing))
    write_text(out, render(title, chapters, provenance(tables) | dict(more_facts or {}), intro=intro))


def require_page(out: Path) -> None:
    """Raise before anything is computed if the page cannot be written there."""
    require_output(out, (".html", ".htm"), MARK)
    require_parent(out)


def provenance(tables: Sequence[ResultTable]) -> dict[str, str]:
    """Seeds, images, versions, commits and dates of the runs."""
    runs = [run for table in tables for row in table.rows for run in row.runs]
    described = [_description(folder) for folder in dict.fromkeys(run.folder for run in runs if run.folder)]
    versions = [{"python": found.get("python")} | found.get("versions", {}) for found in described]
    facts: dict[str, list[Any]] = {
        "seeds": sorted({run.result.seed for run in runs}),
        "measured on": [
            f"{run.result.steps[-1].images} {'held-out training' if run.setup.held_out else 'validation'} images"
            for run in runs
            if run.result.steps and run.result.steps[-1].images
        ],
        "memory": [run.result.info.get("memory") for run in runs],
        "backbone": [run.result.info.get("backbone") for run in runs],
        "oracle settings": [setting for run in runs for setting in run.result.oracle],
        "begun": sorted({found["started"][:10] for found in described if "started" in found}),
        "versions": [f"{name} {version}" for found in versions for name, version in found.items() if version],
        "commit": [
            f"{str(git.get('commit'))[:10]}{' with changes' if git.get('changed') else ''}"
            for found in described
            if (git := found.get("git"))
        ],
        "platform": [found.get("platform") for found in described],
    }
    texts = {key: list(dict.fromkeys(str(one) for one in found if one is not None)) for key, found in facts.items()}
    return {key: ", ".join(found) for key, found in texts.items() if found}


def _description(folder: Path) -> dict[str, Any]:
    """The fields of run.json that are of the right types: a page can do without."""
    try:
        found = read_json(folder / "run.json", "the run's description")
    except UserError:
        return {}
    types = {"started": str, "git": dict, "versions": dict, "platform": str, "python": str}
    return {
        key: found[key] for key, kind in types.items() if isinstance(found, dict) and isinstance(found.get(key), kind)
    }
