"""Evaluate a run again: with other inference settings, or on other images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ipseg.apps.run import Run
from ipseg.errors import UserError
from ipseg.evaluation.results import StepResult
from ipseg.progress import silence


def evaluate_again(
    path: Path,
    step: int | None = None,
    assignments: Sequence[str] = (),
    data: Path | None = None,
    *,
    quiet: bool = False,
) -> StepResult:
    """Measure the model after a step, on the classes that the data annotates. Does not modify the run."""
    run = Run.open(path, assignments)
    chosen = run.step(step)
    splits, _ = run.splits_for(data)
    if not set(chosen.seen) & set(splits.classes):
        raise UserError(  # background without classes would be right everywhere
            f"the data annotates none of the classes that step {chosen.index} knows ({', '.join(chosen.seen)}). "
            f"Its classes: {', '.join(splits.classes)}. Name images with masks of the others: "
            "--data FOLDER, or for the data that the run began with --set data.path=FOLDER."
        )
    with silence(wanted=quiet):
        return run.measure(chosen, splits)
