"""The tables of docs/performance.md from what speed.py wrote: `python benchmarks/speed_table.py speed.json`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from operations import BATCH, teraflop

Row = dict[str, Any]
VISITS = {"swin-b 15-1 step 0": 9568 * 50, "swin-b 15-1 step -1": 2325 * 50}
"""Pictures that the paper's VOC 15-1 shows: its first step, and the five others, counted at the speed of the last."""


def training(rows: list[Row], peak: float) -> list[str]:
    """Images a second of every case and way, beside the plain one."""
    lines = ["| case | way | compute alone | | end to end | | memory | of the peak |", "|" + "---|" * 8]
    plain = {row["case"]: row for row in rows if row["way"] == "plain"}
    for row in rows:
        beside = plain.get(row["case"], row)
        rates = [f"{row[key]:.1f} | {row[key] / beside[key]:.2f} x" for key in ("compute", "end_to_end")]
        share = "" if row["way"] == "plain" or "gate" in row["way"] else f"{_of_peak(row, peak):.0%}"
        told = [row["case"], row["way"], *rates, f"{row['memory_gib']:.1f} GiB", share]
        lines.append(f"| {' | '.join(told)} |")
    return lines


def _of_peak(row: Row, peak: float) -> float:
    """Which share of what the device reaches in a large product; a way that computes less is measured by that."""
    return teraflop(row["case"], fixed="fixed" in row["way"]) * row["compute"] / BATCH / peak


def inference(rows: list[Row]) -> list[str]:
    """Images a second after so many steps."""
    lines = ["| network | steps | batch | way | images a second | |", "|" + "---|" * 6]
    plain = {(row["network"], row["steps"], row["batch"]): row["rate"] for row in rows if row["way"] == "plain"}
    for row in rows:
        ratio = row["rate"] / plain[row["network"], row["steps"], row["batch"]]
        way = f"{row['way']}{', compile' if row.get('compile') else ''}"
        told = [row["network"], str(row["steps"]), str(row["batch"]), way, f"{row['rate']:.1f}", f"{ratio:.2f} x"]
        lines.append(f"| {' | '.join(told)} |")
    return lines


def whole_run(rows: Iterable[Row]) -> list[str]:
    """How long the paper's VOC 15-1 takes at the best speeds, end to end."""
    best = {case: max((r["end_to_end"] for r in rows if r["case"] == case), default=0.0) for case in VISITS}
    if not all(best.values()):
        return []
    minutes = sum(VISITS[case] / rate for case, rate in best.items()) / 60
    return [f"VOC 15-1, {sum(VISITS.values()):,} visits: {minutes:.0f} minutes, compiling and measuring not counted."]


def main() -> None:
    """Print all tables that the files have rows for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    rows = [row for file in parser.parse_args().files for row in json.loads(file.read_text(encoding="utf-8"))]
    peak = max(row.get("matrix_tflops", 0) for row in rows)
    trained = [row for row in rows if "compute" in row]
    labelled = [row for row in rows if "rate" in row]
    parts = [training(trained, peak) if trained else [], inference(labelled) if labelled else [], whole_run(trained)]
    print("\n\n".join("\n".join(part) for part in parts if part))
    for row in rows:
        if "error" in row:
            print(row)


if __name__ == "__main__":
    main()
