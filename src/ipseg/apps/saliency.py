"""Saliency maps for a data set, written where the data set looks for them."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from ipseg.config import build, override, to_dict
from ipseg.data.file_dataset import FileDataset, require_inside
from ipseg.data.image_io import read_image
from ipseg.data.registry import data_config
from ipseg.errors import UserError, require_between, unknown
from ipseg.files import remove_abandoned, replacing
from ipseg.progress import Meter
from ipseg.saliency.fallback import salient
from ipseg.saliency.onnx import PRESETS, OnnxConfig, OnnxSaliency

Detector: TypeAlias = Callable[[NDArray[np.uint8]], NDArray[np.bool_]]


@dataclass(frozen=True)
class Wanted:
    """The maps of a data set."""

    folders: tuple[Path, ...]
    images: dict[Path, Path]
    """Where each map goes, and the picture that it is of."""


@dataclass
class Written:
    """What was done."""

    skipped: int
    """Maps that were there already."""
    written: int = 0
    broken: list[UserError] = field(default_factory=list)
    """Pictures that cannot be read."""


def detector(
    model: Path | None, *, fallback: bool, preset: str | None, threshold: float | None, changes: Sequence[str] = ()
) -> Detector:
    """What the command's options ask for."""
    if (model is not None) == fallback:
        raise UserError("choose one: --model FILE.onnx, a detector of salient objects, or --fallback, without a model.")
    if model is None:
        if preset is not None or threshold is not None or _about(changes, "model"):
            raise UserError("--preset, --threshold and --set model.* are about --model; --fallback has no settings.")
        return salient
    preset = preset or "u2net"
    if preset not in PRESETS:
        raise unknown("value for --preset:", preset, PRESETS, "Others are --set model.size=..., model.mean, model.std.")
    threshold = 0.5 if threshold is None else threshold
    require_between("--threshold", threshold, 0, 1)
    values = override({"model": to_dict(PRESETS[preset])}, _about(changes, "model"))
    return OnnxSaliency(model, build(OnnxConfig, values["model"], "model"), threshold)


def wanted_maps(data: Path, kind: str, out: Path | None = None, changes: Sequence[str] = ()) -> Wanted:
    """Open a data set and say which maps it takes; `out` is another place for them than its own."""
    other = [change for change in changes if change not in (*_about(changes, "data"), *_about(changes, "model"))]
    if other:
        raise UserError(f"--set {other[0]}: settings here are data.* and model.*, such as model.size=512.")
    values = override({"data": {"name": kind, "path": str(data)}}, _about(changes, "data"))["data"]
    with _writable(out or data):
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
    # maps that are missing are no mistake here; and a folder may be called like a setting: all, none, ...
    values["saliency"] = "none" if out is None else str(out.resolve())
    splits = cast(Any, data_config(values)).open()
    images, folders = {}, []
    for split in (cast(FileDataset, splits.train), cast(FileDataset, splits.val)):
        maps = split.saliency_source
        if out is not None:
            _require_apart(out, maps.folder, split)
        folders.append(maps.folder)
        for index, name in enumerate(split.names):
            images[maps.files.paths.get(name, maps.folder / f"{name}.png")] = split.image_path(index)
    for folder in {path.parent for path in images}:
        require_inside(folder, out or data)
    return Wanted(tuple(dict.fromkeys(folders)), images)


def write_maps(wanted: Wanted, detect: Detector, *, quiet: bool = False) -> Written:
    """Make the maps that are not there yet. Stopped and started again, it goes on where it was."""
    missing = {target: image for target, image in wanted.images.items() if not target.exists()}
    for folder in {target.parent for target in missing}:
        remove_abandoned(folder, lambda head: head.startswith(b"\x89PNG"))
    done = Written(skipped=len(wanted.images) - len(missing))
    with Meter("saliency maps", len(wanted.images), done.skipped, quiet=quiet) as meter:
        for target, image in missing.items():
            try:
                pixels = read_image(image)
            except UserError as error:  # one broken picture among thousands: the others are still worth having
                done.broken.append(error)
            else:
                _write(target, detect(pixels))
                done.written += 1
            meter.advance(1)
    return done


def _require_apart(out: Path, maps: Path, split: FileDataset) -> None:
    """Raise if maps would lie among the pictures or masks: they would be taken for more of them, or masks for maps."""
    for folder in (split.images.folder, split.masks.folder):
        own, there = folder.resolve(), maps.resolve()
        if there.is_relative_to(own) or own.is_relative_to(there):
            raise UserError(f"--out {out}: the data has its own files in {folder}. Choose a folder for maps alone.")


def _write(target: Path, found: NDArray[np.bool_]) -> None:
    """One bit a pixel, whole or not at all."""
    with _writable(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as temporary:
            Pillow.fromarray(found).save(temporary, format="PNG", optimize=True)


@contextmanager
def _writable(path: Path) -> Iterator[None]:
    """Data may lie where one must not write: say what to do then."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise UserError(
            f"{path} cannot be written ({error.strerror}). --out FOLDER puts the maps elsewhere; "
            "a recipe finds them there by data.saliency: FOLDER."
        ) from error


def _about(changes: Sequence[str], section: str) -> list[str]:
    return [change for change in changes if change.strip().startswith(f"{section}.")]
