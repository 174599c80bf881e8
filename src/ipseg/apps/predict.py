"""Label pictures: files and folders in, label maps and overlays out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from ipseg.apps.model import Model, Result, as_array, say_posterior
from ipseg.data.pictures import find_images
from ipseg.errors import UserError
from ipseg.files import replacing, write_text
from ipseg.report.overlay import legend_entries, overlay, with_legend
from ipseg.report.palette import indexed_png

CLASSES = "classes.txt"
ENDINGS = (".png", "_overlay.png", "_scores.npz", "_unknown.png")
"""What may be written for a picture, after its name."""


@dataclass(frozen=True)
class Wanted:
    """What is written beside label map and overlay."""

    probabilities: bool = False
    unknown: bool = False


def predict_all(
    model: Model, paths: Sequence[Path], out: Path, wanted: Wanted, say: Callable[[str], None]
) -> list[UserError]:
    """Label every picture. A broken one is left out and returned as the error that it gave; the others go on."""
    names = choose_names(_once(find_images(list(paths), say)), out)
    listed = "".join(f"{index} {name}\n" for index, name in enumerate(model.classes))
    _require_ours(out, names.values())
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / CLASSES, listed)
    broken: list[UserError] = []
    for path, name in names.items():
        try:
            image = as_array(path)
        except UserError as error:
            broken.append(error)
            continue
        result = model.predict(image)
        write_result(result, image, out, name, wanted)
        say(f"{path}: {describe(result)}")
    return broken


def describe(result: Result) -> str:
    """Which classes the posterior saw, and which are in the map."""
    drawn = ", ".join(result.drawn) or "background only"
    if result.posterior is None:
        return f"map: {drawn}"
    return f"posterior: {say_posterior(result.posterior)} | map: {drawn}"


def write_result(result: Result, image: np.ndarray, out: Path, name: str, wanted: Wanted) -> None:
    """The files of one picture."""
    indexed_png(result.labels, out / f"{name}.png")
    shown = with_legend(overlay(image, result.labels, result.classes), legend_entries(result.labels, result.classes))
    save_png(shown, out / f"{name}_overlay.png")
    if wanted.probabilities:
        with replacing(out / f"{name}_scores.npz") as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, scores=result.scores.astype(np.float16), names=np.array(result.classes))
    if wanted.unknown:
        if result.unknown is None:
            raise UserError("--unknown: the run's method has no map of unknown objects; IPSeg has.")
        grey = (result.unknown * 255).round().astype(np.uint8)
        save_png(Image.fromarray(grey), out / f"{name}_unknown.png")


def save_png(picture: Image.Image, path: Path) -> None:
    """Write a picture atomically."""
    with replacing(path) as temporary:
        picture.save(temporary, format="PNG")


def choose_names(images: Sequence[Path], out: Path) -> dict[Path, str]:
    """A name for each picture's files: its own, numbered where another picture's files have that name already."""
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
                raise UserError(f"--out {out} would overwrite the picture {target}. Choose another folder.")
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


def _require_ours(out: Path, names: Iterable[str]) -> None:
    """Only what an earlier call wrote is replaced. In another folder every file stays; data has a classes.txt too."""
    listed = out / CLASSES
    if listed.is_file() and listed.read_text(encoding="utf-8", errors="replace").startswith("0 background\n"):
        return
    for target in (listed, *(out / f"{name}{ending}" for name in names for ending in ENDINGS)):
        if target.exists():
            raise UserError(
                f"{target} is not of ipseg predict and would be overwritten. Choose another folder with --out."
            )
