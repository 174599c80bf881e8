"""Data sets that lie in files: which file belongs to which name, and a split of the pictures found there."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, cast
from unicodedata import normalize

from ipseg.data.dataset import DataError, DatasetSplits, Image, Mask, Saliency
from ipseg.data.image_io import IMAGE_SUFFIXES, read_image
from ipseg.data.mask_index import class_presence_of
from ipseg.errors import UserError
from ipseg.files import read_plain

if TYPE_CHECKING:
    from ipseg.data.saliency_source import SaliencySource

MOST_LINES = 1 << 28
"""Bytes of a list of names: those of millions of images."""
MaskReader = Callable[[Path], Mask]
"""Reads a mask in the data set's values. Picklable, and its repr says all that its answers depend on."""


@dataclass(frozen=True)
class Files:
    """The files below a folder, by name: the path below it, without the suffix."""

    folder: Path
    suffixes: tuple[str, ...]
    paths: Mapping[str, Path]

    @classmethod
    def below(cls, folder: Path, root: Path, suffixes: tuple[str, ...] = IMAGE_SUFFIXES) -> Files:
        """List a folder of the tree `root`; one that is not there holds nothing."""
        paths: dict[str, Path] = {}
        for path in _walk(folder, root) if folder.is_dir() else ():
            if path.suffix.lower() in suffixes:
                name = as_name(path.relative_to(folder).as_posix())
                if name in paths:
                    raise UserError(
                        f"{folder} holds {paths[name].name} and {path.name}: two files of one name. Rename one of them."
                    )
                paths[name] = path
        return cls(folder, suffixes, paths)

    def path(self, name: str) -> Path:
        """The file of that name."""
        if name not in self.paths:
            bare = as_name(name) if PurePosixPath(name).suffix.lower() in IMAGE_SUFFIXES else None
            hint = f" Write names without suffix: {bare}." if bare in self.paths else ""
            looked = ", ".join(self.suffixes)
            raise DataError("missing", f"{self.folder / name} is missing (looked for {looked}).{hint}")
        return self.paths[name]


class FileDataset:
    """Some pictures of a tree of files. Pixels are read when they are needed."""

    def __init__(
        self,
        names: Sequence[str],
        classes: Sequence[str],
        *,
        images: Files,
        masks: Files,
        read_mask: MaskReader,
        saliency_source: SaliencySource,
    ) -> None:
        self.names, self.classes, self.read_mask = names, classes, read_mask
        self.images, self.masks, self.saliency_source = images, masks, saliency_source

    def having(self, names: Sequence[str]) -> FileDataset:
        """Other pictures of the same tree."""
        return FileDataset(
            names,
            self.classes,
            images=self.images,
            masks=self.masks,
            read_mask=self.read_mask,
            saliency_source=self.saliency_source,
        )

    def image_path(self, index: int) -> Path:
        """Where the picture lies."""
        return self.images.path(self.names[index])

    def mask_path(self, index: int) -> Path:
        """What `read_mask` reads its mask from."""
        return self.masks.path(self.names[index])

    def image(self, index: int) -> Image:
        """RGB, turned as its EXIF says."""
        return read_image(self.image_path(index))

    def mask(self, index: int) -> Mask:
        """Values of the data set, checked to be known."""
        return self.read_mask(self.mask_path(index))

    def saliency(self, index: int) -> Saliency:
        """As the setting data.saliency says."""
        return self.saliency_source.of(self, index)

    @cached_property
    def _class_presence(self) -> list[frozenset[int]]:
        return class_presence_of([self.mask_path(index) for index in range(len(self.names))], self.read_mask)

    def class_presence(self) -> list[frozenset[int]]:
        """From the masks."""
        return self._class_presence


def _walk(folder: Path, root: Path) -> Iterator[Path]:
    """Every file below, in order. Hidden ones are leavings of systems and archives."""
    require_inside(folder, root)
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        path = folder / entry.name
        if entry.name.startswith("."):
            continue
        if entry.is_symlink():
            require_inside(path, root)
            if entry.is_dir() and not folder.resolve().is_relative_to(path.resolve()):
                raise UserError(
                    f"{path} is a link to a folder, and such are not followed: put the folder itself there."
                )
        if entry.is_dir(follow_symlinks=False):  # a link to a folder above would never end
            yield from _walk(path, root)
        elif entry.is_file():
            yield path


def require_inside(path: Path, root: Path) -> None:
    """Raise if a path leads out of the tree, as a symlink may: a stranger's archive could point at any file."""
    try:
        found = path.resolve()
    except RuntimeError as error:
        raise UserError(f"{path} is a link that leads back to itself. Remove it.") from error
    if not found.is_relative_to(root.resolve()):
        raise UserError(
            f"{path} leads to {found}, outside of {root}. Links must stay inside the data's folder: "
            "put the files themselves there."
        )


def as_name(file: str) -> str:
    """A file's name in the data set. One letter may be written in two ways (é, or e and its accent): one of them.

    >>> as_name("street/day 1.jpg")
    'street/day 1'
    """
    try:
        file.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"{file!r} is not in UTF-8, as names of pictures must be: they are written down. Rename it."
        ) from error
    if "\0" in file:
        raise UserError(f"{file!r} cannot be the name of a file: it has a zero byte.")
    return normalize("NFC", str(PurePosixPath(file).with_suffix("")))


def require_exists(root: Path, more: str = "") -> None:
    """Raise if there is no such folder, and say where it was looked for: people may be elsewhere than they think."""
    if not root.is_dir():
        what = "is a file" if root.exists() else "does not exist"
        where = "" if root.is_absolute() else f" (looked for in {Path.cwd()}, where the command runs)"
        raise UserError(f"data.path: {root} is not a data folder: it {what}{where}.{more}")


def require_folders(root: Path, needed: Iterable[str], kind: str, tree: str) -> None:
    """Raise with the expected tree if one of the folders is not there."""
    require_exists(root, f" Expected:\n{tree}")
    missing = [name for name in needed if not (root / name).is_dir()]
    if missing:
        below = [path for depth in ("*", "*/*") for path in root.glob(f"{depth}/{missing[0]}") if path.is_dir()]
        guess = f" Did you mean {below[0].parents[missing[0].count('/')]}?" if below else ""
        raise UserError(
            f"data.path: {root} is not a data folder of the kind {kind}: "
            f"{', '.join(f'{name}/' for name in missing)} missing.{guess} Expected:\n{tree}"
        )


def read_lines(path: Path, root: Path, tree: str) -> list[str]:
    """The lines that say something; a byte order mark, as some editors write, is no part of the first.

    One letter may be written in two ways, as in names of files: one of them.
    """
    require_inside(path, root)
    try:
        text = read_plain(path, MOST_LINES).decode("utf-8-sig")
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing. Expected:\n{tree}") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is not a text file in UTF-8 ({error}).") from error
    return [line.strip() for line in normalize("NFC", text).splitlines() if line.strip()]


def read_names(path: Path, root: Path, tree: str) -> list[str]:
    """The names in a split file: inside the folder, each once."""
    return checked_names(read_lines(path, root, tree), str(path), tree)


def checked_names(names: list[str], where: str, tree: str) -> list[str]:
    """Names as a split may have them: at least one, inside the folder, each once."""
    if not names:
        raise UserError(f"{where} names no pictures. Expected:\n{tree}")
    for name in names:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise UserError(f'{where} names "{name}"; a name must stay inside the folder.')
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UserError(f"{where} names {truncate(twice)} more than once; a picture counts once.")
    return names


def require_complete(splits: DatasetSplits, tree: str) -> DatasetSplits:
    """Raise unless both splits have pictures of their own, each with its image and its mask; to learn from, its map."""
    train, val = cast(FileDataset, splits.train), cast(FileDataset, splits.val)
    require_files(train, "train", tree)
    require_files(val, "val", tree)
    if errors := in_both(train, val):
        raise errors[0]
    train.saliency_source.require(train.names)
    return splits


def in_both(train: FileDataset, val: FileDataset) -> list[DataError]:
    """Images that are learned from and measured on. Equal names in two folders, as ADE's, are two images."""
    both = sorted({*train.names} & {*val.names}) if train.images.folder == val.images.folder else []
    why = "is in both splits, train and val: what is learned from must not be measured on. Take it out of one list."
    return [DataError("in_both_splits", f"{name} {why}") for name in both]


def without_mask(*splits: FileDataset) -> list[Path]:
    """Images that have no mask and that no split names: nobody would miss them."""
    used = {split.images.paths.get(name) for split in splits for name in (*split.names, *split.masks.paths)}
    return sorted({path for split in splits for path in split.images.paths.values()} - used)


def require_files(split: FileDataset, split_name: str, tree: str) -> None:
    """Raise unless a split has pictures, each with its image and its mask."""
    if not split.names:
        raise UserError(f"the split {split_name} names no pictures. Expected:\n{tree}")
    for files in (split.images, split.masks):
        missing = [name for name in split.names if name not in files.paths]
        try:
            _ = [files.path(name) for name in missing[:1]]
        except DataError as error:
            more = f" {len(missing)} of {len(split.names)} are: {truncate(missing)}." if len(missing) > 1 else ""
            raise DataError("missing", f"the split {split_name}: {error}{more} Expected:\n{tree}") from error


def truncate(names: Sequence[str]) -> str:
    """The first of many.

    >>> some(["a", "b"]), some(["a", "b", "c", "d"])
    ('a, b', 'a, b, c and 1 more')
    """
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
