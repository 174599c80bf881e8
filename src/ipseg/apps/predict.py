"""Label images: files and folders in, label maps and overlays out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from ipseg.apps.model import Model, Result, as_array, format_posterior
from ipseg.data.image_io import find_images
from ipseg.errors import FULL, UserError, about_a_place
from ipseg.files import HEAD, remove_abandoned, replacing, write_text
from ipseg.report.overlay import legend_entries, overlay, with_legend
from ipseg.report.palette import indexed_image

CLASSES = "classes.txt"
ENDINGS = (".png", "_overlay.png", "_scores.npz", "_unknown.png")
"""What may be written for an image, after its name."""
SCORES = 1_000_000_000
"""Bytes of scores that are kept of an image, at most."""
WRITTEN_BY = "ipseg predict"
"""What the images' files say about themselves."""


@dataclass(frozen=True)
class Wanted:
    """What is written beside label map and overlay."""

    probabilities: bool = False
    unknown: bool = False


def predict_all(
    model: Model, paths: Sequence[Path], out: Path, wanted: Wanted, say: Callable[[str], None]
) -> dict[Path, str]:
    """Label every image. One that fails does not stop the others; returns what was wrong with each of those."""
    names = choose_names(_once(find_images(list(paths), say)), out)
    listed = [f"{index} {name}" for index, name in enumerate(model.classes)]
    _require_fitting(out / CLASSES, listed)
    _require_ours(out, names.values())
    if wanted.unknown:
        unknown_of(model.predict(np.zeros((64, 64, 3), np.uint8)))  # raises before anything is written
    out.mkdir(parents=True, exist_ok=True)
    remove_abandoned(out, lambda head: head.startswith((b"\x89PNG", b"PK", b"0 background")))
    write_text(out / CLASSES, "\n".join([*listed, ""]))
    failed: dict[Path, str] = {}
    for path, name in names.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore", Image.DecompressionBombWarning
                )  # it would be an error at twice that size
                image = as_array(path)
            if wanted.probabilities:
                _require_room(path, image, len(model.classes))
            result = model.predict(image, scores=wanted.probabilities, unknown=wanted.unknown)
            write_result(result, image, out, name, wanted)
        except Exception as error:
            failed[path] = what_failed(path, error)
            continue
        written = "" if name == path.stem else f" -> {name}.png"
        say(f"{path}{written}: {describe(result)}")
    return failed


def what_failed(path: Path, error: Exception) -> str:
    """Why an image was not labeled. A full disk is raised: it would stop every other image as well."""
    if isinstance(error.__cause__, OSError) and error.__cause__.errno in FULL:
        raise error
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, OSError) and (problem := about_a_place(error)):
        return problem
    if isinstance(error, MemoryError) or "memory" in str(error):
        return (
            f"{path} needs more memory than there is ({str(error).splitlines()[0] if str(error) else 'MemoryError'})."
        )
    return f"{path} could not be labeled ({type(error).__name__}: {error})."


def _require_room(path: Path, image: np.ndarray, classes: int) -> None:
    needed = image.shape[0] * image.shape[1] * classes * 4
    if needed > SCORES:
        raise UserError(
            f"--probabilities: the scores of {path} would take {needed / 1e9:.1f} GB; at most {SCORES / 1e9:.0f} are "
            "kept. Leave the option out, or scale the image down."
        )


def describe(result: Result) -> str:
    """Which classes the posterior saw, and which are in the map."""
    drawn = ", ".join(result.drawn) or "background only"
    if result.posterior is None:
        return f"map: {drawn}"
    return f"posterior: {format_posterior(result.posterior)} | map: {drawn}"


def write_result(result: Result, image: np.ndarray, out: Path, name: str, wanted: Wanted) -> None:
    """The files of one image."""
    save_png(indexed_image(result.labels), out / f"{name}.png", WRITTEN_BY, optimize=True)
    shown = with_legend(overlay(image, result.labels, result.classes), legend_entries(result.labels, result.classes))
    save_png(shown, out / f"{name}_overlay.png", WRITTEN_BY)
    if result.scores is not None and wanted.probabilities:
        with replacing(out / f"{name}_scores.npz") as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, scores=result.scores.astype(np.float16), names=np.array(result.classes))
    if wanted.unknown:
        gray = (unknown_of(result) * 255).round().astype(np.uint8)
        save_png(Image.fromarray(gray), out / f"{name}_unknown.png", WRITTEN_BY)


def unknown_of(result: Result) -> NDArray[np.float32]:
    """The map of unknown objects, where the method makes one."""
    if result.unknown is None:
        raise UserError(
            "--unknown: the run's method has no map of unknown objects; IPSeg and SSUL have. Leave the option out."
        )
    return result.unknown


def save_png(image: Image.Image, path: Path, made_by: str, *, optimize: bool = False) -> None:
    """Write an image, whole or not at all, with the word that it is ours."""
    about = PngInfo()
    about.add_text("Software", made_by)
    with replacing(path) as temporary:
        image.save(temporary, format="PNG", pnginfo=about, optimize=optimize)


def stamp(made_by: str) -> bytes:
    """What a file of `save_png` has among its first bytes."""
    return f"Software\0{made_by}".encode()


def choose_names(images: Sequence[Path], out: Path) -> dict[Path, str]:
    """A name for each image's files: its own, numbered where another image's files have that name already."""
    inputs = {_identity(image): image for image in images}
    taken: set[str] = set()
    names: dict[Path, str] = {}
    for image in images:
        name, number = image.stem, 1
        while taken & _files(name):
            number += 1
            name = f"{image.stem}_{number}"
        taken |= _files(name)
        names[image] = name
    for name in names.values():
        for ending in ENDINGS:
            target = out / f"{name}{ending}"
            if target.exists() and _identity(target) in inputs:
                raise UserError(f"--out {out} would overwrite the image {target}. Choose another folder.")
    return names


def _files(name: str) -> set[str]:
    return {f"{name}{ending}".casefold() for ending in ENDINGS}  # some file systems do not tell A from a


def _identity(path: Path) -> tuple[int, int]:
    """The same for every name of one file."""
    status = path.stat()
    return status.st_dev, status.st_ino


def _once(images: Iterable[Path]) -> list[Path]:
    """Every file once, however often it was named."""
    return list({_identity(image): image for image in reversed(list(images))}.values())[::-1]


def _require_fitting(path: Path, listed: Sequence[str]) -> None:
    """Raise unless the list of classes there, if any, is ours, and goes on to hold for the label maps beside it."""
    if not path.exists():
        return
    there = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    if there[:1] != ["0 background"]:  # data has a classes.txt too
        raise _not_ours(path)
    for old, new in zip_longest(there, listed[: len(there)]):
        if old != new:
            raise UserError(
                f"{path} is of a model with other classes: it lists {old}, and this one has {new or 'no such label'}. "
                "Label maps beside it would get wrong names. Choose another folder with --out."
            )


def _require_ours(out: Path, names: Iterable[str]) -> None:
    """Raise if a file would be replaced that no earlier call wrote."""
    for name in names:
        for ending in ENDINGS:
            target = out / f"{name}{ending}"
            # scores have no room for a stamp, but a label map beside them
            stamped = target if target.suffix == ".png" else out / f"{name}.png"
            if target.exists() and not _is_ours(stamped):
                raise _not_ours(target)


def _is_ours(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return stamp(WRITTEN_BY) in file.read(HEAD)


def _not_ours(path: Path) -> UserError:
    return UserError(f"{path} is not of ipseg predict and would be overwritten. Choose another folder with --out.")
