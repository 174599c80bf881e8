"""Figures of what after.py measured: `python benchmarks/real/figures.py after.json --out figures`.

Runs that differ in their seeds alone are one row: their pixels are counted together, their numbers are means.
`--runs` chooses rows, in the order in which they are drawn, `--only` figures.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from wrong_pixels import Rows, by_truth, mean_probabilities, panels_of, probabilities

from ipseg.errors import WRONG, UserError, unknown
from ipseg.files import read_json
from ipseg.report.figures import COLORS, legend_beside, save, short, styled

VERSION = 1
LEVELS = {"posterior": COLORS[0], "pixel": COLORS[1], "both": COLORS[2]}
CURVES = {"alpha_nf": "alpha_NF", "alpha_bc": "alpha_BC", "unknown": "c'_u at inference"}


# ---- rows -----------------------------------------------------------------------------------------------------------


def rows_of(runs: dict[str, dict[str, Any]], wanted: Sequence[str] = ()) -> Rows:
    """The runs by what they are called: by their names, and by whatever else tells them apart."""
    parts = {key: (run["scenario"], run["setting"], " ".join(run["set"])) for key, run in runs.items()}
    kinds = [{word for word in kind if not word.endswith("joint")} for kind in zip(*parts.values(), strict=True)]
    names = {}
    for key, part in parts.items():
        apart = [word.rpartition("/")[2] for word, kind in zip(part, kinds, strict=True) if word and {word} < kind]
        names[key] = " ".join([runs[key]["name"], *apart])
    twice = Counter((names[key], run["seed"]) for key, run in runs.items())
    found: Rows = {}
    for key, run in runs.items():
        alone = twice[names[key], run["seed"]] == 1
        found.setdefault(names[key] if alone else key, []).append(run)  # two of one seed must not look like two seeds
    if not found:
        raise UserError("the file has no runs yet; after.py measures them.")
    for name in wanted:
        if name not in found:
            raise unknown("row", name, found)
    return {name: found[name] for name in wanted or found}


# ---- curves ---------------------------------------------------------------------------------------------------------


def alphas(rows: Rows) -> Figure | None:
    """All-mIoU over settings of inference: a thin line a seed, a ring and its number at the own setting."""
    varied = {name: runs for name, runs in rows.items() if runs[0]["curves"]}
    if not varied:
        return None
    figure, panels = panels_of(1, len(CURVES), (3.0, 2.6), sharey=True)
    for axes, (curve, title) in zip(panels.flat, CURVES.items(), strict=True):
        for position, (name, runs) in enumerate(varied.items()):
            if curve not in runs[0]["curves"]:
                continue
            values = [point["value"] for point in runs[0]["curves"][curve]]
            seeds = [[100 * point["all"] for point in run["curves"][curve]] for run in runs]
            means = [statistics.fmean(each) for each in zip(*seeds, strict=True)]
            color, own = COLORS[position % len(COLORS)], values.index(runs[0]["own"][curve])
            for seed in seeds if len(seeds) > 1 else ():
                axes.plot(values, seed, color=color, linewidth=0.9, alpha=0.45)
            axes.plot(values, means, color=color, linewidth=2, marker="o", markersize=4, label=short(name))
            _ring(axes, values[own], means[own], color)
        axes.set_title(f"mIoU of all classes over {title}, %", loc="left", fontsize=9)
        axes.grid(visible=False, axis="x")
        axes.margins(x=0.08 if curve != "unknown" else 0.3, y=0.12)
    axes.set_xticks([0, 1], ["joins the background", "is dropped"])
    legend_beside(axes)  # the last panel has every run; its names are the legend of all
    return figure


def _ring(axes: Axes, value: float | str, mean: float, color: str) -> None:
    """Around a point of a curve, its number above it: the curve may end elsewhere."""
    ring: dict[str, Any] = {"markersize": 9, "markerfacecolor": "none", "markeredgewidth": 1.8}
    axes.plot([value], [mean], "o", color=color, **ring)
    halo = [withStroke(linewidth=3, foreground="white")]  # thin lines of seeds pass behind it
    place: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "path_effects": halo}
    axes.annotate(f"{mean:.1f}", (value, mean), (0, 8), weight="bold", **place)


def image_accuracy(rows: Rows) -> Figure | None:
    """The share of pictures whose set of classes is exactly right after every step: base classes, and all seen."""
    learned = {name: runs for name, runs in rows.items() if runs[0]["new"]}
    bounds = {name: runs for name, runs in rows.items() if name not in learned}
    if not learned:
        return None
    figure, panels = panels_of(len(learned), 2, (4.8, 2.3), sharey=True)
    for line, (name, runs) in zip(panels, learned.items(), strict=True):
        for axes, group in zip(line, ("base", "all"), strict=True):
            _accuracy_lines(axes, runs, group)
            if group == "all":
                _bound_lines(axes, bounds)
            axes.set_title(f"{short(name, 30)}, {group} classes", loc="left", fontsize=9)
            axes.grid(visible=False, axis="x")
            axes.set_ylim(0, 100)
            legend_beside(axes)
    title = "Pictures with exactly the right set of classes (%), after every step"
    figure.suptitle(title, x=0.01, ha="left", fontsize=9)
    figure.supxlabel("step", fontsize=9)
    return figure


def _accuracy_lines(axes: Axes, runs: Sequence[dict[str, Any]], group: str) -> None:
    """Draws every level that was measured."""
    steps = [step["step"] for step in runs[0]["image_accuracy"]]
    for level, seeds in _levels(runs, group).items():
        means = [statistics.fmean(values) for values in zip(*seeds, strict=True)]
        style: dict[str, Any] = {"color": LEVELS[level], "label": f"{level} {means[-1]:.1f}"}
        axes.plot(steps, means, linewidth=2, marker="o", markersize=4, clip_on=False, **style)
        if len(seeds) > 1:
            spreads = [statistics.stdev(values) for values in zip(*seeds, strict=True)]
            low, high = ([m + sign * s for m, s in zip(means, spreads, strict=True)] for sign in (-1, 1))
            axes.fill_between(steps, low, high, color=LEVELS[level], alpha=0.14, linewidth=0)
    axes.set_xticks(steps)
    axes.set_xlim(steps[0] - 0.2, max(steps[-1], 1) + 0.2)


def _bound_lines(axes: Axes, bounds: Rows) -> None:
    """What learned all classes at once has one number, and is drawn as a line across."""
    for position, (name, runs) in enumerate(bounds.items(), start=len(LEVELS)):
        mean = statistics.fmean(seed[-1] for seed in _levels(runs, "all")["pixel"])
        style: dict[str, Any] = {"color": COLORS[position % len(COLORS)], "label": f"{short(name)} {mean:.1f}"}
        axes.axhline(mean, linewidth=1.6, linestyle="--", **style)


def _levels(runs: Sequence[dict[str, Any]], group: str) -> dict[str, list[list[float]]]:
    """Each way to say which classes are there -> percent after every step, by seeds, where it was measured."""
    found = {}
    for level in LEVELS:
        seeds = [[step.get(group, {}).get(level) for step in run["image_accuracy"]] for run in runs]
        if all(value is not None for seed in seeds for value in seed):
            found[level] = [[100 * value for value in seed] for seed in seeds]
    if found.keys() == {"pixel", "both"}:  # without a posterior they are one and the same
        found.pop("both")
    return found


DRAWINGS: dict[str, Callable[[Rows], Figure | None]] = {
    "probabilities": lambda rows: probabilities(rows, "as_is"),
    "probabilities_normalized": lambda rows: probabilities(rows, "normalized"),
    "probabilities_by_truth": lambda rows: by_truth(rows, "as_is"),
    "mean_probabilities": mean_probabilities,
    "alphas": alphas,
    "image_accuracy": image_accuracy,
}


def main(words: Sequence[str] | None = None) -> int:
    """Draw what the file has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="a folder")
    parser.add_argument("--runs", nargs="+", default=[], metavar="NAME", help="rows to draw; all by default")
    parser.add_argument("--only", nargs="+", choices=DRAWINGS, default=list(DRAWINGS), help="all by default")
    options = parser.parse_args(words)
    try:
        rows = rows_of(read_json(options.file, "the measurements", VERSION)["runs"], options.runs)
        options.out.mkdir(parents=True, exist_ok=True)
        for name in options.only:
            with styled():
                if figure := DRAWINGS[name](rows):
                    save(figure, options.out / f"{name}.png")
    except UserError as error:
        print(error, file=sys.stderr)
        return WRONG
    return 0


if __name__ == "__main__":
    sys.exit(main())
