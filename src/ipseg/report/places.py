"""Which runs stand in one table: those that learned the same classes in the same steps, measured on equal pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from ipseg.evaluation.results import RunResult

Steps = tuple[tuple[str, ...], ...]
"""The classes of every step."""


@dataclass(frozen=True)
class Place:
    """Runs of one place are rivals. One name of a scenario may stand for many: other data, classes, or their order."""

    scenario: str
    setting: str
    learned: Steps
    measured: frozenset[str] = frozenset()
    """Of grown runs: what the last step was measured on, for their data may not annotate all classes."""
    held_out: float = 0.0
    """The share of training pictures that was measured on, instead of validation pictures."""

    @property
    def classes(self) -> str:
        """What was learned, step by step, and of grown runs what was measured where that is not all."""
        steps = " + ".join(_some(step) for step in self.learned)
        learned = [name for step in self.learned for name in step]
        measured = [name for name in learned if name in self.measured]
        return steps + (f"; measured: {_some(measured) or 'none'}" if self.measured and measured != learned else "")

    def takes_in(self, own: Place, *, complete: bool) -> bool:
        """Whether a run of another place belongs here: one that has got so far, or that learned all of it at once."""
        if (self.scenario, self.setting, self.held_out) != (own.scenario, own.setting, own.held_out):
            return False
        if not complete:
            return self.learned[: len(own.learned)] == own.learned
        return self == own or (len(own.learned) == 1 and set(chain(*self.learned)) == set(*own.learned))


def place_of(result: RunResult, learned: Steps | None = None, held_out: float = 0.0) -> Place:
    """Where a run belongs; joint training, which has one step, is compared in the steps of others."""
    steps = tuple(step.new for step in result.steps) if learned is None else learned
    measured = result.steps[-1].measured if result.grown and result.steps else frozenset()
    return Place(result.scenario, result.setting, steps, measured, held_out)


def home(result: RunResult, own: Place, others: Sequence[Place]) -> Place:
    """The place that a run stands in: of those that take it in the one with most steps."""
    fitting = [other for other in (own, *others) if other.takes_in(own, complete=result.complete)]
    return max(fitting, key=lambda place: len(place.learned))


def _some(names: Sequence[str], most: int = 8) -> str:
    """The names, if they are few enough for a heading.

    >>> _some(["cat", "dog", "cow"]), _some(["cat", "dog", "cow"], most=2)
    ('cat, dog, cow', 'cat and 2 more')
    """
    return ", ".join(names) if len(names) <= most else f"{names[0]} and {len(names) - 1} more"
