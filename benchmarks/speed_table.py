"""The tables of docs/performance.md from what speed.py wrote: `python benchmarks/speed_table.py speed.jsonl`.

Also of files in benchmarks/results, whose rows say in which `run` of speed.py they were measured: each run by itself.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from operations import BATCH, teraflop

Row = dict[str, Any]
VISITS = {"swin-b 15-1 step 0": 9568 * 50, "swin-b 15-1 step -1": 2325 * 50}
"""Pictures that the paper's VOC 15-1 shows: its first step, and the five others, counted at the speed of the last."""


def training(rows: Sequence[Row], peak: float | None) -> list[str]:
    """Images a second of every case and way, beside the plain one."""
    lines = ["| case | way | compute alone | | end to end | | memory | of the peak |", "|" + "---|" * 8]
    for row, plain in _beside_plain(rows, ("case",)):
        rates = [f"{row[key]:.1f} | {_times(row, plain, key)}" for key in ("compute", "end_to_end")]
        share = "" if not peak or row["way"] == "plain" or "gate" in row["way"] else f"{_of_peak(row, peak):.0%}"
        told = [row["case"], row["way"], *rates, f"{row['memory_gib']:.1f} GiB", share]
        lines.append(f"| {' | '.join(told)} |")
    return lines


def _of_peak(row: Row, peak: float) -> float:
    """Which share of what the device reaches in a large product; a way that computes less is measured by that."""
    return teraflop(row["case"], fixed="fixed" in row["way"]) * row["compute"] / BATCH / peak


def inference(rows: Sequence[Row]) -> list[str]:
    """Images a second after so many steps."""
    lines = ["| network | steps | batch | way | images a second | |", "|" + "---|" * 6]
    for row, plain in _beside_plain(rows, ("network", "steps", "batch")):
        way = f"{row['way']}{', compile' if row.get('compile') else ''}"
        rate = [f"{row['rate']:.1f}", _times(row, plain, "rate")]
        told = [row["network"], str(row["steps"]), str(row["batch"]), way, *rate]
        lines.append(f"| {' | '.join(told)} |")
    return lines


def _beside_plain(rows: Sequence[Row], keys: Sequence[str]) -> list[tuple[Row, Row | None]]:
    """Each row and the plain one of the same kind, if there is any: the last before it, or else the first."""
    kinds = [tuple(row[key] for key in keys) for row in rows]
    plain = {kind: row for kind, row in reversed([*zip(kinds, rows, strict=True)]) if row["way"] == "plain"}
    pairs = []
    for kind, row in zip(kinds, rows, strict=True):
        if row["way"] == "plain":
            plain[kind] = row  # what was measured again has its own
        pairs.append((row, plain.get(kind)))
    return pairs


def _times(row: Row, plain: Row | None, key: str) -> str:
    return f"{row[key] / plain[key]:.2f} x" if plain else ""


def whole_run(rows: Sequence[Row]) -> list[str]:
    """How long the paper's VOC 15-1 takes at the best speeds, end to end."""
    best = {case: max((r["end_to_end"] for r in rows if r["case"] == case), default=0.0) for case in VISITS}
    if not all(best.values()):
        return []
    minutes = sum(VISITS[case] / rate for case, rate in best.items()) / 60
    return [f"VOC 15-1, {sum(VISITS.values()):,} visits: {minutes:.0f} minutes, compiling and measuring not counted."]


def tables(name: str, rows: Sequence[Row]) -> list[str]:
    """All tables that a run has rows for, under its name, and what failed in it."""
    peak = max((row["matrix_tflops"] for row in rows if "matrix_tflops" in row), default=None)
    trained = [row for row in rows if "compute" in row]
    labeled = [row for row in rows if "rate" in row]
    parts = [training(trained, peak) if trained else [], inference(labeled) if labeled else [], whole_run(trained)]
    failed = [str(row) for row in rows if "error" in row]
    return ["\n".join(part) for part in ([f"**{name}**"] if name else [], *parts, failed) if part]


def main(words: Sequence[str] | None = None) -> None:
    """Print the tables of every run in the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    runs: dict[str, list[Row]] = {}
    for file in parser.parse_args(words).files:
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            runs.setdefault(row.get("run", ""), []).append(row)
    print("\n\n".join(part for name, rows in runs.items() for part in tables(name, rows)))


if __name__ == "__main__":
    main()
