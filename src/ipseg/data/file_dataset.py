"""Data sets that lie in files: a split of images, masks and saliency maps by name, and the settings they share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, cast

import numpy as np

from ipseg.config import scoped
from ipseg.data.dataset import DataError, Dataset, DatasetSplits, Image, Mask, Regions, Saliency, Subset
from ipseg.data.file_tree import Files, LayoutError, truncate
from ipseg.data.image_io import read_image, read_regions, read_salient
from ipseg.data.mask_index import class_presence_of
from ipseg.data.saliency_source import SaliencyMode, SaliencySetting, SaliencySource
from ipseg.errors import UserError
from ipseg.saliency.fallback import salient
from ipseg.saliency.regions import propose_regions
from ipseg.scenario import IGNORE

MaskReader = Callable[[Path], Mask]
"""Reads a mask in the data set's values. Picklable, and its repr names all that its results depend on."""


@dataclass(eq=False)
class FileDataset:
    """Some images of a tree of files. Pixels are read when they are needed."""

    names: Sequence[str]
    images: Files
    masks: Files
    """What `read_mask` reads masks from."""
    read_mask: MaskReader
    saliency_source: SaliencySource
    region_maps: Files
    """Where there are none, regions are computed from the image."""

    def image(self, index: int) -> Image:
        return read_image(self.images.path(self.names[index]))

    def mask(self, index: int) -> Mask:
        return self.read_mask(self.masks.path(self.names[index]))

    def saliency(self, index: int) -> Saliency:
        source = self.saliency_source
        if source.mode == "given":
            source.require([self.names[index]])
            return read_salient(source.files.path(self.names[index]))
        if source.mode == "fallback":
            return salient(self.image(index))
        mask = self.mask(index)
        return (mask != 0) & (mask != IGNORE) if source.mode == "oracle" else np.full(mask.shape, source.mode == "all")

    def regions(self, index: int) -> Regions:
        if not self.region_maps.paths:
            return propose_regions(self.image(index))
        return read_regions(self.region_maps.path(self.names[index]))

    def class_presence(self) -> list[frozenset[int]]:
        return self._class_presence

    @cached_property
    def _class_presence(self) -> list[frozenset[int]]:
        return class_presence_of([self.masks.path(name) for name in self.names], self.read_mask)

    def require_files(self, split: str) -> None:
        """Raise unless the split has images, each with its file and its mask."""
        if not self.names:
            raise LayoutError(f"the split {split} names no images.")
        for files in (self.images, self.masks):
            missing = [name for name in self.names if name not in files.paths]
            if missing:
                more = f" {len(missing)} of {len(self.names)} are: {truncate(missing)}." if len(missing) > 1 else ""
                raise LayoutError(f"the split {split}: {files.missing(missing[0])}{more}")


@dataclass(frozen=True, kw_only=True)
class FileDataConfig:
    """Settings of every data set that lies in files."""

    path: str = scoped(MISSING, "place")
    """The data set's folder."""

    saliency: SaliencySetting = "auto"
    """Where saliency maps come from. given: the data set's own maps. fallback: computed without a model, while reading.
    all: everything is salient, so that all that is not annotated is unknown (SSUL's on ADE20K). none: nothing is, so
    that all of it is background. With either, ipseg needs variant: official. oracle: every object that the masks have,
    of classes of later steps too, which no step may know. auto: given where there are maps, otherwise fallback. Or the
    path of a folder of maps."""

    regions: str | None = scoped(None, "place")
    """Folder of maps of regions (PNG: 0 to 99, 255 for none), for methods over regions. null: `regions` in the data
    where it is there (`ipseg regions` writes it), otherwise computed while reading."""

    tree: ClassVar[str]  # the expected files, for errors

    def _open(self) -> DatasetSplits:
        """List the files; images may be missing."""
        raise NotImplementedError

    @property
    def root(self) -> Path:
        return Path(self.path).expanduser()

    def open(self) -> DatasetSplits:
        """Open the data set, also where images are missing: masks alone tell which classes are where."""
        with self._showing_tree():
            return self._open()

    def build(self) -> DatasetSplits:
        """Open the data set with every file in its place, and the maps to learn from. Pixels are read when needed."""
        with self._showing_tree():
            splits = self._open()
            train, val = cast(FileDataset, splits.train), cast(FileDataset, splits.val)
            train.require_files("train")
            val.require_files("val")
            if errors := in_both(train, val):
                raise errors[0]
            train.saliency_source.require(train.names)
            return splits

    def region_maps(self, part: str = "") -> Files:
        """The maps of regions of a split, `part`, if there are any."""
        root = self.root if self.regions is None else Path(self.regions).expanduser()
        if self.regions is not None and not root.is_dir():
            raise UserError(f'data.regions: "{self.regions}" is no folder. `ipseg regions` writes maps of regions.')
        return Files.below((root / "regions" if self.regions is None else root) / part, root, (".png",))

    def oracle(self) -> list[str]:
        """Settings that see labels a step must not see."""
        return ["data.saliency=oracle"] if self.saliency == "oracle" else []

    @contextmanager
    def _showing_tree(self) -> Iterator[None]:
        try:
            yield
        except LayoutError as error:
            raise UserError(f"{error} Expected:\n{self.tree}") from error


def in_both(train: FileDataset, val: FileDataset) -> list[DataError]:
    """Images that are learned from and measured on. Equal names in two folders, as ADE's, are two images."""
    both = sorted({*train.names} & {*val.names}) if train.images.folder == val.images.folder else []
    why = "is in both splits, train and val: what is learned from must not be measured on. Take it out of one list."
    return [DataError("in_both_splits", f"{name} {why}") for name in both]


def region_mode(dataset: Dataset) -> str | None:
    """Given where regions are read from maps, otherwise fallback. Raises where a map is missing."""
    files = dataset.dataset if isinstance(dataset, Subset) else dataset
    if not isinstance(files, FileDataset):
        return None
    maps = files.region_maps
    missing = [name for name in files.names if name not in maps.paths] if maps.paths else []
    if missing:
        raise UserError(
            f"{maps.folder / missing[0]}.png is missing ({len(missing)} of {len(files.names)} maps of regions are). "
            "`ipseg regions` writes those that are missing; without the folder they are computed while reading."
        )
    return "given" if maps.paths else "fallback"


def saliency_mode(dataset: Dataset) -> SaliencyMode | None:
    """How a dataset gets its saliency, `auto` resolved; none where no setting decides it."""
    files = dataset.dataset if isinstance(dataset, Subset) else dataset
    return files.saliency_source.mode if isinstance(files, FileDataset) else None
