"""The replay memory M: a few pictures of the past, with an image label and a saliency map.

Pixel annotations are stored only for methods that replay them (`annotated`, `sampled`), and then those alone that the
step had which stored the picture, or one since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from ipseg.data.batch import Sample
from ipseg.data.pictures import read_image, read_labels
from ipseg.data.source import Image, Mask, Saliency, Split, position
from ipseg.data.step_dataset import StepDataset
from ipseg.errors import UserError, require_at_least
from ipseg.files import read_json, replacing, write_json

VERSION = 1
MemLabels = Literal["annotated", "sampled", "current", "all_seen"]
"""What a replayed picture's labels hold: those of all steps that showed it since it was stored, of the step that stored
it, of the current step, of all seen classes."""


@dataclass(frozen=True, kw_only=True)
class MemoryConfig:
    """How much of the past is kept, and how."""

    size: int = 100
    """Pictures kept, |M| of the paper; 0 is `IPSeg w/o M`."""

    store: Literal["path", "copy"] = "path"
    """path: the picture's name in the data set, which must stay. copy: the picture too, for data that will be gone."""

    def __post_init__(self) -> None:
        require_at_least("memory.size", self.size, 0)


@dataclass(frozen=True)
class Entry:
    """One remembered picture."""

    name: str
    """In the training data."""
    classes: tuple[str, ...]
    """Its image label: the step's own classes from ground truth, older ones from the model."""
    step: int
    """When it was chosen."""
    folder: Path | None = None
    """Where its saliency map and copy lie; none while it is still in the data only."""
    guessed: tuple[str, ...] = ()
    """Those of its classes that the model saw and no step annotated."""

    @property
    def annotated(self) -> tuple[str, ...]:
        """The classes that are surely there."""
        return tuple(name for name in self.classes if name not in self.guessed)


class ReplayMemory:
    """Remembered pictures, readable without the annotations they once had."""

    def __init__(self, entries: Sequence[Entry], split: Split, order: Sequence[str]) -> None:
        self.entries, self.split, self.order = tuple(entries), split, tuple(order)
        self.oracle: NDArray[np.uint8] | None = None
        """A table of labels that memory must not have; only upper bounds set it."""
        self._wanted: MemLabels | None = None
        self._annotated: dict[str, tuple[StepDataset, int]] = {}
        self._pictures: dict[int, Sample] = {}  # few and often used

    def __len__(self) -> int:
        return len(self.entries)

    def show(self, labels: MemLabels | None, view: StepDataset) -> None:
        """Say what the labels of pictures hold from now on, in the step of this view."""
        self._wanted, self._pictures = labels, {}
        again = labels in ("annotated", "current")
        self._annotated = {view.name(i): (view, i) for i in range(len(view))} if again else {}

    def sample(self, index: int) -> Sample:
        """The picture with its stored saliency map and image label; nothing is labelled unless `show` was called."""
        if index not in self._pictures:
            self._pictures[index] = self._read(self.entries[index])
        return self._pictures[index]

    def _read(self, entry: Entry) -> Sample:
        assert entry.folder is not None
        copy = _copy_of(entry, entry.folder)
        image = read_image(copy) if copy.is_file() else self.split.image(position(self.split, entry.name))
        salient = read_labels(entry.folder / "saliency" / f"{entry.name}.png") > 0
        _require_size(entry, salient.shape, image.shape[:2])
        stored = np.array([name in entry.classes for name in self.order])
        full = None if self.oracle is None else self.oracle[self.split.mask(position(self.split, entry.name))]
        if full is not None:
            _require_size(entry, salient.shape, full.shape)
        return Sample(image, self._labels(entry, salient.shape), salient, stored, full)

    def _labels(self, entry: Entry, shape: tuple[int, ...]) -> Mask:
        """Learned indices, which a class keeps for ever; 0 where nothing may be known. `all_seen` is `full` instead."""
        labels: Mask | None = np.zeros(shape, dtype=np.uint8)
        if self._wanted in ("annotated", "sampled"):
            labels = _stored_labels(entry)
        if labels is None:
            raise UserError(
                f"memory: {entry.name} was stored without its pixel labels, which method.mem_labels: {self._wanted} "
                "replays. Learn the steps before with the same setting, or set it to current."
            )
        if labels.shape != shape:
            raise UserError(f"memory: the labels of {entry.name} are not of the size of its picture.")
        if entry.name in self._annotated:
            view, place = self._annotated[entry.name]
            labels = _both(entry, labels, view.sample(place).labels)
        return labels

    def save(self, folder: Path, view: StepDataset, config: MemoryConfig, labels: MemLabels | None = None) -> None:
        """Write manifest, saliency maps (one bit a pixel) and, where they will be replayed, pictures and labels."""
        folder.mkdir(exist_ok=True)  # not its parents: a run that was removed meanwhile must not begin to exist again
        new = {view.name(i): i for i in range(len(view))}
        for index, entry in enumerate(self.entries):
            picture = view.sample(new[entry.name]) if entry.folder is None else self.sample(index)
            _write_png(folder / "saliency" / f"{entry.name}.png", picture.salient)
            if config.store == "copy":
                _write_png(_copy_of(entry, folder), picture.image)
            had = picture.labels if entry.folder is None else _stored_labels(entry)
            if labels == "annotated" and had is not None and entry.name in new:
                had = _both(entry, had, view.sample(new[entry.name]).labels)
            if labels in ("annotated", "sampled") and had is not None:
                _write_png(_labels_of(entry, folder), had)
        write_json(folder / "manifest.json", self._manifest(config))

    def without_copy(self) -> list[str]:
        """The pictures that only the data set has."""
        return [entry.name for entry in self.entries if not (entry.folder and _copy_of(entry, entry.folder).is_file())]

    def move(self, folder: Path, coming: Sequence[Split]) -> None:
        """Write it with copies of its pictures, so that it needs its data set no longer.

        Where a split of the data that comes next has another picture of the same name, the remembered one gets a new
        name. One that comes again keeps its name, by which the next step finds what it annotates there.
        """
        folder.mkdir(parents=True, exist_ok=True)
        theirs = [{name: place for place, name in enumerate(split.names)} for split in coming]
        used, moved = {*chain(*theirs), *(entry.name for entry in self.entries)}, []
        for index, entry in enumerate(self.entries):
            new, picture = entry, self.sample(index)
            having = [(split, own[entry.name]) for split, own in zip(coming, theirs, strict=True) if entry.name in own]
            if not all(_shows(split, place, picture.image) for split, place in having):
                while new.name in used:
                    new = replace(new, name=f"old/{new.name}")
                used.add(new.name)
            _write_png(folder / "saliency" / f"{new.name}.png", picture.salient)
            _write_png(_copy_of(new, folder), picture.image)
            if (had := _stored_labels(entry)) is not None:
                _write_png(_labels_of(new, folder), had)
            moved.append(new)
        config = MemoryConfig(size=len(moved), store="copy")
        write_json(folder / "manifest.json", ReplayMemory(moved, self.split, self.order)._manifest(config))

    def _manifest(self, config: MemoryConfig) -> dict[str, Any]:
        entries = [
            {
                "name": entry.name,
                "step": entry.step,
                "classes": list(entry.classes),
                "multi_hot": [int(name in entry.classes) for name in self.order],
                "guessed": list(entry.guessed),
            }
            for entry in self.entries
        ]
        return {"version": VERSION, **asdict(config), "order": list(self.order), "entries": entries}

    @classmethod
    def load(cls, folder: Path, split: Split) -> ReplayMemory:
        """Read a manifest, checked."""
        path = folder / "manifest.json"
        manifest = read_json(path, "the memory's manifest", VERSION)
        try:
            order = [str(name) for name in manifest["order"]]
            entries = [_read_entry(entry, order, folder, path) for entry in manifest["entries"]]
        except (KeyError, TypeError) as error:
            raise UserError(f"the memory's manifest is damaged: {path} ({error!r}).") from error
        return cls(entries, split, order)


class NoPictures:
    """The split of a data set that is gone, for a memory that has copies, or of which nobody wants the pictures."""

    names: Sequence[str] = ()

    def image(self, index: int) -> Image:
        """None."""
        raise IndexError(index)

    mask = image

    def saliency(self, index: int) -> Saliency:
        """None."""
        raise IndexError(index)

    def presence(self) -> list[frozenset[int]]:
        """Of no picture."""
        return []


def _shows(split: Split, place: int, image: Image) -> bool:
    """Whether the split has this very picture there, pixel by pixel."""
    return np.array_equal(split.image(place), image)


def _copy_of(entry: Entry, folder: Path) -> Path:
    return folder / "images" / f"{entry.name}.png"


def _labels_of(entry: Entry, folder: Path) -> Path:
    return folder / "labels" / f"{entry.name}.png"


def _stored_labels(entry: Entry) -> Mask | None:
    """The labels that the step had which stored the picture, if they were stored."""
    path = None if entry.folder is None else _labels_of(entry, entry.folder)
    return read_labels(path) if path is not None and path.is_file() else None


def _require_size(entry: Entry, stored: tuple[int, ...], now: tuple[int, ...]) -> None:
    """Raise if the data shows a picture in another size than the one that is remembered."""
    if stored != now:
        raise UserError(
            f"memory: {entry.name} is no longer of the size it had when it was stored ({stored[1]}x{stored[0]}, now "
            f"{now[1]}x{now[0]}). Bring back the data as it was, or begin another run."
        )


def _both(entry: Entry, stored: Mask, now: Mask) -> Mask:
    """Labels that a picture was stored with, and where they say nothing those of the step that shows it again."""
    _require_size(entry, stored.shape, now.shape)
    both: Mask = np.where(stored == 0, now, stored)
    return both


def _write_png(path: Path, array: NDArray[Any]) -> None:
    """True-or-false arrays take one bit a pixel."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        Pillow.fromarray(array).save(temporary, format="PNG")


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
