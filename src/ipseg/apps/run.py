"""A run on disk as one object: its folder, recipe and scenario, and the models, data and memory that come from them."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch

from ipseg.apps.model import Model
from ipseg.config import flat, override, to_dict
from ipseg.data.dataset import Dataset, DatasetSplits, EmptyDataset
from ipseg.data.folder import FolderConfig
from ipseg.data.memory import ReplayMemory, load_memory
from ipseg.errors import UserError, quoted
from ipseg.evaluation.results import StepResult
from ipseg.methods.base import Method
from ipseg.scenario import Scenario, Step
from ipseg.training.distributed import DistributedContext
from ipseg.training.experiment import measure
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import Recipe, make_recipe
from ipseg.training.setup import load, restore
from ipseg.training.system import choose_device


@dataclass(frozen=True)
class Run:
    """Data and memory are read when they are asked for: they may be gone. run.json names the classes."""

    folder: RunFolder
    recipe: Recipe
    scenario: Scenario

    @classmethod
    def open(cls, path: Path | str, assignments: Sequence[str] = ()) -> Run:
        """An existing run, with `key=value` changes of inference settings."""
        folder = RunFolder.open(Path(path))
        own = folder.settings()
        recipe, trained = make_recipe(override(own, assignments)), make_recipe(own)
        _require_inference_settings(recipe, trained, folder.path)
        return cls(folder, recipe, folder.scenario(recipe))

    @property
    def path(self) -> Path:
        return self.folder.path

    @cached_property
    def device(self) -> torch.device:
        return choose_device(self.recipe.device)

    def step(self, index: int | None = None) -> Step:
        """A finished step, by default the last one."""
        finished = self.folder.finished()
        if finished == 0:
            raise UserError(
                f"{self.path} has no finished step yet. Resume it: ipseg train {quoted(self.path)} --resume"
            )
        if index is None:
            return self.scenario.steps[finished - 1]
        valid = "only step 0 is finished" if finished == 1 else f"steps 0 to {finished - 1} are finished"
        try:
            chosen = operator.index(index)  # numpy's integers too
        except TypeError as error:
            raise UserError(f"a step is a whole number, not {index!r}; of {self.path} {valid}.") from error
        if not 0 <= chosen < finished:
            raise UserError(f"{self.path} has no step {chosen}: {valid}.")
        return self.scenario.steps[chosen]

    # ---- models ---------------------------------------------------------------------------------------------------

    def method(self, step: Step, device: torch.device | None = None) -> Method:
        return restore(self.recipe, self.folder, self.scenario, step.index, device or self.device)

    def methods(self, steps: Sequence[Step], device: torch.device) -> Iterator[tuple[Step, Method]]:
        """The method after each of these steps, in their order. The network is built once, and grows."""
        method = self.method(self.scenario.steps[0], device)
        for step in self.scenario.steps[: steps[-1].index + 1]:
            if step.index:
                method.begin_step(step)
            if step in steps:
                load(method, self.folder, step.index)
                yield step, method

    def model(self, step: int | None = None, device: str = "auto") -> Model:
        """The model after a step, for images."""
        chosen, place = self.step(step), choose_device(device)
        return Model(self.method(chosen, place), self.scenario, chosen, place)

    # ---- data -----------------------------------------------------------------------------------------------------

    def memory(self, step: Step, images: Dataset | None = None) -> ReplayMemory:
        """The memory after a step; images that it has no copy of are read from a data set."""
        return load_memory(self.folder.step(step.index) / "memory", images or EmptyDataset())

    def splits_for(self, data: Path | None, *also: Run) -> tuple[DatasetSplits, bool]:
        """The images to measure on, and whether they are validation images of this or another of these runs.

        data: a folder; by default the run's own data. Of a run's data only validation images are taken: the run was
        trained on the others.
        """
        splits, own = (self.recipe.splits(), True) if data is None else _folder_splits(data, (self, *also))
        order = self.scenario.order
        if not set(order) & set(splits.classes):
            raise UserError(
                f"{data or 'the data'} has none of the classes {', '.join(order)}, which the run learns. "
                f"Its classes: {', '.join(splits.classes)}. Names in classes.txt must be those of the run."
            )
        return splits, own

    def with_classes_of(self, splits: DatasetSplits) -> Run:
        """The run with a scenario that reads the mask values of these data."""
        return replace(self, scenario=replace(self.scenario, data_classes=splits.classes))

    def measure(self, step: Step, splits: DatasetSplits, method: Method | None = None) -> StepResult:
        """Evaluate the model after a step on the validation images of any data."""
        run = self.with_classes_of(splits)
        context = DistributedContext(self.device)
        return measure(method or run.method(step), self.recipe, splits, run.scenario, step, context)


def _folder_splits(data: Path, runs: Sequence[Run]) -> tuple[DatasetSplits, bool]:
    folder = FolderConfig(path=str(data), saliency="none")  # evaluation reads no saliency maps
    for recipe in (run.recipe for run in runs):
        own = getattr(recipe.data, "path", None)
        if own is None or Path(own).expanduser().resolve() != data.expanduser().resolve():
            continue
        listed = isinstance(recipe.data, FolderConfig) and (data.expanduser() / "val.txt").is_file()
        if listed and not recipe.evaluation.held_out:
            return folder.measured(), True  # the same images; training images are not read, they may be gone
        return recipe.splits(), True
    return folder.measured(), False


def _require_inference_settings(recipe: Recipe, trained: Recipe, path: Path) -> None:
    """Raise if other settings than those of inference differ: they are part of what the run has learned."""
    if recipe.evaluation.held_out not in (0, trained.evaluation.held_out):
        raise UserError(
            f"evaluation.held_out is {recipe.evaluation.held_out}, but {path} was trained with "
            f"{trained.evaluation.held_out}: it has learned from such images. "
            "What can be measured afterwards is its own share, or 0, the validation images."
        )
    given, allowed = flat(to_dict(recipe)), [key for key in recipe.inference_settings() if "evaluation." not in key]
    for key, value in flat(to_dict(trained)).items():
        if given.get(key) != value and key not in allowed and not key.startswith("evaluation."):
            raise UserError(
                f"{key} is part of how {path} was trained ({value}) and cannot change afterwards. "
                f"What can: {', '.join(allowed)}, evaluation.*; for the rest train again with `ipseg train`."
            )


# ---- output paths -------------------------------------------------------------------------------------------------


def require_outside(out: Path, run: Path) -> None:
    """Raise if `out` is inside a run directory that is only read."""
    if (run / "run.json").is_file() and out.resolve().is_relative_to(run.resolve()):
        raise UserError(f"--out {out} is inside the run directory {run}, which is only read. Choose another place.")


def require_parent(out: Path) -> None:
    """Raise if the folder of a file that is to be written does not exist."""
    if not out.resolve().parent.is_dir():
        raise UserError(f"--out {out}: the folder {out.parent} is missing.")


def require_disjoint(out: Path, run: Path) -> None:
    """Raise if the directory of a new run contains the old run's, or is inside it."""
    new, old = out.resolve(), run.resolve()
    if new.is_relative_to(old) or old.is_relative_to(new):
        raise UserError(f"--out {out} must not be inside the run directory {run} (or contain it).")
