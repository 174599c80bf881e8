"""Label maps of the same validation pictures, by every run after its last step, beside the truth: no photograph.

    python benchmarks/real/maps.py runs/main/runs/{ssul_m,ipseg,joint}* --pictures 4 --out maps.png

Pictures are chosen by their masks alone: they show many classes, two or three in each. What is wrong is outlined.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from ipseg.apps.compare import compare
from ipseg.apps.report_pictures import Shelf, gallery
from ipseg.errors import WRONG, UserError
from ipseg.report.chapter import Gallery, SceneRow
from ipseg.report.overlay import outline
from ipseg.report.palette import IGNORE, as_hex, colours
from ipseg.report.plot_style import save, short, styled

WIDTH = 1.75
"""Inches of a picture."""
TRUTH = "annotated"


def draw(shown: Gallery, out: Path) -> None:
    """A row a picture, a column a run."""
    runs = list(shown.scenes[0].predictions)
    with styled(page=False):
        rows = len(shown.scenes)
        figure = Figure(figsize=(WIDTH * (1 + len(runs)), 0.78 * WIDTH * rows + 0.5), layout="constrained")
        for cells, scene in zip(figure.subplots(rows, 1 + len(runs), squeeze=False), shown.scenes, strict=True):
            _row(cells, scene, runs)
        for cell, name in zip(figure.axes, [TRUTH, *runs], strict=False):
            cell.set_title(short(name), fontsize=9)
        palette = colours(256)
        classes = [Patch(color=as_hex(palette[label]), label=name) for label, name in enumerate(shown.names) if label]
        columns = min(len(classes), 2 * (1 + len(runs)))
        figure.legend(handles=classes, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)
        save(figure, out)


def _row(cells: Sequence[Axes], scene: SceneRow, runs: Sequence[str]) -> None:
    truth = scene.truth.astype(np.uint8)
    _cell(cells[0], truth, np.zeros(truth.shape, dtype=bool))
    for cell, run in zip(cells[1:], runs, strict=True):
        found = scene.predictions[run][-1].astype(np.uint8)
        _cell(cell, found, (found != truth) & (truth != IGNORE))


def _cell(cell: Axes, labels: NDArray[np.uint8], wrong: NDArray[np.bool_]) -> None:
    picture = colours(256)[labels]
    picture[outline(wrong.astype(np.uint8))] = 255
    cell.imshow(picture, interpolation="nearest")
    cell.set(xticks=[], yticks=[])
    for spine in cell.spines.values():
        spine.set_visible(False)


def main(words: Sequence[str] | None = None) -> int:
    """Look and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--out", type=Path, required=True, help=".png or .svg")
    parser.add_argument("--pictures", type=int, default=4)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args(words)
    try:
        sections = compare(options.runs)
        if len(sections) > 1:
            raise UserError(f"the runs are of {len(sections)} scenarios; name those of one, and of joint training.")
        shown, missing = gallery(sections[0].lines, options.pictures, Shelf(options.device), print)
        if missing or not shown.scenes:
            raise UserError(" ".join(missing) or "there is no picture to show.")
        draw(shown, options.out)
    except UserError as error:
        print(error, file=sys.stderr)
        return WRONG
    return 0


if __name__ == "__main__":
    sys.exit(main())
