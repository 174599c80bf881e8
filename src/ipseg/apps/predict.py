"""Label images: files and folders in, label maps and overlays out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ipseg.apps.model import SAVED_BY, Model, Result, as_array, format_posterior, save_png
from ipseg.data.image_io import find_images
from ipseg.errors import FULL, UserError, format_path_error, memory_shortage
from ipseg.files import HEAD, remove_abandoned, replacing, write_text
from ipseg.report.palette import indexed_image

CLASSES = "classes.txt"
ENDINGS = (".png", "_overlay.png", "_scores.npz", "_unknown.png")
"""What may be written for an image, after its name."""
SCORE_BYTES = 1_000_000_000
"""Of the scores of an image, at most."""


def predict_all(
    model: Model,
    paths: Sequence[Path],
    out: Path,
    *,
    probabilities: bool,
    unknown: bool,
    log: Callable[[str], None],
) -> dict[Path, str]:
    """Label every image. One that fails does not stop the others; returns the error of each of those."""
    images = {_identity(path): path for path in reversed(list(find_images(list(paths), log)))}  # each file once
    names = choose_names(list(images.values())[::-1], out)
    classes = [f"{index} {name}" for index, name in enumerate(model.classes)]
    _require_same_classes(out / CLASSES, classes)
    _require_own_files(out, names.values())
    if unknown:
        unknown_of(model.predict(np.zeros((64, 64, 3), np.uint8)))  # raises before anything is written
    out.mkdir(parents=True, exist_ok=True)
    remove_abandoned(out, lambda head: head.startswith((b"\x89PNG", b"PK", b"0 background")))
    write_text(out / CLASSES, "\n".join([*classes, ""]))
    failed: dict[Path, str] = {}
    for path, name in names.items():
        try:
            with warnings.catch_warnings():  # Pillow's limit on pixels is an error at twice the size of its warning
                warnings.simplefilter("ignore", Image.DecompressionBombWarning)
                image = as_array(path)
            scores = image.shape[0] * image.shape[1] * len(model.classes) * 4
            if probabilities and scores > SCORE_BYTES:
                raise UserError(
                    f"--probabilities: the scores of {path} would take {scores / 1e9:.1f} GB; at most "
                    f"{SCORE_BYTES / 1e9:.0f} are kept. Leave the option out, or scale the image down."
                )
            result = model.predict(image, scores=probabilities, unknown=unknown)
            _write_result(result, out, name, unknown=unknown)
        except Exception as error:
            failed[path] = _format_failure(path, error)
            continue
        renamed = "" if name == path.stem else f" -> {name}.png"
        posterior = "" if result.posterior is None else f"posterior: {format_posterior(result.posterior)} | "
        log(f"{path}{renamed}: {posterior}map: {', '.join(result.drawn) or 'background only'}")
    return failed


def _format_failure(path: Path, error: Exception) -> str:
    """Why an image was not labeled. A full disk is raised: it would stop every other image as well."""
    if isinstance(error.__cause__, OSError) and error.__cause__.errno in FULL:
        raise error
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, OSError) and (problem := format_path_error(error)):
        return problem
    if shortage := memory_shortage(error):
        return f"{path} needs more memory than there is ({shortage})."
    return f"{path} could not be labeled ({type(error).__name__}: {error})."


def _write_result(result: Result, out: Path, name: str, *, unknown: bool) -> None:
    save_png(indexed_image(result.labels), out / f"{name}.png", optimize=True)
    save_png(result.overlay(), out / f"{name}_overlay.png")
    if result.scores is not None:
        with replacing(out / f"{name}_scores.npz") as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, scores=result.scores.astype(np.float16), names=np.array(result.classes))
    if unknown:
        gray = (unknown_of(result) * 255).round().astype(np.uint8)
        save_png(Image.fromarray(gray), out / f"{name}_unknown.png")


def unknown_of(result: Result) -> NDArray[np.float32]:
    """The map of unknown objects. Raise where the method has none."""
    if result.unknown is None:
        raise UserError(
            "--unknown: the run's method has no map of unknown objects; IPSeg and SSUL have. Leave the option out."
        )
    return result.unknown


# ---- names of files ---------------------------------------------------------------------------------------------


def choose_names(images: Sequence[Path], out: Path) -> dict[Path, str]:
    """A name for each image's files: its own, numbered where another image's files have that name already."""
    inputs = {_identity(image) for image in images}
    taken: set[str] = set()
    names: dict[Path, str] = {}
    for image in images:
        name, number = image.stem, 1
        while taken & (files := {f"{name}{ending}".casefold() for ending in ENDINGS}):  # case may not matter on disk
            number += 1
            name = f"{image.stem}_{number}"
        taken |= files
        names[image] = name
    for target in _targets(out, names.values()):
        if _identity(target) in inputs:
            raise UserError(f"--out {out} would overwrite the image {target}. Choose another folder.")
    return names


def _targets(out: Path, names: Iterable[str]) -> list[Path]:
    """The output files that exist already."""
    return [target for name in names for ending in ENDINGS if (target := out / f"{name}{ending}").exists()]


def _identity(path: Path) -> tuple[int, int]:
    """The same for every name of one file."""
    status = path.stat()
    return status.st_dev, status.st_ino


def _require_same_classes(path: Path, classes: Sequence[str]) -> None:
    """Raise unless an existing list of classes is of an earlier call, and holds for the label maps beside it."""
    if not path.exists():
        return
    existing = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    if existing[:1] != ["0 background"]:  # data has a classes.txt too
        raise _foreign_file(path)
    for old, new in zip_longest(existing, classes[: len(existing)]):
        if old != new:
            raise UserError(
                f"{path} is of a model with other classes: it lists {old}, and this one has {new or 'no such label'}. "
                "Label maps beside it would get wrong names. Choose another folder with --out."
            )


def _require_own_files(out: Path, names: Iterable[str]) -> None:
    """Raise if a file would be replaced that no earlier call wrote."""
    for target in _targets(out, names):
        # scores have no metadata, but a label map beside them
        png = target if target.suffix == ".png" else target.with_name(f"{target.name.removesuffix('_scores.npz')}.png")
        if not png.is_file():
            raise _foreign_file(target)
        with png.open("rb") as file:
            if f"Software\0{SAVED_BY}".encode() not in file.read(HEAD):
                raise _foreign_file(target)


def _foreign_file(path: Path) -> UserError:
    return UserError(f"{path} is not of ipseg predict and would be overwritten. Choose another folder with --out.")
