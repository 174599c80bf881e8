"""Compute the golden curves anew, print what moved, and store it.

    python tests/golden/regenerate.py                   # all curves
    python tests/golden/regenerate.py --only plop       # one of them (again for more)
    python tests/golden/regenerate.py --check           # store nothing; the exit status is 1 if a curve moved
    python tests/golden/regenerate.py --bits FILE       # store nothing here; write all numbers to the last bit

A curve that moved less than the tolerance keeps its file. The last form is for benchmarks/compare_commits.py. The code
that runs is that of the tree in which this script lies, whichever version is installed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))

import golden_curves
import torch
from golden_adapter import CASES, ENGINE
from golden_curves import Record, changes, compute, flat, moved, path_of, store, stored


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line a curve; 1 if `--check` finds one that moved."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", choices=[*CASES, ENGINE], metavar="NAME")
    parser.add_argument("--check", action="store_true", help="store nothing; exit status 1 if a curve moved")
    parser.add_argument("--bits", type=Path, metavar="FILE", help="write all numbers to the last bit, and nothing else")
    options = parser.parse_args(arguments)
    cases = options.only or [*CASES, ENGINE]
    if options.bits:
        options.bits.write_text(json.dumps({case: bits(case) for case in cases}), encoding="utf-8")
        return 0
    stale = 0
    for case in cases:
        new = compute(case)
        old = stored(case) if path_of(case).is_file() else None
        differs = old is None or bool(moved(old, new))
        print(f"{case:30} {'new' if old is None else largest_changes(old, new)}", flush=True)
        stale += differs
        if differs and not options.check:
            store(case, new)
    if not options.only and not options.check:
        for path in golden_curves.without_case():
            path.unlink()
            print(f"{path.stem:30} removed: no such case")
    return int(options.check and stale > 0)


def largest_changes(old: Record, new: Record) -> str:
    """The largest relative change of each step and of what comes after, and which number was the first to move."""
    every, large = changes(old, new), moved(old, new)
    groups: dict[str, list[str]] = {}
    for label in every:
        groups.setdefault(label.split(",")[0] if label.startswith("step") else label.split()[0], []).append(label)
    largest = "; ".join(f"{group} {max(every[label] for label in labels):.1e}" for group, labels in groups.items())
    return f"{largest}; MOVED, first {next(iter(large))}" if large else largest


def bits(case: str) -> dict[str, str]:
    """All numbers of a case, exactly. The run through the engine is in single precision, as users run it."""
    return {label: value.hex() for label, value in flat(compute(case, double=case != ENGINE)).items()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
