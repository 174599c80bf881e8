"""The result in one picture: mIoU over steps, and the IoU of every class at the end, from what collect.py wrote.

    python benchmarks/curves.py benchmarks/results/NAME.jsonl --scenario 2-1 --run ipseg --run ssul_m --out curves.png

Bands are the spread over seeds. Runs come in the order of `--run`; without it, all of them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from tables import Wanted

from ipseg.errors import WRONG, UserError
from ipseg.report.compare import Section
from ipseg.report.groups import drawn
from ipseg.report.plot_style import save, styled
from ipseg.report.plots import CLASSES_TITLE, draw_iou_per_class, draw_miou_over_steps


def draw(section: Section, out: Path) -> None:
    """Both plots side by side; the lines' ends are the legend of both."""
    rows = drawn(section)
    with styled(page=False):
        figure = Figure(figsize=(9.4, 3.8), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[1, 1.15])
        draw_miou_over_steps(left, rows)
        draw_iou_per_class(right, rows)
        right.set_title(CLASSES_TITLE, loc="left", fontsize=9)
        figure.get_layout_engine().set(wspace=0.06)
        save(figure, out)


def command(draw: Callable[[Section, Path], None], about: str | None, words: Sequence[str] | None) -> int:
    """Draw one scenario, as the words of the command line say."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--scenario", required=True)
    parser.add_argument("--run", dest="runs", action="append", default=[])
    parser.add_argument("--out", type=Path, required=True, help=".png or .svg")
    options = parser.parse_args(words)
    try:
        wanted = Wanted(table="main", files=tuple(options.files), scenario=options.scenario, runs=tuple(options.runs))
        (section,) = wanted.sections()
        draw(section, options.out)
    except UserError as error:
        print(error, file=sys.stderr)
        return WRONG
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """The two plots."""
    return command(draw, __doc__, words)


if __name__ == "__main__":
    sys.exit(main())
