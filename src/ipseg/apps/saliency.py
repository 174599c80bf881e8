"""Saliency maps for a data set, written where the data set expects them."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

from PIL import Image as Pillow

from ipseg.config import override
from ipseg.data.dataset import Image, Saliency
from ipseg.data.file_dataset import FileDataset
from ipseg.data.file_tree import require_inside
from ipseg.data.image_io import read_image
from ipseg.data.registry import data_config
from ipseg.errors import UserError
from ipseg.files import remove_abandoned, replacing
from ipseg.progress import Meter
from ipseg.saliency.fallback import salient
from ipseg.saliency.onnx import OnnxSaliency

Detector: TypeAlias = Callable[[Image], Saliency]


class MapJob(NamedTuple):
    folders: tuple[Path, ...]
    images: dict[Path, Path]
    """Map -> its image."""


class WriteResult(NamedTuple):
    """How many maps were written, how many existed, and the images that cannot be read."""

    written: int
    skipped: int
    broken: list[UserError]


def detector(model: Path | None, *, fallback: bool, preset: str | None, threshold: float | None) -> Detector:
    """The detector that the command's options choose."""
    if (model is not None) == fallback:
        raise UserError("choose one: --model FILE.onnx, a detector of salient objects, or --fallback, without a model.")
    if model is not None:
        return OnnxSaliency(model, preset or "u2net", 0.5 if threshold is None else threshold)
    if preset is not None or threshold is not None:
        raise UserError("--preset and --threshold are about --model; --fallback has no settings.")
    return salient


def plan_maps(data: Path, kind: str, out: Path | None = None, changes: Sequence[str] = ()) -> MapJob:
    """List the maps of a data set, in its own folder or `out`."""
    if other := [change for change in changes if not change.strip().startswith("data.")]:
        raise UserError(f"--set {other[0]}: settings here are those of the data, such as data.train=LIST.")
    values = override({"data": {"name": kind, "path": str(data)}}, changes)["data"]
    if out is not None:
        with _suggest_out(out):
            out.mkdir(parents=True, exist_ok=True)
    # missing maps are no error here; and a folder may be named like a setting: all, none, ...
    values["saliency"] = "none" if out is None else str(out.resolve())
    splits = cast(Any, data_config(values)).open()
    images, folders = {}, []
    for split in (cast(FileDataset, splits.train), cast(FileDataset, splits.val)):
        maps = split.saliency_source
        for folder in (split.images.folder, split.masks.folder) if out is not None else ():
            own, other_folder = folder.resolve(), maps.folder.resolve()
            if other_folder.is_relative_to(own) or own.is_relative_to(other_folder):  # masks would be taken for maps
                raise UserError(f"--out {out}: the data has its own files in {folder}. Choose a folder for maps alone.")
        folders.append(maps.folder)
        for name in split.names:
            images[maps.files.paths.get(name, maps.folder / f"{name}.png")] = split.images.path(name)
    for folder in {path.parent for path in images}:
        require_inside(folder, out or data)
    return MapJob(tuple(dict.fromkeys(folders)), images)


def write_maps(job: MapJob, detect: Detector, *, quiet: bool = False) -> WriteResult:
    """Write the missing maps. The same call continues an interrupted one."""
    missing = {target: image for target, image in job.images.items() if not target.exists()}
    for folder in {target.parent for target in missing}:
        remove_abandoned(folder, lambda head: head.startswith(b"\x89PNG"))
    skipped, broken = len(job.images) - len(missing), []
    with Meter("saliency maps", len(job.images), skipped, quiet=quiet) as meter:
        for target, image in missing.items():
            try:
                pixels = read_image(image)
            except UserError as error:  # one broken image among thousands: the others are still worth having
                broken.append(error)
            else:
                saliency = Pillow.fromarray(detect(pixels))  # one bit a pixel
                with _suggest_out(target):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with replacing(target) as temporary:
                        saliency.save(temporary, format="PNG", optimize=True)
            meter.advance(1)
    return WriteResult(len(missing) - len(broken), skipped, broken)


@contextmanager
def _suggest_out(path: Path) -> Iterator[None]:
    """The data's own folder may be read-only."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise UserError(
            f"{path} cannot be written ({error.strerror}). --out FOLDER puts the maps elsewhere; "
            "a recipe finds them there by data.saliency: FOLDER."
        ) from error
