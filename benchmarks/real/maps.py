"""Label maps of the same validation pictures, by every run after its last step, beside the truth: no photograph.

    python benchmarks/real/maps.py look runs/main/runs/{ssul_m,ipseg}_2-1_s0 --out maps.npz
    python benchmarks/real/maps.py draw maps.npz --runs ssul_m ipseg --out maps.png

Pictures are chosen by their masks alone: for each class one in which it is as large as it usually is. What is wrong is
outlined. The first command adds to its file, so runs need not all be on one machine.
"""

from __future__ import annotations

import argparse
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from ipseg.apps.compare import compare
from ipseg.apps.gallery import make_gallery
from ipseg.data.dataset import DatasetSplits
from ipseg.errors import WRONG, UserError, unknown
from ipseg.files import replacing
from ipseg.report.figures import save, short, styled
from ipseg.report.overlay import outline
from ipseg.report.palette import IGNORE, as_hex, colors
from ipseg.scenario.split import Scenario
from ipseg.training.system import choose_device

WIDTH = 1.75
"""Inches of a picture."""
TRUTH, CLASSES = "annotated", "classes"
Maps = dict[str, NDArray[np.uint8]]
"""Picture -> its labels."""


def read(path: Path) -> tuple[list[str], dict[str, Maps]]:
    """Names of the classes, background first; and the maps of the truth and of every run."""
    found: dict[str, Maps] = {}
    try:
        with np.load(path, allow_pickle=False) as file:
            for key in file.files:
                if key != CLASSES:
                    run, picture = key.split("/", 1)
                    found.setdefault(run, {})[picture] = file[key]
            return file[CLASSES].tolist(), found
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} cannot be read as label maps ({error}); `maps.py look` writes them.") from error


def typical(splits: DatasetSplits, scenario: Scenario) -> list[int]:
    """Of every class the picture in which its share is the median, or the next one that is not shown yet."""
    chosen: list[int] = []
    presence = splits.val.class_presence()
    for name in scenario.order:
        value = 1 + splits.classes.index(name)
        there = [index for index, present in enumerate(presence) if value in present]
        there.sort(key=lambda index: float((splits.val.mask(index) == value).mean()))
        chosen += [index for index in there[len(there) // 2 :] if index not in chosen][:1]
    return chosen


def look(runs: Sequence[Path], device: str, out: Path) -> None:
    """Have the runs label the pictures, and add that to the file."""
    tables = compare(runs)
    if len(tables) > 1:
        raise UserError(f"the runs are of {len(tables)} scenarios; name those of one, and of joint training.")
    shown, missing = make_gallery(tables[0].rows, typical, choose_device(device), print)
    if missing or not shown.images:
        reasons = [f"{run}: {reason}" for run, reason in missing.items()]
        raise UserError(" ".join(reasons) or "there is no image to show.")
    found = {TRUTH: {image.name: image.truth.astype(np.uint8) for image in shown.images}}
    for run in shown.images[0].predictions:
        found[run] = {image.name: list(image.predictions[run].values())[-1].astype(np.uint8) for image in shown.images}
    if out.exists():
        classes, before = read(out)
        if (classes, list(before[TRUTH])) != (list(shown.names), list(found[TRUTH])):
            raise UserError(f"{out} is of other classes or pictures; write to another file.")
        found = before | found
    arrays = {f"{run}/{picture}": labels for run, maps in found.items() for picture, labels in maps.items()}
    with replacing(out) as place, place.open("wb") as file:
        np.savez_compressed(file, **{CLASSES: np.array(shown.names)}, **arrays)


def draw(path: Path, runs: Sequence[str], out: Path) -> None:
    """A row a picture, a column a run."""
    classes, found = read(path)
    for run in runs:
        if run not in found:
            raise unknown("run", run, found)
    columns = [TRUTH, *(runs or [run for run in found if run != TRUTH])]
    with styled():
        rows = len(found[TRUTH])
        figure = Figure(figsize=(WIDTH * len(columns), 0.78 * WIDTH * rows + 0.5), layout="constrained")
        for cells, (picture, truth) in zip(
            figure.subplots(rows, len(columns), squeeze=False), found[TRUTH].items(), strict=True
        ):
            for cell, run in zip(cells, columns, strict=True):
                labels = found[run][picture]
                _cell(cell, labels, (labels != truth) & (truth != IGNORE))
        for cell, name in zip(figure.axes, columns, strict=False):
            cell.set_title(short(name), fontsize=9)
        palette = colors()
        patches = [Patch(color=as_hex(palette[label]), label=name) for label, name in enumerate(classes) if label]
        side_by_side = min(len(patches), 2 * len(columns))
        figure.legend(handles=patches, loc="outside lower center", ncols=side_by_side, frameon=False, fontsize=8)
        save(figure, out)


def _cell(cell: Axes, labels: NDArray[np.uint8], wrong: NDArray[np.bool_]) -> None:
    picture = colors()[labels]
    picture[outline(wrong.astype(np.uint8))] = 255
    cell.imshow(picture, interpolation="nearest")
    cell.set(xticks=[], yticks=[])
    for spine in cell.spines.values():
        spine.set_visible(False)


def main(words: Sequence[str] | None = None) -> int:
    """Look or draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    jobs = parser.add_subparsers(dest="job", required=True)
    looking = jobs.add_parser("look")
    looking.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    looking.add_argument("--out", type=Path, required=True, help=".npz; it is added to")
    looking.add_argument("--device", default="auto")
    drawing = jobs.add_parser("draw")
    drawing.add_argument("maps", type=Path)
    drawing.add_argument("--runs", nargs="+", default=[], help="columns in this order; all, where not said")
    drawing.add_argument("--out", type=Path, required=True, help=".png or .svg")
    options = parser.parse_args(words)
    try:
        if options.job == "look":
            look(options.runs, options.device, options.out)
        else:
            draw(options.maps, options.runs, options.out)
    except UserError as error:
        print(error, file=sys.stderr)
        return WRONG
    return 0


if __name__ == "__main__":
    sys.exit(main())
