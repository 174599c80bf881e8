"""A step's files alone, as one file: it upgrades a copy of the old model elsewhere.

A pack is a zip archive of plain files, none of them compressed, with a manifest: the format's version, every file with
its size and SHA-256, and what the base it fits looks like. `apply_pack` believes none of it before it has looked.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ipseg.apps.model import finished_step, require_outside
from ipseg.apps.pack_checks import MANIFEST, VERSION, require_inside, require_memory
from ipseg.config import to_dict
from ipseg.data.dataset import EmptyDataset
from ipseg.data.memory import load_memory
from ipseg.errors import UserError
from ipseg.files import remove_abandoned, replacing
from ipseg.models.network import ModelConfig
from ipseg.scenario.split import EXTENDED, Step
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import Recipe, make_recipe
from ipseg.training.tensors import digest

SETTINGS = ("name", "method", "memory", "training", "evaluation", "seed", "deterministic")
"""Of the recipe. Data and device are those of the machine that the pack goes to; no path of this one leaves it."""


@dataclass(frozen=True)
class Packed:
    """What was written."""

    path: Path
    bytes: int
    weights: int
    memory: int
    """Bytes of it."""
    step: Step


def pack(run: Path, step: int | None, out: Path | None = None, *, memory: bool = True) -> Packed:
    """Write a step's weights, measurements and, unless it shall stay here, memory into one file."""
    folder = RunFolder.open(run)
    recipe = make_recipe(folder.settings())
    index = finished_step(folder, step)
    if index == 0:
        raise UserError(f"step 0 of {run} is the base itself: there is no older model that it upgrades. Copy the run.")
    out = out or Path(f"{run.resolve().name}_step_{index:02d}.zip")
    _require_free(out, run)
    folder.result(index)  # both raise where a file is damaged: no run would take the pack
    folder.weights(index)
    steps = folder.scenario(recipe).steps[: index + 1]
    names = _files(folder.step(index), steps[index].seen if memory else None)
    manifest: dict[str, Any] = {
        "format": "ipseg pack",
        "version": VERSION,
        "step": index,
        "base": fingerprint(folder, recipe, steps[:index]),
        "scenario": {
            "name": EXTENDED,
            "setting": recipe.scenario.setting,
            "unseen": recipe.scenario.unseen,
            "steps": [list(one.new) for one in steps],
        },
        "settings": {key: value for key, value in to_dict(recipe).items() if key in SETTINGS},
        "files": {name: _facts(folder.step(index) / name) for name in names},
    }
    remove_abandoned(out.resolve().parent, _is_pack)
    with replacing(out) as temporary:
        _write(temporary, folder.step(index), names, manifest)
    sizes = {name: facts["bytes"] for name, facts in manifest["files"].items()}
    return Packed(
        path=out,
        bytes=out.stat().st_size,
        weights=sizes["weights.safetensors"],
        memory=sum(size for name, size in sizes.items() if name.startswith("memory/")),
        step=steps[index],
    )


def fingerprint(folder: RunFolder, recipe: Recipe, steps: Sequence[Step]) -> dict[str, Any]:
    """What a pack's base is known by: the weights after these steps, the network, the method and the classes."""
    return {
        "weights": digest(folder.weights(len(steps) - 1)),
        "network": to_dict(network_of(recipe)),
        "method": recipe.method.name,
        "classes": [list(step.new) for step in steps],
    }


def network_of(recipe: Recipe) -> ModelConfig:
    """The network's settings without where it once started: the weights themselves tell more."""
    return replace(recipe.model, backbone=replace(recipe.model.backbone, weights="none"))


def _require_free(out: Path, run: Path) -> None:
    if out.exists():
        raise UserError(f"--out {out} exists. Choose another name.")
    require_outside(out, run)
    if not out.resolve().parent.is_dir():
        raise UserError(f"--out {out}: the folder {out.parent} is missing.")


def _files(folder: Path, remembering: Sequence[str] | None) -> list[str]:
    """The step's files by their names in the pack; none: without the memory, which is of these classes.

    What the memory's manifest does not name stays here.
    """
    names = ["step.json", "weights.safetensors"]
    if remembering is not None and (folder / "memory" / "manifest.json").is_file():
        _require_memory(folder / "memory", remembering)
        remembered = [exemplar.name for exemplar in load_memory(folder / "memory", EmptyDataset()).exemplars]
        pictures = [f"memory/{kind}/{name}.png" for kind in ("saliency", "images", "labels") for name in remembered]
        names += ["memory/manifest.json", *(name for name in pictures if (folder / name).is_file())]
    for name in names:
        require_inside(name, "the run")
    return sorted(names)


def _require_memory(folder: Path, seen: Sequence[str]) -> None:
    """Raise if no run would take the pack, for what is remembered could not be replayed."""
    try:
        require_memory(folder, seen)
    except UserError as error:
        raise UserError(
            f"{folder}: {error} Put a whole copy of the memory in its place, or pack the step without it: --no-memory."
        ) from error


def _facts(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _write(path: Path, folder: Path, names: Sequence[str], manifest: dict[str, Any]) -> None:
    """Equal steps give equal bytes: a fixed order, and no time but the oldest that a zip can tell."""
    with path.open("wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(_member(MANIFEST), json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
        file.flush()
        for name in names:
            with (folder / name).open("rb") as read, archive.open(_member(name), "w", force_zip64=True) as written:
                while piece := read.read(1 << 20):
                    written.write(piece)


def _is_pack(head: bytes) -> bool:
    """Whether a file begins as a pack does."""
    return head.startswith(b"PK") and MANIFEST.encode() in head[:100]


def _member(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)  # its time is 1980-01-01
    info.external_attr = 0o100644 << 16
    info.create_system = 3
    return info
