"""The files of a data set by name, lists of names, and errors about a tree that is laid out in another way."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from unicodedata import normalize

from ipseg.data.dataset import DataError
from ipseg.data.image_io import IMAGE_SUFFIXES
from ipseg.errors import UserError
from ipseg.files import read_plain
from ipseg.parsing import require_text

MAX_LIST_BYTES = 1 << 28
"""Of a list of names: those of millions of images."""


class LayoutError(UserError):
    """Files are not where a data set expects them. Its settings show the expected tree with it."""


@dataclass(frozen=True)
class Files:
    """The files below a folder, by name: the path below it, without the suffix."""

    folder: Path
    suffixes: tuple[str, ...]
    paths: Mapping[str, Path]

    @classmethod
    def below(cls, folder: Path, root: Path, suffixes: tuple[str, ...] = IMAGE_SUFFIXES) -> Files:
        """List a folder of the tree `root`; one that does not exist is empty."""
        paths: dict[str, Path] = {}
        for path in _walk(folder, root) if folder.is_dir() else ():
            if path.suffix.lower() in suffixes:
                name = normalize_name(path.relative_to(folder).as_posix())
                if name in paths:
                    raise UserError(
                        f"{folder} holds {paths[name].name} and {path.name}: two files of one name. Rename one of them."
                    )
                paths[name] = path
        return cls(folder, suffixes, paths)

    def path(self, name: str) -> Path:
        if name not in self.paths:
            raise self.missing(name)
        return self.paths[name]

    def missing(self, name: str) -> DataError:
        """The error for a name without a file."""
        bare = normalize_name(name) if PurePosixPath(name).suffix.lower() in IMAGE_SUFFIXES else None
        hint = f" Write names without suffix: {bare}." if bare in self.paths else ""
        suffixes = ", ".join(self.suffixes)
        return DataError("missing", f"{self.folder / name} is missing (looked for {suffixes}).{hint}")


def _walk(folder: Path, root: Path) -> Iterator[Path]:
    """Every file below, in order, except hidden ones: systems and archives leave those behind."""
    require_inside(folder, root)
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        path = folder / entry.name
        if entry.name.startswith("."):
            continue
        if entry.is_symlink():
            require_inside(path, root)
            if entry.is_dir() and not folder.resolve().is_relative_to(path.resolve()):
                raise UserError(
                    f"{path} is a link to a folder, and those are not followed: put the folder itself there."
                )
        if entry.is_dir(follow_symlinks=False):  # a link to a folder above would never end
            yield from _walk(path, root)
        elif entry.is_file():
            yield path


def require_inside(path: Path, root: Path) -> None:
    """Raise if a path leads out of the tree, as a symlink may: a stranger's archive could point at any file."""
    try:
        target = path.resolve()
    except RuntimeError as error:
        raise UserError(f"{path} is a link that leads back to itself. Remove it.") from error
    if not target.is_relative_to(root.resolve()):
        raise UserError(
            f"{path} leads to {target}, outside of {root}. Links must stay inside the data's folder: "
            "put the files themselves there."
        )


def normalize_name(file: str) -> str:
    """A file's name in the data set: without suffix, in one of the two ways to write é (itself, or e and its accent).

    >>> normalize_name("street/day 1.jpg")
    'street/day 1'
    """
    try:
        file.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{file!r} is not in UTF-8, as names of images must be. Rename it.") from error
    if "\0" in file:
        raise UserError(f"{file!r} cannot be the name of a file: it has a zero byte.")
    return normalize("NFC", str(PurePosixPath(file).with_suffix("")))


def require_folders(root: Path, needed: Sequence[str] = ()) -> None:
    """Raise unless the data set's folder exists and has these folders."""
    if not root.is_dir():
        problem = "is a file" if root.exists() else "does not exist"
        where = "" if root.is_absolute() else f" (looked for in {Path.cwd()}, where the command runs)"
        raise LayoutError(f"data.path: {root} is not a data folder: it {problem}{where}.")
    missing = [name for name in needed if not (root / name).is_dir()]
    if missing:
        below = [path for depth in ("*", "*/*") for path in root.glob(f"{depth}/{missing[0]}") if path.is_dir()]
        guess = f" Did you mean {below[0].parents[missing[0].count('/')]}?" if below else ""
        raise LayoutError(f"data.path: {root} has no {', '.join(f'{name}/' for name in missing)}.{guess}")


def read_lines(path: Path, root: Path) -> list[str]:
    """The lines that are not empty, letters normalized; a byte order mark, as some editors write, is dropped."""
    require_inside(path, root)
    try:
        text = read_plain(path, MAX_LIST_BYTES).decode("utf-8-sig")
        require_text(text)
    except FileNotFoundError as error:
        raise LayoutError(f"{path} is missing.") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is not a text file in UTF-8 ({error}).") from error
    return [line.strip() for line in normalize("NFC", text).splitlines() if line.strip()]


def read_names(path: Path, root: Path) -> list[str]:
    """The names in a list, checked."""
    return require_names(read_lines(path, root), path)


def require_names(names: list[str], source: Path) -> list[str]:
    """The names of a split's images if there are any, all inside the folder, each once."""
    if not names:
        raise LayoutError(f"{source} names no images.")
    for name in names:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise UserError(f'{source} names "{name}"; a name must stay inside the folder.')
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise UserError(f"{source} names {truncate(repeated)} more than once; an image counts once.")
    return names


def truncate(names: Sequence[str]) -> str:
    """The first of many.

    >>> truncate(["a", "b"]), truncate(["a", "b", "c", "d"])
    ('a, b', 'a, b, c and 1 more')
    """
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
