"""The replay memory M: a few images of the past, with an image label and a saliency map, and its files.

Pixel annotations are stored only for methods that replay them (`annotated`, `sampled`), and then those alone that the
step had which stored the image, or one since. On disk: a manifest, and PNGs by name in saliency/, regions/, images/
and labels/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from ipseg.config import scoped
from ipseg.data.batch import Sample
from ipseg.data.dataset import Dataset, Mask, Regions
from ipseg.data.image_io import read_image, read_labels, read_regions
from ipseg.data.step_dataset import StepDataset
from ipseg.errors import UserError, require_at_least
from ipseg.files import read_json, replacing, write_json

VERSION = 1
MemLabels = Literal["annotated", "sampled", "current", "all_seen"]
"""What a replayed image's labels hold: those of all steps that showed it since it was stored, of the step that stored
it, of the current step, of all seen classes."""


@dataclass(frozen=True, kw_only=True)
class MemoryConfig:
    """How much of the past is kept, and how."""

    size: int = 100
    """Images kept, |M| of the paper; 0 is `IPSeg w/o M`."""

    store: Literal["path", "copy"] = scoped("path", "fixed")
    """path: the image's name in the data set, which must stay. copy: image files too, so that the data set is no longer
    required."""

    def __post_init__(self) -> None:
        require_at_least("memory.size", self.size, 0)


@dataclass(frozen=True)
class Exemplar:
    """One stored image."""

    name: str
    """In the training data."""
    classes: tuple[str, ...]
    """Its image label: the step's own classes from ground truth, older ones from the model."""
    step: int
    """When it was selected."""
    folder: Path | None = None
    """Of its files; none while it is still in the data only."""
    guessed: tuple[str, ...] = ()
    """Those of its classes that the model predicted and no step annotated."""

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

    def labels_of(self, exemplar: Exemplar, shape: tuple[int, ...]) -> Mask:
        """Learned indices, which a class keeps forever; 0 where nothing may be known. `all_seen` is `full` instead."""
        labels: Mask | None = np.zeros(shape, dtype=np.uint8)
        if self.labels in ("annotated", "sampled"):
            labels = exemplar.stored_labels()
        if labels is None:
            raise UserError(
                f"memory: {exemplar.name} was stored without its pixel labels, which method.mem_labels: {self.labels} "
                "replays. Learn the steps before with the same setting, or set it to current."
            )
        if labels.shape != shape:
            raise UserError(f"memory: the labels of {exemplar.name} are not of the size of its image.")
        if exemplar.name in self._shown_again:
            assert self._dataset is not None
            labels = with_new_labels(exemplar, labels, self._dataset.labels(self._shown_again[exemplar.name]))
        return labels

    def regions_of(self, exemplar: Exemplar, shape: tuple[int, ...]) -> Regions | None:
        """The stored map of regions, if the step reads regions."""
        assert exemplar.folder is not None
        path = exemplar.folder / "regions" / f"{exemplar.name}.png"
        if self._dataset is None or not self._dataset.regions:
            return read_regions(path) if path.is_file() else None
        if not path.is_file():
            raise UserError(
                f"memory: {exemplar.name} was stored without its regions, which the method replays. Learn the steps "
                "before with a method over regions."
            )
        regions = read_regions(path)
        _require_size(exemplar, shape, regions.shape)
        return regions


class ReplayMemory:
    """Stored images, readable without the annotations they once had."""

    def __init__(
        self, exemplars: Sequence[Exemplar], split: Dataset, order: Sequence[str], policy: LabelPolicy | None = None
    ) -> None:
        self.exemplars, self.split, self.order = tuple(exemplars), split, tuple(order)
        self.policy = policy or LabelPolicy()
        self._samples: dict[int, Sample] = {}  # few and often used

    def __len__(self) -> int:
        return len(self.exemplars)

    def sample(self, index: int) -> Sample:
        """The image with its stored saliency map and image label, and labels by the policy."""
        if index not in self._samples:
            self._samples[index] = self._read(self.exemplars[index])
        return self._samples[index]

    def _read(self, exemplar: Exemplar) -> Sample:
        assert exemplar.folder is not None
        file = f"{exemplar.name}.png"
        if exemplar.has_copy():
            image = read_image(exemplar.folder / "images" / file)
        else:
            image = self.split.image(self._index(exemplar.name))
        salient = read_labels(exemplar.folder / "saliency" / file) > 0
        _require_size(exemplar, salient.shape, image.shape[:2])
        full = None
        if self.policy.oracle is not None:
            full = self.policy.oracle[self.split.mask(self._index(exemplar.name))]
            _require_size(exemplar, salient.shape, full.shape)
        stored = np.array([name in exemplar.classes for name in self.order])
        labels, regions = (
            self.policy.labels_of(exemplar, salient.shape),
            self.policy.regions_of(exemplar, salient.shape),
        )
        return Sample(image, labels, salient, stored, full, regions)

    def _index(self, name: str) -> int:
        names = list(self.split.names)
        if name not in names:
            like = f'; names look like "{names[0]}"' if names else ", which has none there"
            raise UserError(f'no image "{name}" in the data{like}.')
        return names.index(name)

    def without_copy(self) -> list[str]:
        """The images that only the data set has."""
        return [exemplar.name for exemplar in self.exemplars if not exemplar.has_copy()]


def with_new_labels(exemplar: Exemplar, stored: Mask, now: Mask) -> Mask:
    """Labels that an image was stored with, and where they hold nothing those of the step that shows it again."""
    _require_size(exemplar, stored.shape, now.shape)
    both: Mask = np.where(stored == 0, now, stored)
    return both


def _require_size(exemplar: Exemplar, stored: tuple[int, ...], now: tuple[int, ...]) -> None:
    if stored != now:
        raise UserError(
            f"memory: {exemplar.name} is no longer of the size it had when it was stored ({stored[1]}x{stored[0]}, now "
            f"{now[1]}x{now[0]}). Bring back the data as it was, or begin another run."
        )


# ---- after a step ---------------------------------------------------------------------------------------------------


def select_exemplars(
    candidates: Iterable[Exemplar], classes: Sequence[str], size: int, rng: np.random.Generator
) -> list[Exemplar]:
    """Class-balanced sampling (section 3.5): at least size // |classes| images of each class, if there are so many.

    If there are more classes than places, one of each of as many as there are places. Annotated classes count: a class
    that the model takes for others would have its places filled with these. Then the memory is filled at random. No
    image is taken twice.
    """
    pool = {exemplar.name: exemplar for exemplar in candidates}
    shuffled = [pool[name] for name in rng.permutation(sorted(pool))]
    quota = max(1, size // len(classes))
    chosen: dict[str, Exemplar] = {}
    for wanted in rng.permutation(list(classes)):
        count = sum(wanted in exemplar.annotated for exemplar in chosen.values())
        more = [exemplar for exemplar in shuffled if wanted in exemplar.annotated and exemplar.name not in chosen]
        chosen |= {exemplar.name: exemplar for exemplar in more[: max(0, min(quota - count, size - len(chosen)))]}
    rest = [exemplar for exemplar in shuffled if exemplar.name not in chosen]
    return [*chosen.values(), *rest[: size - len(chosen)]]


def update_memory(
    memory: ReplayMemory,
    dataset: StepDataset,
    config: MemoryConfig,
    seed: int,
    old_classes: Callable[[Sample], Iterable[str]],
) -> ReplayMemory:
    """The memory after a step: old exemplars and the step's images compete for its places.

    `old_classes` predicts the classes of earlier steps in an image: their annotations are not there.
    """
    step, order = dataset.step, dataset.step.seen
    indices = {dataset.name(i): i for i in range(len(dataset))}
    candidates = {name: Exemplar(name, dataset.classes_in(i), step.index) for name, i in indices.items()}
    for exemplar in memory.exemplars:  # one that this step shows again has its new classes annotated now
        own = candidates[exemplar.name].classes if exemplar.name in candidates else ()
        candidates[exemplar.name] = replace(exemplar, classes=(*exemplar.classes, *own))
    rng = np.random.default_rng([seed, step.index])
    chosen = select_exemplars(candidates.values(), order, config.size, rng) if config.size else []
    for i, exemplar in enumerate(chosen):
        if exemplar.folder is None:
            seen = set(old_classes(dataset.sample(indices[exemplar.name])))
            classes = tuple(name for name in order if name in seen or name in exemplar.classes)
            chosen[i] = replace(exemplar, classes=classes, guessed=tuple(name for name in classes if name in seen))
    return ReplayMemory(chosen, memory.split, order)


# ---- on disk --------------------------------------------------------------------------------------------------------


def save_memory(
    memory: ReplayMemory, folder: Path, dataset: StepDataset, config: MemoryConfig, labels: MemLabels | None = None
) -> None:
    """Write it after the step of a dataset. `labels`: what will be replayed; without it no labels are stored."""
    folder.mkdir(exist_ok=True)  # not its parents: a run that was removed meanwhile must not begin to exist again
    indices = {dataset.name(i): i for i in range(len(dataset))}
    for index, exemplar in enumerate(memory.exemplars):
        new = exemplar.folder is None
        sample = dataset.sample(indices[exemplar.name]) if new else memory.sample(index)
        had = sample.labels if new else exemplar.stored_labels()
        if labels == "annotated" and had is not None and exemplar.name in indices:
            had = with_new_labels(exemplar, had, dataset.labels(indices[exemplar.name]))
        image = sample.image if config.store == "copy" else None
        _write_files(folder, exemplar.name, sample, image, had if labels in ("annotated", "sampled") else None)
    _write_manifest(folder, memory.exemplars, memory.order, config)


def move_memory(memory: ReplayMemory, folder: Path, coming: Sequence[Dataset]) -> None:
    """Write it with copies of its images, so that it no longer needs its data set.

    Where a split of the data that comes next has another image of the same name, the stored one gets a new name. One
    that comes again keeps its name, by which the next step finds what it annotates there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    indices = [{name: index for index, name in enumerate(split.names)} for split in coming]
    used, moved = {*chain(*indices), *(exemplar.name for exemplar in memory.exemplars)}, []
    for index, exemplar in enumerate(memory.exemplars):
        sample = memory.sample(index)
        new = exemplar
        same_name = [(split, own) for split, own in zip(coming, indices, strict=True) if exemplar.name in own]
        if not all(np.array_equal(split.image(own[exemplar.name]), sample.image) for split, own in same_name):
            while new.name in used:
                new = replace(new, name=f"old/{new.name}")
            used.add(new.name)
        _write_files(folder, new.name, sample, sample.image, exemplar.stored_labels())
        moved.append(new)
    _write_manifest(folder, moved, memory.order, MemoryConfig(size=len(moved), store="copy"))


def load_memory(folder: Path, split: Dataset, policy: LabelPolicy | None = None) -> ReplayMemory:
    """Read a manifest, checked. `split` gives the images of which there is no copy."""
    path = folder / "manifest.json"
    manifest = read_json(path, "the memory's manifest", VERSION)
    try:
        order = [str(name) for name in manifest["order"]]
        exemplars = [_read_entry(entry, order, folder, path) for entry in manifest["entries"]]
    except (KeyError, TypeError) as error:
        raise UserError(f"the memory's manifest is damaged: {path} ({error!r}).") from error
    return ReplayMemory(exemplars, split, order, policy)


def _write_files(folder: Path, name: str, sample: Sample, image: NDArray[np.uint8] | None, labels: Mask | None) -> None:
    kinds = {"saliency": sample.salient, "regions": sample.regions, "images": image, "labels": labels}
    for kind, array in kinds.items():
        if array is not None:
            path = folder / kind / f"{name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary:  # saliency takes one bit a pixel
                Pillow.fromarray(array).save(temporary, format="PNG")


def _write_manifest(folder: Path, exemplars: Sequence[Exemplar], order: Sequence[str], config: MemoryConfig) -> None:
    entries = [
        {
            "name": exemplar.name,
            "step": exemplar.step,
            "classes": list(exemplar.classes),
            "multi_hot": [int(name in exemplar.classes) for name in order],
            "guessed": list(exemplar.guessed),
        }
        for exemplar in exemplars
    ]
    write_json(
        folder / "manifest.json", {"version": VERSION, **asdict(config), "order": list(order), "entries": entries}
    )


def _read_entry(entry: dict[str, Any], order: Sequence[str], folder: Path, path: Path) -> Exemplar:
    name, classes, guessed = str(entry["name"]), tuple(entry["classes"]), tuple(entry.get("guessed", ()))
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise UserError(f'the memory\'s manifest names "{name}", which leaves its folder: {path}.')
    known = set(guessed) <= set(classes) <= set(order)
    if not known or entry["multi_hot"] != [int(name in classes) for name in order]:
        raise UserError(f"the memory's manifest contradicts itself about {name}: {path}.")
    if not isinstance(entry["step"], int):
        raise TypeError(f"step {entry['step']!r}")
    return Exemplar(name, classes, entry["step"], folder, guessed)
