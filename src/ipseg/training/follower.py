"""A run's folder as the other processes of a dist have it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from ipseg.evaluation.results import RunResult, StepResult
from ipseg.scenario.split import Scenario
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import Recipe


class Follower(RunFolder):
    """The first process writes; the others read."""

    def create(self, recipe: Recipe, scenario: Scenario) -> None:
        """The first process does."""

    @contextmanager
    def held(self) -> Iterator[None]:
        """The first process does."""
        yield

    def take_from(self, other: RunFolder, steps: int, *, memory: bool = True, whole: bool = True) -> None:
        """The first process does."""

    def save_weights(self, index: int, network: nn.Module) -> None:
        """The first process does."""

    def finish_step(self, index: int, result: StepResult) -> None:
        """The first process does."""

    def write_results(self, result: RunResult) -> None:
        """The first process does."""

    def log(self, **values: Any) -> None:
        """The first process does."""
