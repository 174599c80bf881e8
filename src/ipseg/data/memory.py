"""The replay memory M: a few images of the past, with an image label and a saliency map.

Pixel annotations are stored only for methods that replay them (`annotated`, `sampled`), and then those alone that the
step had which stored the image, or one since. On disk: data/memory_io.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ipseg.data.batch import Sample
from ipseg.data.pictures import read_image, read_labels
from ipseg.data.source import Mask, Split, position
from ipseg.data.step_dataset import StepDataset
from ipseg.errors import UserError, require_at_least

MemLabels = Literal["annotated", "sampled", "current", "all_seen"]
"""What a replayed image's labels hold: those of all steps that showed it since it was stored, of the step that stored
it, of the current step, of all seen classes."""


@dataclass(frozen=True, kw_only=True)
class MemoryConfig:
    """How much of the past is kept, and how."""

    size: int = 100
    """Images kept, |M| of the paper; 0 is `IPSeg w/o M`."""

    store: Literal["path", "copy"] = "path"
    """path: the picture's name in the data set, which must stay. copy: the picture too, for data that will be gone."""

    def __post_init__(self) -> None:
        require_at_least("memory.size", self.size, 0)


@dataclass(frozen=True)
class Entry:
    """One stored image."""

    name: str
    """In the training data."""
    classes: tuple[str, ...]
    """Its image label: the step's own classes from ground truth, older ones from the model."""
    step: int
    """When it was chosen."""
    folder: Path | None = None
    """Where its files lie; none while it is still in the data only."""
    guessed: tuple[str, ...] = ()
    """Those of its classes that the model saw and no step annotated."""

    @property
    def annotated(self) -> tuple[str, ...]:
        """The classes that are surely there."""
        return tuple(name for name in self.classes if name not in self.guessed)

    def stored_labels(self) -> Mask | None:
        """The labels that the step had which stored the image, if they were stored."""
        path = None if self.folder is None else self.folder / "labels" / f"{self.name}.png"
        return read_labels(path) if path is not None and path.is_file() else None

    def has_copy(self) -> bool:
        """Whether it can be replayed without its data set."""
        return self.folder is not None and (self.folder / "images" / f"{self.name}.png").is_file()


class LabelPolicy:
    """What the labels of replayed images hold in one step; without arguments nothing.

    `oracle` is a table of labels that memory must not have; only upper bounds give it.
    """

    def __init__(
        self,
        labels: MemLabels | None = None,
        dataset: StepDataset | None = None,
        oracle: NDArray[np.uint8] | None = None,
    ) -> None:
        self.labels, self.oracle, self._dataset = labels, oracle, dataset
        again = dataset is not None and labels in ("annotated", "current")
        self._shown_again = {dataset.name(i): i for i in range(len(dataset))} if dataset is not None and again else {}

    def labels_of(self, entry: Entry, shape: tuple[int, ...]) -> Mask:
        """Learned indices, which a class keeps forever; 0 where nothing may be known. `all_seen` is `full` instead."""
        labels: Mask | None = np.zeros(shape, dtype=np.uint8)
        if self.labels in ("annotated", "sampled"):
            labels = entry.stored_labels()
        if labels is None:
            raise UserError(
                f"memory: {entry.name} was stored without its pixel labels, which method.mem_labels: {self.labels} "
                "replays. Learn the steps before with the same setting, or set it to current."
            )
        if labels.shape != shape:
            raise UserError(f"memory: the labels of {entry.name} are not of the size of its picture.")
        if entry.name in self._shown_again:
            assert self._dataset is not None
            labels = with_new_labels(entry, labels, self._dataset.sample(self._shown_again[entry.name]).labels)
        return labels


class ReplayMemory:
    """Stored images, readable without the annotations they once had."""

    def __init__(
        self, entries: Sequence[Entry], split: Split, order: Sequence[str], policy: LabelPolicy | None = None
    ) -> None:
        self.entries, self.split, self.order = tuple(entries), split, tuple(order)
        self.policy = policy or LabelPolicy()
        self._samples: dict[int, Sample] = {}  # few and often used

    def __len__(self) -> int:
        return len(self.entries)

    def sample(self, index: int) -> Sample:
        """The image with its stored saliency map and image label, and labels as the policy says."""
        if index not in self._samples:
            self._samples[index] = self._read(self.entries[index])
        return self._samples[index]

    def _read(self, entry: Entry) -> Sample:
        assert entry.folder is not None
        file, in_data = f"{entry.name}.png", partial(position, self.split, entry.name)
        image = read_image(entry.folder / "images" / file) if entry.has_copy() else self.split.image(in_data())
        salient = read_labels(entry.folder / "saliency" / file) > 0
        _require_size(entry, salient.shape, image.shape[:2])
        full = None if self.policy.oracle is None else self.policy.oracle[self.split.mask(in_data())]
        if full is not None:
            _require_size(entry, salient.shape, full.shape)
        stored = np.array([name in entry.classes for name in self.order])
        return Sample(image, self.policy.labels_of(entry, salient.shape), salient, stored, full)

    def without_copy(self) -> list[str]:
        """The images that only the data set has."""
        return [entry.name for entry in self.entries if not entry.has_copy()]


def with_new_labels(entry: Entry, stored: Mask, now: Mask) -> Mask:
    """Labels that an image was stored with, and where they say nothing those of the step that shows it again."""
    _require_size(entry, stored.shape, now.shape)
    both: Mask = np.where(stored == 0, now, stored)
    return both


def _require_size(entry: Entry, stored: tuple[int, ...], now: tuple[int, ...]) -> None:
    if stored != now:
        raise UserError(
            f"memory: {entry.name} is no longer of the size it had when it was stored ({stored[1]}x{stored[0]}, now "
            f"{now[1]}x{now[0]}). Bring back the data as it was, or begin another run."
        )
