"""A finished run and the pictures that it is measured on: what after.py and oracles.py begin with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ipseg.apps.model import inference_recipe
from ipseg.data.batch import Batch
from ipseg.data.dataset import DatasetSplits
from ipseg.errors import UserError
from ipseg.evaluation.metrics import iou, miou_groups
from ipseg.scenario.split import BACKGROUND, Scenario
from ipseg.training.distributed import DistributedContext
from ipseg.training.evaluate import batches
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import Recipe
from ipseg.training.start import restore
from ipseg.training.system import many_sizes

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Opened:
    """A run with its model as it stood after the last step."""

    recipe: Recipe
    method: Any
    scenario: Scenario
    splits: DatasetSplits
    device: torch.device

    @classmethod
    def of(cls, run: Path, device: torch.device, assignments: Sequence[str]) -> Opened:
        """Its data may have moved: `assignments` say where it is."""
        folder = RunFolder.open(run)
        recipe = inference_recipe(folder, assignments)
        splits, learned = recipe.splits(), folder.scenario(recipe)
        step = learned.steps[-1]
        if missing := [name for name in step.seen if name not in splits.classes]:
            raise UserError(f"{run}: its data has no class {', '.join(missing)}, so what is wrong cannot be said.")
        scenario = replace(learned, data_classes=splits.classes)
        return cls(recipe, restore(recipe, folder, scenario, step.index, device), scenario, splits, device)

    @property
    def base(self) -> tuple[str, ...]:
        """The classes of the base step."""
        return self.scenario.steps[0].new

    @property
    def new(self) -> tuple[str, ...]:
        """Those of later steps."""
        return self.scenario.steps[-1].seen[len(self.base) :]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the channels."""
        return BACKGROUND, *self.base, *self.new

    def pictures(self) -> Iterator[Batch]:
        """Those that the run is measured on."""
        step = self.scenario.steps[-1]
        with many_sizes():
            yield from batches(
                self.splits.val, self.scenario, step, self.recipe.evaluation, DistributedContext(self.device)
            )

    def miou(self, confusion: Counts) -> dict[str, float | None]:
        """All, base and new."""
        values = dict(zip(self.names, iou(confusion, self.recipe.evaluation.absent), strict=True))
        groups = miou_groups(values, self.base, self.new)
        return {group: groups[group] for group in ("all", "base", "new")}
