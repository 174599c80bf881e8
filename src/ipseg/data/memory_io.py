"""The replay memory on disk: a manifest, saliency maps and, where they will be needed, images and labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from ipseg.data.memory import Entry, LabelPolicy, MemLabels, MemoryConfig, ReplayMemory, with_new_labels
from ipseg.data.source import Mask, Split
from ipseg.data.step_dataset import StepDataset
from ipseg.errors import UserError
from ipseg.files import read_json, replacing, write_json

VERSION = 1


def save_memory(
    memory: ReplayMemory, folder: Path, dataset: StepDataset, config: MemoryConfig, labels: MemLabels | None = None
) -> None:
    """Write it after the step of a dataset. `labels`: what will be replayed; without it no labels are stored."""
    folder.mkdir(exist_ok=True)  # not its parents: a run that was removed meanwhile must not begin to exist again
    new = {dataset.name(i): i for i in range(len(dataset))}
    for index, entry in enumerate(memory.entries):
        sample = dataset.sample(new[entry.name]) if entry.folder is None else memory.sample(index)
        had = sample.labels if entry.folder is None else entry.stored_labels()
        if labels == "annotated" and had is not None and entry.name in new:
            had = with_new_labels(entry, had, dataset.sample(new[entry.name]).labels)
        _write_entry(
            folder,
            entry.name,
            sample.salient,
            image=sample.image if config.store == "copy" else None,
            labels=had if labels in ("annotated", "sampled") else None,
        )
    _write_manifest(folder, memory.entries, memory.order, config)


def move_memory(memory: ReplayMemory, folder: Path, coming: Sequence[Split]) -> None:
    """Write it with copies of its images, so that it no longer needs its data set.

    Where a split of the data that comes next has another image of the same name, the stored one gets a new name. One
    that comes again keeps its name, by which the next step finds what it annotates there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    theirs = [{name: place for place, name in enumerate(split.names)} for split in coming]
    used, moved = {*chain(*theirs), *(entry.name for entry in memory.entries)}, []
    for index, entry in enumerate(memory.entries):
        new, sample = entry, memory.sample(index)
        having = [(split, own[entry.name]) for split, own in zip(coming, theirs, strict=True) if entry.name in own]
        if not all(np.array_equal(split.image(place), sample.image) for split, place in having):
            while new.name in used:
                new = replace(new, name=f"old/{new.name}")
            used.add(new.name)
        _write_entry(folder, new.name, sample.salient, image=sample.image, labels=entry.stored_labels())
        moved.append(new)
    _write_manifest(folder, moved, memory.order, MemoryConfig(size=len(moved), store="copy"))


def load_memory(folder: Path, split: Split, policy: LabelPolicy | None = None) -> ReplayMemory:
    """Read a manifest, checked. `split` gives the images of which there is no copy."""
    path = folder / "manifest.json"
    manifest = read_json(path, "the memory's manifest", VERSION)
    try:
        order = [str(name) for name in manifest["order"]]
        entries = [_read_entry(entry, order, folder, path) for entry in manifest["entries"]]
    except (KeyError, TypeError) as error:
        raise UserError(f"the memory's manifest is damaged: {path} ({error!r}).") from error
    return ReplayMemory(entries, split, order, policy)


def _write_entry(
    folder: Path, name: str, salient: NDArray[np.bool_], *, image: NDArray[np.uint8] | None, labels: Mask | None
) -> None:
    for kind, array in (("saliency", salient), ("images", image), ("labels", labels)):
        if array is not None:
            path = folder / kind / f"{name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary:  # saliency takes one bit a pixel
                Pillow.fromarray(array).save(temporary, format="PNG")


def _write_manifest(folder: Path, entries: Sequence[Entry], order: Sequence[str], config: MemoryConfig) -> None:
    listed = [
        {
            "name": entry.name,
            "step": entry.step,
            "classes": list(entry.classes),
            "multi_hot": [int(name in entry.classes) for name in order],
            "guessed": list(entry.guessed),
        }
        for entry in entries
    ]
    write_json(
        folder / "manifest.json", {"version": VERSION, **asdict(config), "order": list(order), "entries": listed}
    )


def _read_entry(data: dict[str, Any], order: Sequence[str], folder: Path, path: Path) -> Entry:
    name, classes, guessed = str(data["name"]), tuple(data["classes"]), tuple(data.get("guessed", ()))
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise UserError(f'the memory\'s manifest names "{name}", which leaves its folder: {path}.')
    known = set(guessed) <= set(classes) <= set(order)
    if not known or data["multi_hot"] != [int(name in classes) for name in order]:
        raise UserError(f"the memory's manifest contradicts itself about {name}: {path}.")
    if not isinstance(data["step"], int):
        raise TypeError(f"step {data['step']!r}")
    return Entry(name, classes, data["step"], folder, guessed)
