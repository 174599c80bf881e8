"""A run's folder: its files, and the checks before anything is written.

RUN/
  recipe.yaml            the resolved recipe, every setting with its meaning
  run.json               versions, git state, when
  log.jsonl              one JSON object a line, as it goes
  results.json           what was measured, after every step
  step_00/               a finished step:
    weights.safetensors    the tensors that this step made or changed, and the names of those that it took away
    memory/                the replay memory after it
    step.json              its measurements; written last, so that the step is whole once this is there
  step_01/checkpoint.safetensors   a step in progress
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from torch import Tensor, nn

from ipseg.config import Settings, flat, read_yaml, scopes, to_dict, to_yaml
from ipseg.data.dataset import DataConfig
from ipseg.data.file_dataset import FileDataConfig
from ipseg.data.saliency_source import is_map_folder
from ipseg.errors import UserError
from ipseg.evaluation.results import VERSION as RESULTS
from ipseg.evaluation.results import RunResult, StepResult
from ipseg.files import (
    TEMPORARIES,
    appending,
    copy_folder,
    explaining_full_disk,
    read_json,
    require_no_links,
    require_path,
    require_single,
    require_version,
    write_json,
    write_text,
)
from ipseg.own_code import require_allowed
from ipseg.scenario import Scenario
from ipseg.training.recipe import Recipe, make_recipe
from ipseg.training.system import describe_system
from ipseg.training.tensors import digest, load_tensors, save_tensors

VERSION = 1
LOG = "log.jsonl"
LEFTOVERS = (TEMPORARIES, ".tmp" + 6 * "[0-9A-Za-z]")
"""Temporary files of a killed process. The second pattern is safetensors', of earlier versions."""


class RunFolder:
    """One run on disk. It writes nowhere else."""

    def __init__(self, path: Path) -> None:
        require_path(path)
        self.path = path
        self._facts: dict[str, Any] = {}  # of the data, for run.json
        self._saved: tuple[int, dict[str, str]] = (-1, {})  # the step last saved, and a digest of each tensor then
        self._locked: bytes | None = None  # what run.json said when this process began to write here

    # ---- opening ------------------------------------------------------------------------------------------------

    @classmethod
    def check(cls, path: Path, recipe: Recipe, *, resume: bool) -> Self:
        """A folder in which a run may start or resume. Nothing is written yet."""
        folder = cls(path)
        if folder.begun:
            folder.require_readable()
        elif path.exists() and not folder._free(recipe):
            raise UserError(f"{path} exists and is not a run's folder. Choose another one with --out.")
        if not resume and path.is_dir() and any(path.iterdir()):
            raise UserError(f"{path} holds a run already. Resume it with --resume, or choose another with --out.")
        require_no_links(path)
        require_single(path / LOG)
        if folder.begun:
            folder._require_same(recipe)
        return folder

    @property
    def begun(self) -> bool:
        """Whether the folder holds a run."""
        return (self.path / "run.json").exists()

    def _free(self, recipe: Recipe) -> bool:
        """Whether there is nothing but the recipe of a run that was killed before it started."""
        if not self.path.is_dir():
            return False
        found, file = [path for path in self.path.iterdir() if not path.match(TEMPORARIES)], self.path / "recipe.yaml"
        if found != [file] or not file.is_file():
            return not found
        ours = to_yaml(recipe).splitlines()[0]  # a comment that no file of a user begins with
        return file.read_text(encoding="utf-8", errors="replace").startswith(ours)

    def create(self, recipe: Recipe, scenario: Scenario) -> None:
        """Write the recipe and the run's description. A resumed run keeps what it has."""
        self.path.mkdir(parents=True, exist_ok=True)
        if self.begun:
            return
        write_text(self.path / "recipe.yaml", to_yaml(recipe))
        run = {
            "version": VERSION,
            "started": time.strftime("%Y-%m-%d %H:%M:%S"),
            "data": {"name": scenario.name.rpartition("/")[0], "classes": list(scenario.data_classes), **self._facts},
            **describe_system(),
        }
        write_json(self.path / "run.json", run)

    def _clear(self) -> None:
        """Remove temporary files and partly copied steps of a killed process."""
        left = [path for pattern in LEFTOVERS for path in self.path.rglob(pattern)]
        for file in (path for path in left if not path.is_dir()):
            file.unlink(missing_ok=True)
        for partial in [*left, *self.path.glob(".step_*")]:
            shutil.rmtree(partial, ignore_errors=True)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing run."""
        if not (path / "run.json").is_file():
            raise UserError(f"{path} is not a run's folder: it has no run.json. `ipseg train` makes one.")
        folder = cls(path)
        folder.require_readable()
        return folder

    def require_readable(self) -> None:
        """Raise if the folder is of a newer format."""
        run = read_json(self.path / "run.json", "the run's description")
        require_version(run.get("version") if isinstance(run, dict) else None, VERSION, "the run's folder", self.path)

    def scenario(self, recipe: Recipe) -> Scenario:
        """The scenario of the run, from run.json: the data may be gone."""
        data = self._data()
        return recipe.scenario.build(data["name"], data["classes"])

    def _data(self) -> dict[str, Any]:
        path = self.path / "run.json"
        data = read_json(path, "the run's description").get("data")
        kinds = {"name": str, "classes": list}
        if not isinstance(data, dict) or not all(isinstance(data.get(key), kind) for key, kind in kinds.items()):
            raise UserError(f"the run's description is damaged: {path} does not name the data and its classes.")
        return data

    def settings(self) -> Settings:
        """The recipe of the run; code that it names must be allowed."""
        values = read_yaml(self.path / "recipe.yaml", "the run's recipe")
        require_allowed(values, self.path)
        return values

    def _require_same(self, recipe: Recipe) -> None:
        own = make_recipe(self.settings())  # a setting that came since this run began has its default
        mine, given = flat(to_dict(own)), flat(to_dict(recipe))
        free = {key for key, scope in scopes(recipe).items() if scope in ("runtime", "place")}
        free |= {"data.saliency"} if _both_elsewhere(own.data, recipe.data) else set()
        changed = sorted(
            key for key in mine.keys() | given.keys() if mine.get(key) != given.get(key) and key not in free
        )
        if changed:
            shown = "; ".join(f"{key} was {mine.get(key)}, is {given.get(key)}" for key in changed[:5])
            raise UserError(
                f"{self.path} holds a run of another recipe ({shown}). With its own settings "
                f"`ipseg train {self.path} --resume` continues; for others choose another folder with --out."
            )

    def require_fitting(self, scenario: Scenario) -> None:
        """Raise if a resumed run would train on data with other classes."""
        if self.begun and (own := self._data()["classes"]) != list(scenario.data_classes):
            raise UserError(
                f"{self.path} learned from data with the classes {', '.join(own)}; the data that is there now has "
                f"{', '.join(scenario.data_classes)}. Name the run's own with --set data.path=..."
            )

    def check_data(self, facts: dict[str, Any]) -> None:
        """Keep facts of the data that the recipe leaves open, for `create` to write into run.json.

        Raise if a resumed run would switch to other maps; earlier versions did not write which they had. Images may be
        fewer by now: those of finished steps may be deleted.
        """
        for name in ("saliency", "regions"):
            now, own = facts.get(name), (self._data() if self.begun else {}).get(name)
            if now is not None and own not in (None, now):
                raise UserError(
                    f"{self.path} began with {name}: {own}; as the data is now, that would be {now}. Move maps that "
                    "came since aside, or bring those back that were there; or begin another run with --out."
                )
        self._facts = facts

    @contextmanager
    def lock(self) -> Iterator[None]:
        """One process at a time trains in a folder, on systems that have such locks."""
        with (self.path / "run.json").open("rb") as file:
            try:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UserError(f"another process is training in {self.path}; wait for it, or stop it.") from error
            except (ImportError, OSError):
                pass
            self._clear()  # only now: another process may be writing
            self._locked = file.read()
            try:
                yield
            except (OSError, UserError) as error:
                self._require_in_place(error)
                raise
            else:
                self._require_in_place()
            finally:
                self._locked = None

    def _require_in_place(self, cause: Exception | None = None) -> None:
        """Raise if the folder that is locked was removed or moved: what is written would make up no run, and be lost.

        Where it was, others may have made one of its name, or writing has brought parts of it back.
        """
        try:
            there = self._locked is None or (self.path / "run.json").read_bytes() == self._locked
        except OSError:
            there = False
        if not there:
            raise UserError(
                f"{self.path} was removed or moved while the run was writing there. Put it back and continue with "
                "--resume, or start another run."
            ) from cause

    # ---- steps --------------------------------------------------------------------------------------------------

    def step(self, index: int) -> Path:
        """The folder of a step."""
        return self.path / f"step_{index:02d}"

    def finished(self) -> int:
        """The number of finished steps."""
        count = 0
        while (self.step(count) / "step.json").is_file():
            count += 1
        return count

    def weights(self, through: int) -> dict[str, Tensor]:
        """All tensors of the model after a step: each step's file holds those that it added or changed."""
        merged: dict[str, Tensor] = {}
        for index in range(through + 1):
            path = self.step(index) / "weights.safetensors"
            tensors, facts = load_tensors(path, f"the weights file of step {index}")
            if facts.get("step", index) != index:
                raise UserError(f"{path} is of step {facts['step']!r}, not {index}. Put a whole copy in its place.")
            gone = facts.get("gone", [])
            if not isinstance(gone, list):
                raise UserError(f'{path}: "gone" must be a list of names, got {gone!r}. Put a whole copy in its place.')
            merged = {name: tensor for name, tensor in merged.items() if name not in gone} | tensors
        return merged

    def save_weights(self, index: int, network: nn.Module) -> None:
        """Write the tensors that differ from the previous step's, and the names of those that are gone."""
        step, before = self._saved
        if step != index - 1:  # the first save of this process; reading all steps at every save would be quadratic
            before = _digests(self.weights(index - 1))
        state = {name: tensor.cpu() for name, tensor in network.state_dict().items()}
        now = _digests(state)
        changed = {name: tensor for name, tensor in state.items() if before.get(name) != now[name]}
        gone = sorted(before.keys() - now.keys())
        self.step(index).mkdir(exist_ok=True)
        save_tensors(self.step(index) / "weights.safetensors", changed, {"step": index, "gone": gone})
        self._saved = index, now

    def finish_step(self, index: int, result: StepResult) -> None:
        """Write the results; this marks the step as finished."""
        write_json(self.step(index) / "step.json", {"version": RESULTS, **result.to_json()})
        (self.step(index) / "checkpoint.safetensors").unlink(missing_ok=True)

    def write_results(self, result: RunResult) -> None:
        """Write all results so far."""
        result.write(self.path / "results.json")

    def result(self, index: int) -> StepResult:
        """A finished step's results."""
        path = self.step(index) / "step.json"
        data = read_json(path, f"step {index}'s result", RESULTS)
        try:
            data.pop("version")
            result = StepResult(**data | {"new": tuple(data["new"])})
            if result.step != index:
                raise TypeError(f"it is of step {result.step}")
            return result
        except (TypeError, KeyError) as error:
            raise UserError(
                f"step {index}'s result is damaged: {path} ({error}). Put a whole copy in its place."
            ) from error

    def require_results(self) -> None:
        """Raise if the results of a finished step cannot be read."""
        for index in range(self.finished()):
            self.result(index)

    def copy_steps(self, other: RunFolder, steps: int, *, memory: bool = True, whole: bool = True) -> None:
        """Copy the first steps of another run, with or without their memory, or (whole=False) the weights alone."""
        of_results, of_memory = [] if whole else ["step.json"], [] if memory and whole else ["memory"]
        left_out = [*LEFTOVERS, *of_results, *of_memory]
        for index in range(steps):
            if (self.step(index) / "weights.safetensors").is_file():
                continue  # copied before an interruption
            partial = self.path / f".step_{index:02d}"
            shutil.rmtree(partial, ignore_errors=True)
            copy_folder(other.step(index), partial, left_out)
            shutil.rmtree(self.step(index), ignore_errors=True)  # one that this run had started itself
            partial.rename(self.step(index))

    def log(self, **values: Any) -> None:
        """Add a line to log.jsonl."""
        path = self.path / LOG
        self._require_in_place()
        with explaining_full_disk(path), appending(path) as file:
            file.write(json.dumps({"time": round(time.time(), 3), **values}).encode() + b"\n")


class ReadOnlyRunFolder(RunFolder):
    """The run's folder on ranks above 0, which only read: rank 0 writes."""

    def create(self, recipe: Recipe, scenario: Scenario) -> None: ...

    @contextmanager
    def lock(self) -> Iterator[None]:
        yield

    def copy_steps(self, other: RunFolder, steps: int, *, memory: bool = True, whole: bool = True) -> None: ...

    def save_weights(self, index: int, network: nn.Module) -> None: ...

    def finish_step(self, index: int, result: StepResult) -> None: ...

    def write_results(self, result: RunResult) -> None: ...

    def log(self, **values: Any) -> None: ...


def _digests(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    return {name: digest({name: tensor}) for name, tensor in tensors.items()}


def _both_elsewhere(one: DataConfig, other: DataConfig) -> bool:
    """Whether both name a folder of saliency maps: like the data, it may have moved."""
    return all(isinstance(data, FileDataConfig) and is_map_folder(data.saliency) for data in (one, other))
