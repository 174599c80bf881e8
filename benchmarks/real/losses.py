"""How the newest head learned: the mean of the loss `current` over parts of every step, from the logs of runs.

    python benchmarks/real/losses.py runs/main/runs/ipseg_2-1_s* --out losses.json

A head is called upset if the first part is 0.69 or more: docs/results.md, "Upset heads".
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from ipseg.apps.evaluate import require_place
from ipseg.engine.folder import RunFolder
from ipseg.errors import WRONG, UserError
from ipseg.files import write_text

PARTS = (0, 10, 20, 50, 80, 100)
"""Of a step, in percent."""


def losses(run: Path) -> dict[str, dict[str, float]]:
    """By step, then by the part of it. After a cut a run learns some iterations again; the later ones count."""
    logged: dict[str, dict[float, float]] = {}
    log = RunFolder.open(run).path / "log.jsonl"
    for text in log.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            entry: dict[str, Any] = json.loads(text)
        except json.JSONDecodeError:
            continue  # cut short by a crash
        if entry["event"] == "train" and "current" in entry["loss"]:
            share = 100 * entry["iteration"] / entry["of"]
            logged.setdefault(str(entry["step"]), {})[share] = entry["loss"]["current"]
    if not logged:
        raise UserError(f"{run} has no loss `current`; runs of ipseg with decoupling have.")
    return {step: _by_part(values) for step, values in logged.items()}


def _by_part(values: dict[float, float]) -> dict[str, float]:
    parts = {}
    for low, high in pairwise(PARTS):
        within = [value for share, value in values.items() if low < share <= high]
        if within:
            parts[f"{low}-{high} %"] = round(fmean(within), 3)
    return parts


def main(words: Sequence[str] | None = None) -> int:
    """Read the logs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(words)
    try:
        for run in options.runs:
            require_place(options.out, run)
        found = {run.as_posix(): losses(run) for run in options.runs}
    except UserError as error:
        print(error, file=sys.stderr)
        return WRONG
    lines = [f"{json.dumps(run)}: {json.dumps(steps)}" for run, steps in found.items()]
    what = "the mean of the loss `current` over parts of a step, as logged"
    write_text(options.out, f'{{"what": {json.dumps(what)}, "runs": {{\n' + ",\n".join(lines) + "\n}}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
