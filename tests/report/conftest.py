from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ipseg.evaluation.results import RunResult, StepResult
from ipseg.report.compare import ComparedRun, ResultTable, make_tables
from ipseg.report.page import Gallery, GalleryImage

STEPS = (("person", "car", "<b>dog</b>"), ("cat",), ("bus", "sofa"))
NAMES = ("background", *(name for new in STEPS for name in new))

MakeRun = Callable[..., RunResult]
TableOf = Callable[..., ResultTable]


def make_run(
    name: str = "ipseg", quality: float = 0.6, keep: float = 0.9, steps: tuple[tuple[str, ...], ...] = STEPS, **fields
) -> RunResult:
    """A run whose classes start at `quality` and keep a share of it at every later step."""
    return RunResult(
        **{"method": "ipseg", "scenario": "scenes/3-1", "setting": "overlap", "seed": 0} | fields,
        name=name,
        steps=tuple(_step(quality, keep, steps, last) for last in range(len(steps))),
    )


def _step(quality: float, keep: float, steps: tuple[tuple[str, ...], ...], last: int) -> StepResult:
    iou: dict[str, float | None] = {"background": 0.9}
    for age, new in zip(range(last, -1, -1), steps, strict=False):
        iou |= dict.fromkeys(new, quality * keep**age)
    base = [iou[name] for name in ("background", *steps[0])]
    new = [iou[name] for later in steps[1 : last + 1] for name in later]
    means = {"all": _mean(list(iou.values())), "base": _mean(base), "new": _mean(new), "harmonic": None}
    return StepResult(step=last, new=steps[last], iou=iou, miou=means)


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


@pytest.fixture(name="make_run", scope="session")
def make_run_fixture() -> MakeRun:
    return make_run


@pytest.fixture(scope="session")
def table_of() -> TableOf:
    """The table of results of one setup; those of one name are seeds of one row, `joint` is an upper bound."""

    def make(*results: RunResult) -> ResultTable:
        runs = []
        for result in results:
            bound = result.name == "joint"
            runs.append(
                ComparedRun(result=result, group=result.name, bound=bound, compared_in=STEPS if bound else None)
            )
        (table,) = make_tables(runs)
        return table

    return make


@pytest.fixture(scope="session")
def runs() -> list[RunResult]:
    return [make_run("ipseg"), make_run("finetune", 0.7, 0.2), make_run("<i>ablated</i>", 0.55, 0.7)]


@pytest.fixture(scope="session")
def joint() -> RunResult:
    return make_run("joint", steps=(NAMES[1:],))


@pytest.fixture(scope="session")
def gallery(runs: list[RunResult]) -> Gallery:
    random = np.random.default_rng(0)
    image = random.integers(0, 256, (40, 56, 3), dtype=np.uint8)
    truth = random.integers(0, len(NAMES), (40, 56)).astype(np.uint8)
    truth[:4] = 255
    maps = {step: np.where(truth <= last, truth, 0) for step, last in enumerate((3, 4, 6))}
    return Gallery(NAMES, [GalleryImage("old/one: cat & dog", image, truth, {run.name: maps for run in runs})])
