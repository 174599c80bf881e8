"""A run that is there, as one object: what its folder holds, and the models, data and memory that come from it."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ipseg.apps.model import Model
from ipseg.config import flat, override, to_dict
from ipseg.data.dataset import EmptyDataset
from ipseg.data.memory import ReplayMemory, load_memory
from ipseg.errors import UserError, quoted
from ipseg.methods.base import Method
from ipseg.scenario import Scenario, Step
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import Recipe, make_recipe
from ipseg.training.setup import restore
from ipseg.training.system import choose_device


@dataclass(frozen=True)
class Run:
    """A run's folder with its recipe and its scenario. Its data may be gone: run.json names the classes."""

    folder: RunFolder
    recipe: Recipe
    scenario: Scenario

    @classmethod
    def open(cls, path: Path | str, assignments: Sequence[str] = ()) -> Run:
        """An existing run, with `key=value` changes of inference settings."""
        folder = RunFolder.open(Path(path))
        recipe = inference_recipe(folder, assignments)
        return cls(folder, recipe, folder.scenario(recipe))

    def step(self, index: int | None = None) -> Step:
        """A finished step, by default the last one."""
        path, finished = self.folder.path, self.folder.finished()
        if finished == 0:
            raise UserError(f"{path} has no finished step yet. Resume it: ipseg train {quoted(path)} --resume")
        if index is None:
            return self.scenario.steps[finished - 1]
        valid = "only step 0 is finished" if finished == 1 else f"steps 0 to {finished - 1} are finished"
        try:
            chosen = operator.index(index)  # numpy's integers too
        except TypeError as error:
            raise UserError(f"a step is a whole number, not {index!r}; of {path} {valid}.") from error
        if not 0 <= chosen < finished:
            raise UserError(f"{path} has no step {chosen}: {valid}.")
        return self.scenario.steps[chosen]

    def method(self, step: Step, device: torch.device) -> Method:
        """The method with the weights that a step left."""
        return restore(self.recipe, self.folder, self.scenario, step.index, device)

    def model(self, step: int | None = None, device: str = "auto") -> Model:
        """The model after a step, for images."""
        chosen, place = self.step(step), choose_device(device)
        return Model(self.method(chosen, place), self.scenario, chosen, place)

    def memory(self, step: Step) -> ReplayMemory:
        """The memory after a step; images of which it has no copy are not there."""
        return load_memory(self.folder.step(step.index) / "memory", EmptyDataset())


def inference_recipe(folder: RunFolder, assignments: Sequence[str] = ()) -> Recipe:
    """The run's recipe with other inference settings. All others are part of what the run has learned."""
    own = folder.settings()
    recipe, trained = make_recipe(override(own, assignments)), make_recipe(own)
    if recipe.evaluation.held_out not in (0, trained.evaluation.held_out):
        raise UserError(
            f"evaluation.held_out is {recipe.evaluation.held_out}, but {folder.path} was trained with "
            f"{trained.evaluation.held_out}: it has learned from such images. "
            "What can be measured afterwards is its own share, or 0, the validation images."
        )
    given, allowed = flat(to_dict(recipe)), [key for key in recipe.inference_settings() if "evaluation." not in key]
    for key, value in flat(to_dict(trained)).items():
        if given.get(key) != value and key not in allowed and not key.startswith("evaluation."):
            raise UserError(
                f"{key} is part of how {folder.path} was trained ({value}) and cannot change afterwards. "
                f"What can: {', '.join(allowed)}, evaluation.*; for the rest train again with `ipseg train`."
            )
    return recipe


def require_outside(out: Path, run: Path) -> None:
    """Raise if something would be written into a run that is only read."""
    if (run / "run.json").is_file() and out.resolve().is_relative_to(run.resolve()):
        raise UserError(f"--out {out} is inside the run directory {run}, which is only read. Choose another place.")


def require_file_place(out: Path, run: Path) -> None:
    """Raise unless a file can be written there, outside of a run that is only read."""
    require_outside(out, run)
    if not out.resolve().parent.is_dir():
        raise UserError(f"--out {out}: the folder {out.parent} is missing.")


def require_apart(out: Path, run: Path) -> None:
    """Raise if a new run would touch the one that it is made from."""
    ours, theirs = out.resolve(), run.resolve()
    if ours == theirs or theirs in ours.parents or ours in theirs.parents:
        raise UserError(f"--out {out} must not be inside the run directory {run} (or contain it).")
