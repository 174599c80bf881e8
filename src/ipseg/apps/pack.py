"""Packs: a step's files as one file that upgrades a copy of the old model elsewhere.

A pack is a zip archive of plain files, none of them compressed, with a manifest: the format's version, every file with
its size and SHA-256, and a fingerprint of the base it fits. `apply_pack` trusts none of it before it is checked.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ipseg.apps.pack_checks import (
    MANIFEST,
    VERSION,
    opened,
    read_manifest,
    refused,
    require_member,
    require_memory,
    truncate,
)
from ipseg.apps.run import Run, require_disjoint, require_outside, require_parent
from ipseg.config import build, to_dict
from ipseg.errors import UserError
from ipseg.files import remove_abandoned, replacing, whole_or_nothing
from ipseg.models.network import ModelConfig
from ipseg.scenario import BACKGROUND, EXTENDED, Scenario, Step
from ipseg.training.experiment import summarize
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import Recipe, make_recipe
from ipseg.training.tensors import digest

SETTINGS = ("name", "method", "memory", "training", "evaluation", "seed", "deterministic")
"""Of the recipe. Data and device are those of the machine that the pack goes to; no path of this one leaves it."""


# ---- writing ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Packed:
    """Sizes are in bytes."""

    path: Path
    step: Step
    bytes: int
    weights: int
    memory: int


def pack(path: Path, step: int | None, out: Path | None = None, *, memory: bool = True) -> Packed:
    """Write a step's weights, measurements and, unless it shall stay here, memory into one file."""
    run = Run.open(path)
    chosen = run.step(step)
    index, steps = chosen.index, run.scenario.steps[: chosen.index + 1]
    if index == 0:
        raise UserError(f"step 0 of {path} is the base itself: there is no older model that it upgrades. Copy the run.")
    out = out or Path(f"{path.resolve().name}_step_{index:02d}.zip")
    if out.exists():
        raise UserError(f"--out {out} exists. Choose another name.")
    require_outside(out, path)
    require_parent(out)
    run.folder.result(index)  # both raise where a file is damaged: no run would take the pack
    run.folder.weights(index)
    folder = run.folder.step(index)
    names = ["step.json", "weights.safetensors", *(_memory_files(run, chosen) if memory else [])]
    for name in names:
        require_member(name, path)
    files: dict[str, dict[str, Any]] = {}
    for name in sorted(names):
        with (folder / name).open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        files[name] = {"bytes": (folder / name).stat().st_size, "sha256": sha256}
    manifest: dict[str, Any] = {
        "format": "ipseg pack",
        "version": VERSION,
        "step": index,
        "base": fingerprint(run, steps[:index]),
        "scenario": {
            "name": EXTENDED,
            "setting": run.recipe.scenario.setting,
            "unseen": run.recipe.scenario.unseen,
            "steps": [list(one.new) for one in steps],
        },
        "settings": {key: value for key, value in to_dict(run.recipe).items() if key in SETTINGS},
        "files": files,
    }
    remove_abandoned(out.resolve().parent, lambda head: head.startswith(b"PK") and MANIFEST.encode() in head[:100])
    with replacing(out) as temporary:
        _write_archive(temporary, folder, manifest)
    of_memory = sum(facts["bytes"] for name, facts in files.items() if name.startswith("memory/"))
    return Packed(out, chosen, out.stat().st_size, files["weights.safetensors"]["bytes"], of_memory)


def fingerprint(run: Run, steps: Sequence[Step]) -> dict[str, Any]:
    """Identifies a pack's base: the weights after these steps, the network, the method and the classes."""
    return {
        "weights": digest(run.folder.weights(len(steps) - 1)),
        "network": to_dict(_network(run.recipe)),
        "method": run.recipe.method.name,
        "classes": [list(step.new) for step in steps],
    }


def _network(recipe: Recipe) -> ModelConfig:
    """The network's settings without its initial weights: those that it has learned tell more."""
    return replace(recipe.model, backbone=replace(recipe.model.backbone, weights="none"))


def _memory_files(run: Run, step: Step) -> list[str]:
    """The files that the memory's manifest names; others in its folder are not packed."""
    folder = run.folder.step(step.index)
    if not (folder / "memory" / "manifest.json").is_file():
        return []
    try:
        require_memory(folder / "memory", step.seen)
    except UserError as error:
        raise UserError(
            f"{folder / 'memory'}: {error} Put a whole copy of the memory in its place, or pack the step without it: "
            "--no-memory."
        ) from error
    kinds = ("saliency", "regions", "images", "labels")
    images = [f"memory/{kind}/{one.name}.png" for kind in kinds for one in run.memory(step).exemplars]
    return ["memory/manifest.json", *(name for name in images if (folder / name).is_file())]


def _write_archive(path: Path, folder: Path, manifest: dict[str, Any]) -> None:
    """Equal steps give equal bytes: a fixed order, and no time but the oldest that a zip can tell."""

    def member(name: str) -> zipfile.ZipInfo:
        info = zipfile.ZipInfo(name)  # its time is 1980-01-01
        info.external_attr = 0o100644 << 16
        info.create_system = 3
        return info

    with path.open("wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(member(MANIFEST), json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
        file.flush()
        for name in manifest["files"]:
            with (folder / name).open("rb") as read, archive.open(member(name), "w", force_zip64=True) as written:
                shutil.copyfileobj(read, written, 1 << 20)


# ---- applying ---------------------------------------------------------------------------------------------------


def apply_pack(path: Path, run: Path, out: Path) -> Scenario:
    """Write a copy of a run with the pack's step added: all of it, or nothing. Does not modify the run."""
    require_disjoint(out, run)
    base = Run.open(run)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"--out {out} exists. Choose another folder.")
    with opened(path) as archive:
        manifest = read_manifest(archive, path)
        recipe = upgraded_recipe(base, manifest, path)
        scenario = recipe.scenario.build(base.scenario.name.rpartition("/")[0], base.scenario.data_classes)
        with whole_or_nothing(out) as partial:
            new = Run(RunFolder(partial), recipe, scenario)
            new.folder.create(recipe, scenario)
            new.folder.copy_steps(base.folder, manifest["step"])
            for name in manifest["files"]:
                target = new.folder.step(manifest["step"]) / name
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(name) as member, target.open("xb") as file:
                    shutil.copyfileobj(member, file, 1 << 20)
            _require_usable(new, path)
    return scenario


def upgraded_recipe(base: Run, manifest: dict[str, Any], path: Path) -> Recipe:
    """The run's recipe with the pack's step. Raise unless the pack was made for this run."""
    step, finished = int(manifest["step"]), base.folder.finished()
    if finished != step:
        raise refused(
            path, f"is step {step}, but {base.path} has finished {finished} steps and must have finished {step}"
        )
    base.folder.require_results()
    run, pack = fingerprint(base, base.scenario.steps[:step]), manifest["base"]
    network = build(ModelConfig, pack.get("network") or {}, "the pack's network")
    for what, of_pack, of_run in (
        ("classes", pack.get("classes"), run["classes"]),
        ("method", pack.get("method"), run["method"]),
        ("network", network, _network(base.recipe)),
        ("weights", pack.get("weights"), run["weights"]),
    ):
        if of_pack != of_run:
            raise refused(
                path,
                f"was made for another base: its {what} are {truncate(of_pack)}, those of {base.path} are "
                f"{truncate(of_run)}. A pack upgrades only copies of the run it was learned on",
            )
    settings, scenario = manifest.get("settings"), manifest.get("scenario")
    if not isinstance(settings, dict) or not isinstance(scenario, dict) or not set(settings) <= set(SETTINGS):
        raise UserError(f"{path}: its {MANIFEST} is damaged: the settings are not those of a pack.")
    method = settings.get("method")
    if not isinstance(method, dict) or method.get("name") != run["method"]:  # a name may be module:Class, an import
        raise refused(path, "contradicts itself about its method")
    recipe = make_recipe(base.folder.settings() | settings | {"scenario": scenario, "init": None})
    if [list(new) for new in (recipe.scenario.steps or ())[:-1]] != run["classes"]:
        raise refused(path, "contradicts itself about its classes")
    return recipe


def _require_usable(new: Run, path: Path) -> None:
    """Raise unless the new run has weights that fit, a result of this step, and a memory that can be replayed."""
    step = new.scenario.steps[-1]
    try:
        result = new.folder.result(step.index)
        if (result.step, result.new) != (step.index, step.new):
            raise UserError(f"the step's result is of step {result.step}, {', '.join(map(str, result.new))}.")
        if set(result.iou) != {BACKGROUND, *step.seen}:
            raise UserError(f"the step's result has the IoU of {truncate(', '.join(result.iou))}.")
        new.method(step, torch.device("cpu"))
        if (memory := new.folder.step(step.index) / "memory").is_dir():
            require_memory(memory, step.seen)
        new.folder.write_results(summarize(new.recipe, new.folder, new.scenario))
    except (TypeError, KeyError, ValueError, AttributeError) as error:  # UserError is one of them
        message = str(error).partition(" Put a whole copy")[0]  # advice for a run's own files
        for folder in (new.folder.step(step.index), new.path):  # temporary
            message = message.replace(str(folder), str(path))
        raise UserError(f"{path} cannot be applied: {message} Nothing was written.") from error
