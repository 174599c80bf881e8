"""Apply a pack: the steps of a run and the one in the pack make a new run, whole or not at all."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from typing import Any

import torch

from ipseg.apps.extend import require_apart
from ipseg.apps.pack import SETTINGS, fingerprint, network_of
from ipseg.apps.pack_checks import opened, read_manifest, require_memory, short
from ipseg.config import build
from ipseg.errors import UserError
from ipseg.files import whole_or_nothing
from ipseg.models.network import ModelConfig
from ipseg.scenario.split import BACKGROUND, Scenario
from ipseg.training.experiment import summarize
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import Recipe, make_recipe
from ipseg.training.setup import restore


def apply_pack(path: Path, run: Path, out: Path) -> Scenario:
    """Write a copy of a run with the pack's step added. The run stays as it is."""
    require_apart(out, run)
    base = RunFolder.open(run)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"--out {out} exists. Choose another folder.")
    with opened(path) as archive:
        manifest = read_manifest(archive, path)
        recipe = upgraded(base, manifest, path)
        data = base.scenario(make_recipe(base.settings()))
        scenario = recipe.scenario.build(data.name.rpartition("/")[0], data.data_classes)
        with whole_or_nothing(out) as partial:
            folder = RunFolder(partial)
            folder.create(recipe, scenario)
            folder.copy_steps(base, manifest["step"])
            _extract(archive, manifest, folder)
            _require_sound(folder, recipe, scenario, path)
    return scenario


def upgraded(base: RunFolder, manifest: dict[str, Any], path: Path) -> Recipe:
    """The run's recipe with the pack's step, once it is sure that the pack was made for this run."""
    settings, step = base.settings(), int(manifest["step"])
    recipe = make_recipe(settings)
    steps = base.scenario(recipe).steps
    if base.finished() != step:
        raise UserError(
            f"{path} is step {step}, for a run that has finished the {step} steps before it; {base.path} has finished "
            f"{base.finished()}. Nothing was written."
        )
    base.require_results()
    ours, theirs = fingerprint(base, recipe, steps[:step]), manifest["base"]
    for what, there, here in (
        ("classes", theirs.get("classes"), ours["classes"]),
        ("method", theirs.get("method"), ours["method"]),
        ("network", build(ModelConfig, theirs.get("network") or {}, "the pack's network"), network_of(recipe)),
        ("weights", theirs.get("weights"), ours["weights"]),
    ):
        if there != here:
            raise UserError(
                f"{path} was made for another base: its {what} are {short(there)}, those of {base.path} are "
                f"{short(here)}. A pack upgrades only copies of the run it was learned on. Nothing was written."
            )
    given, scenario = manifest.get("settings"), manifest.get("scenario")
    if not isinstance(given, dict) or not isinstance(scenario, dict) or not set(given) <= set(SETTINGS):
        raise UserError(f"{path}: its manifest is damaged: the settings are not those of a pack.")
    method = given.get("method")
    if not isinstance(method, dict) or method.get("name") != ours["method"]:  # a name may be module:Class, an import
        raise UserError(f"{path} contradicts itself about its method. Nothing was written.")
    made = make_recipe(settings | given | {"scenario": scenario, "init": None})
    listed = made.scenario.steps or ()
    if [list(new) for new in listed[:-1]] != ours["classes"]:
        raise UserError(f"{path} contradicts itself about its classes. Nothing was written.")
    return made


def _extract(archive: zipfile.ZipFile, manifest: dict[str, Any], folder: RunFolder) -> None:
    for name in manifest["files"]:
        target = folder.step(manifest["step"]) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(name) as member, target.open("xb") as file:
            shutil.copyfileobj(member, file, 1 << 20)


def _require_sound(folder: RunFolder, recipe: Recipe, scenario: Scenario, path: Path) -> None:
    """Raise unless the new run can be used: weights that fit, a result of this step, a memory that can be read."""
    last = scenario.steps[-1]
    try:
        result = folder.result(last.index)
        if (result.step, result.new) != (last.index, last.new):
            raise UserError(f"the step's result is of step {result.step}, {', '.join(map(str, result.new))}.")
        if set(result.iou) != {BACKGROUND, *last.seen}:
            raise UserError(f"the step's result has the IoU of {short(', '.join(result.iou))}.")
        restore(recipe, folder, scenario, last.index, torch.device("cpu"))
        if (memory := folder.step(last.index) / "memory").is_dir():
            require_memory(memory, last.seen)
        folder.write_results(summarize(recipe, folder, scenario))
    except (TypeError, KeyError, ValueError, AttributeError) as error:  # UserError is one of them
        told = _of_the_pack(error, path, folder.step(last.index), folder.path)
        raise UserError(f"{path} cannot be applied: {told} Nothing was written.") from error


def _of_the_pack(error: Exception, path: Path, *going: Path) -> str:
    """What is wrong, told of the pack instead of folders that are about to go; without advice for a run's own files."""
    told = str(error).partition(" Put a whole copy")[0]
    for folder in going:
        told = told.replace(str(folder), str(path))
    return told
