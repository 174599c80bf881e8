"""The figures of the docs from results.jsonl files (`make results`).

    python benchmarks/figures.py demo/results.jsonl --run ipseg --run finetune --out docs/images/demo.png

Left: mIoU over all classes seen so far, step by step, with the standard deviation over seeds. Right: IoU of every class
after the last step.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tables import Rows, chosen, is_joint, mean, read

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")


def draw_curves(axes: Axes, rows: Rows) -> None:
    """A line a method with its band; joint training is a dashed level."""
    steps = max(len(runs[0]["steps"]) for runs in rows.values())
    for (name, runs), color in zip(rows.items(), COLORS, strict=False):
        curves = [[100 * (mean(step["iou"].values()) or 0) for step in run["steps"]] for run in runs]
        middle = [statistics.fmean(values) for values in zip(*curves, strict=True)]
        label = f"{name} {middle[-1]:.1f}"
        if is_joint(runs[0]):
            axes.axhline(middle[-1], color=color, linestyle="--", linewidth=1, label=label)
            continue
        axes.plot(range(steps), middle, "o-", color=color, markersize=3, label=label)
        if len(runs) > 1:
            spread = [statistics.stdev(values) for values in zip(*curves, strict=True)]
            low, high = ([m + sign * s for m, s in zip(middle, spread, strict=True)] for sign in (-1, 1))
            axes.fill_between(range(steps), low, high, color=color, alpha=0.15, linewidth=0)
    axes.set(xlabel="step", ylim=(0, 100), xticks=range(steps))
    axes.set_title("mIoU over all classes seen so far, %", loc="left", fontsize=9)


def draw_classes(axes: Axes, rows: Rows) -> None:
    """The mean IoU of every class after the last step, a dot a method."""
    learned = max((runs[0]["steps"] for runs in rows.values()), key=len)
    names = ["background", *(name for step in learned for name in step["new"])]
    for runs, color in zip(rows.values(), COLORS, strict=False):
        last = [run["steps"][-1]["iou"] for run in runs]
        values = [100 * (mean(iou[name] for iou in last) or 0) for name in names]
        axes.plot(values, range(len(names)), "o", color=color, markersize=6, alpha=0.85, clip_on=False)
    axes.axhline(len(learned[0]["new"]) + 0.5, color="#8f98a3", linewidth=1)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlim=(0, 100), ylim=(len(names) - 0.5, -0.5))
    axes.set_title("IoU after the last step, %; new classes below the line", loc="left", fontsize=9)


def main(words: Sequence[str] | None = None) -> int:
    """Draw one figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="results.jsonl files, relative to benchmarks/")
    parser.add_argument("--run", dest="runs", action="append", default=[])
    parser.add_argument("--scenario")
    parser.add_argument("--out", type=Path, required=True, help=".png or .svg")
    options = parser.parse_args(words)
    rows = chosen(read(options.files), options.runs, options.scenario)
    figure = Figure(figsize=(9.4, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.25, 1])
    draw_curves(left, rows)
    draw_classes(right, rows)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, linewidth=0.5)
        axes.tick_params(labelsize=8)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=6, fontsize=8, frameon=False)
    figure.savefig(options.out, dpi=130)
    return 0


if __name__ == "__main__":
    sys.exit(main())
