"""Figures of what after.py measured, as SVG and PNG: `python benchmarks/real/figures.py after.json --out figures`.

Runs that differ in their seeds alone are one row: their pixels are counted together, their numbers are means.
`--runs` chooses rows, in the order in which they are drawn.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ipseg.errors import WRONG, UserError, unknown
from ipseg.files import read_json
from ipseg.report.plot_style import label_ends, run_colour, save, short, styled
from ipseg.scenario.split import BACKGROUND

VERSION = 1
MOST = 40
"""Per cent at which histograms are cut off: one bin of a softmax would flatten all others. Its number stands there."""
Rows = dict[str, list[dict[str, Any]]]
"""What a row is called -> its runs."""
WHICH = {"true": ("the true class", run_colour(0)), "winning": ("the winning class", run_colour(1))}
LEVELS = {"posterior": run_colour(0), "pixel": run_colour(1), "both": run_colour(2)}
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


def truths(run: dict[str, Any], rows: Rows) -> dict[str, set[str]]:
    """The classes of base, new and background. What learned all at once is split as one that learned in steps was."""
    classes = {*run["base"], *run["new"]}
    others = [other for entries in rows.values() for other in entries if other["new"]]
    like = next((other for other in [run, *others] if other["new"] and {*other["base"], *other["new"]} == classes), run)
    return {"base": set(like["base"]), "new": set(like["new"]), BACKGROUND: {BACKGROUND}}


# ---- wrongly predicted pixels ---------------------------------------------------------------------------------------


def probabilities(rows: Rows, reading: str) -> Figure:
    """How likely the true and the winning class are in wrongly predicted pixels; a panel a row."""
    across = min(3, len(rows))
    figure, panels = _panels(-(-len(rows) // across), across, sharey=True)
    for axes, (name, runs) in zip(panels.flat, rows.items(), strict=False):
        _histograms(axes, runs, set(runs[0]["pixels"]), reading, short(name, 30))
    return _finish_histograms(figure, panels, len(rows), reading)


def by_truth(rows: Rows, reading: str) -> Figure:
    """The same, split by what the pixels truly are."""
    groups = ("base", "new", BACKGROUND)
    figure, panels = _panels(len(rows), len(groups), sharey=True)
    for line, (name, runs) in zip(panels, rows.items(), strict=True):
        for axes, group in zip(line, groups, strict=True):
            _histograms(axes, runs, truths(runs[0], rows)[group], reading, f"{short(name)}, {group}")
    return _finish_histograms(figure, panels, panels.size, reading)


def _histograms(axes: Axes, runs: Sequence[dict[str, Any]], classes: set[str], reading: str, title: str) -> None:
    """Shares of the wrong pixels whose true class is one of these."""
    pixels = sum(run["pixels"][name] for run in runs for name in classes)
    said = "no such class"
    for which, (_, colour) in WHICH.items():
        found = [bins for run in runs for name, bins in run["wrong"][reading][which].items() if name in classes]
        counts = np.sum(found, axis=0) if found else np.zeros(1, dtype=int)
        shares = 100 * counts / max(1, counts.sum())
        places = np.linspace(0, 1, len(counts) + 1)
        axes.stairs(shares, places, fill=True, color=colour, alpha=0.25)
        axes.stairs(shares, places, color=colour, linewidth=1.6)
        for place in np.flatnonzero(shares > MOST):
            side: dict[str, Any] = {"ha": "left" if place < len(counts) / 2 else "right", "va": "top", "fontsize": 8}
            axes.text(places[place + (place < len(counts) / 2)], MOST, f" {shares[place]:.0f} ", color=colour, **side)
        if pixels:
            said = f"{100 * counts.sum() / pixels:.1f} % of pixels wrong"
    axes.set_title(f"{title}: {said}", loc="left", fontsize=9)


def _finish_histograms(figure: Figure, panels: Any, drawn: int, reading: str) -> Figure:
    kind = "final score" if reading == "as_is" else "final score, of a sum of 1 over classes"
    for position, axes in enumerate(panels.flat):
        axes.set_visible(position < drawn)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, MOST)
        axes.grid(visible=False, axis="x")
    handles = [Axes.stairs(panels.flat[0], [0], [0, 0], color=colour, fill=True) for _, colour in WHICH.values()]
    names = [f"of {said}" for said, _ in WHICH.values()]
    title = {"title": f"Share of wrongly predicted pixels (%) over the {kind}", "alignment": "left"}
    figure.legend(handles, names, loc="outside upper left", ncols=2, frameon=False, **title)
    return figure


def mean_probabilities(rows: Rows) -> Figure:
    """The mean distribution over classes in wrongly predicted pixels of each true class; a panel a row."""
    across = min(3, len(rows))
    classes = max(len(run["pixels"]) for runs in rows.values() for run in runs)
    side = max(3.4, 0.42 * classes)
    figure, panels = _panels(-(-len(rows) // across), across, (side, side - 0.2))
    for axes in panels.flat[len(rows) :]:
        axes.set_visible(False)
    for axes, (name, runs) in zip(panels.flat, rows.items(), strict=False):
        names = list(runs[0]["pixels"])
        means = np.array([[_pooled_mean(runs, true, other) for other in names] for true in names])
        axes.imshow(means, cmap="Blues", vmin=0, vmax=1)
        for (down, right), mean in np.ndenumerate(means) if len(names) <= 12 else ():
            text = "" if np.isnan(mean) else f"{100 * mean:.0f}"
            axes.text(right, down, text, ha="center", va="center", fontsize=7, color="white" if mean > 0.6 else None)
        axes.set_xticks(range(len(names)), [short(each, 12) for each in names], rotation=90)
        axes.set_yticks(range(len(names)), [short(each, 12) for each in names])
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        axes.set_title(short(name, 30), loc="left", fontsize=9)
    figure.supylabel("true class", fontsize=9)
    title = "Mean probability (%) of every class where the true class is missed; rows add up to 100"
    figure.suptitle(title, x=0.01, ha="left", fontsize=9)
    return figure


def _pooled_mean(runs: Sequence[dict[str, Any]], true: str, other: str) -> float:
    """Over the wrong pixels of all seeds; NaN where there are none."""
    parts = [run["wrong"]["normalised"] for run in runs if true in run["wrong"]["normalised"]["true"]]
    weights = [sum(part["true"][true]) for part in parts]
    values = [part["mean"][true].get(other, 0.0) for part in parts]
    return float(np.average(values, weights=weights)) if parts else float("nan")


# ---- curves ---------------------------------------------------------------------------------------------------------


def alphas(rows: Rows) -> Figure | None:
    """All-mIoU over settings of inference: a thin line a seed, a ring at the own setting, whose value is named."""
    varied = {name: runs for name, runs in rows.items() if runs[0]["curves"]}
    if not varied:
        return None
    figure, panels = _panels(1, len(CURVES), (4.4, 3.0), sharey=True)
    named: list[list[tuple[float, str, str]]] = [[] for _ in CURVES]
    for axes, (curve, title), ends in zip(panels.flat, CURVES.items(), named, strict=True):
        for position, (name, runs) in enumerate(varied.items()):
            if curve not in runs[0]["curves"]:
                continue
            values = [point["value"] for point in runs[0]["curves"][curve]]
            seeds = [[100 * point["all"] for point in run["curves"][curve]] for run in runs]
            means = [statistics.fmean(each) for each in zip(*seeds, strict=True)]
            colour, own = run_colour(position), values.index(runs[0]["own"][curve])
            for seed in seeds if len(seeds) > 1 else ():
                axes.plot(values, seed, color=colour, linewidth=0.9, alpha=0.45)
            axes.plot(values, means, color=colour, linewidth=2, marker="o", markersize=4)
            ring: dict[str, Any] = {"markersize": 9, "markerfacecolor": "none", "markeredgewidth": 1.8}
            axes.plot([values[own]], [means[own]], "o", color=colour, **ring)
            ends.append((means[-1], f"{short(name)} {means[own]:.1f}", colour))
        axes.set_title(f"mIoU of all classes over {title}, %", loc="left", fontsize=9)
        axes.grid(visible=False, axis="x")
        axes.margins(x=0.08 if curve != "unknown" else 0.3, y=0.12)
        if curve == "unknown":
            axes.set_xticks([0, 1], ["joins the background", "is dropped"])
    for axes, ends in zip(panels.flat, named, strict=True):
        label_ends(axes, ends)  # now that the last panel has decided how high all are
    return figure


def image_accuracy(rows: Rows) -> Figure:
    """The share of pictures whose set of classes is exactly right after every step: base classes, and all seen."""
    figure, panels = _panels(len(rows), 2, (4.8, 2.3), sharey=True)
    for line, (name, runs) in zip(panels, rows.items(), strict=True):
        for axes, group in zip(line, ("base", "all"), strict=True):
            steps, ends = [step["step"] for step in runs[0]["image_accuracy"]], []
            for level, seeds in _levels(runs, group).items():
                means = [statistics.fmean(values) for values in zip(*seeds, strict=True)]
                axes.plot(steps, means, color=LEVELS[level], linewidth=2, marker="o", markersize=4, clip_on=False)
                if len(seeds) > 1:
                    spreads = [statistics.stdev(values) for values in zip(*seeds, strict=True)]
                    low, high = ([m + sign * s for m, s in zip(means, spreads, strict=True)] for sign in (-1, 1))
                    axes.fill_between(steps, low, high, color=LEVELS[level], alpha=0.14, linewidth=0)
                ends.append((means[-1], f"{level} {means[-1]:.1f}", LEVELS[level]))
            axes.set_title(f"{short(name, 30)}, {group} classes", loc="left", fontsize=9)
            axes.set_xticks(steps)
            if not runs[0]["new"]:  # learned at once: all classes are base
                axes.set_visible(group == "all")
                axes.tick_params(labelleft=True)
            axes.set_xlim(steps[0] - 0.2, max(steps[-1], 1) + 0.2)
            axes.grid(visible=False, axis="x")
            axes.set_ylim(0, 100)
            label_ends(axes, ends)
    figure.suptitle(
        "Pictures with exactly the right set of classes (%), after every step", x=0.01, ha="left", fontsize=9
    )
    figure.supxlabel("step", fontsize=9)
    return figure


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


def _panels(down: int, across: int, size: tuple[float, float] = (3.6, 2.1), **shared: Any) -> tuple[Figure, Any]:
    figure = Figure(figsize=(size[0] * across + 0.4, size[1] * down + 0.6), layout="constrained")
    return figure, figure.subplots(down, across, squeeze=False, **shared)


def main(words: Sequence[str] | None = None) -> int:
    """Draw everything that the file has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="a folder")
    parser.add_argument("--runs", nargs="+", default=[], metavar="NAME", help="rows to draw; all by default")
    options = parser.parse_args(words)
    drawings: dict[str, Callable[[Rows], Figure | None]] = {
        "probabilities": lambda rows: probabilities(rows, "as_is"),
        "probabilities_normalised": lambda rows: probabilities(rows, "normalised"),
        "probabilities_by_truth": lambda rows: by_truth(rows, "as_is"),
        "mean_probabilities": mean_probabilities,
        "alphas": alphas,
        "image_accuracy": image_accuracy,
    }
    try:
        rows = rows_of(read_json(options.file, "the measurements", VERSION)["runs"], options.runs)
        options.out.mkdir(parents=True, exist_ok=True)
        for name, draw in drawings.items():
            with styled(page=False):
                if figure := draw(rows):
                    save(figure, options.out / f"{name}.svg")
                    save(figure, options.out / f"{name}.png")
    except UserError as error:
        print(error, file=sys.stderr)
        return WRONG
    return 0


if __name__ == "__main__":
    sys.exit(main())
