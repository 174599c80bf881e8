"""Maps of saliency or regions for a data set, written where the data set expects them."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np
from PIL import Image as Pillow

from ipseg.config import override
from ipseg.data.dataset import Image, Regions, Saliency
from ipseg.data.file_dataset import FileDataset
from ipseg.data.file_tree import require_inside
from ipseg.data.image_io import read_image
from ipseg.data.registry import data_config
from ipseg.errors import UserError
from ipseg.files import remove_abandoned, replacing
from ipseg.own_code import load_class
from ipseg.progress import Meter
from ipseg.saliency.fallback import salient
from ipseg.saliency.onnx import OnnxSaliency
from ipseg.saliency.regions import MAX_REGIONS, NO_REGION, propose_regions

Detector: TypeAlias = Callable[[Image], Saliency]
Proposer: TypeAlias = Callable[[Image], Regions]


class MapJob(NamedTuple):
    what: str
    """saliency or regions."""
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


def proposer(name: str | None) -> Proposer:
    """`propose_regions`, or an instance of the user's `module:Class`, whose maps are checked."""
    if name is None:
        return propose_regions
    own = load_class(name, "proposer of regions")()

    def propose(image: Image) -> Regions:
        regions = own(image)
        fits = isinstance(regions, np.ndarray) and regions.dtype == np.uint8 and regions.shape == image.shape[:2]
        if not fits or not ((regions < MAX_REGIONS) | (regions == NO_REGION)).all():
            got = f"{regions.dtype} of {regions.shape}" if isinstance(regions, np.ndarray) else type(regions).__name__
            raise UserError(
                f"{name} must give an array of uint8, {image.shape[:2]}, with 0 to {MAX_REGIONS - 1} and {NO_REGION} "
                f"for no region; it gave {got}{', with other values' if fits else ''}."
            )
        return cast(Regions, regions)

    return propose


def plan_maps(
    data: Path,
    kind: str,
    out: Path | None = None,
    changes: Sequence[str] = (),
    what: Literal["saliency", "regions"] = "saliency",
) -> MapJob:
    """List the maps of a data set, in its own folder or `out`."""
    if other := [change for change in changes if not change.strip().startswith("data.")]:
        raise UserError(f"--set {other[0]}: settings here are those of the data, such as data.train=LIST.")
    values = override({"data": {"name": kind, "path": str(data)}}, changes)["data"]
    if out is not None:
        with _suggest_out(out, what):
            out.mkdir(parents=True, exist_ok=True)
    # missing maps are no error here; and a folder may be named like a setting: all, none, ...
    values[what] = str(out.resolve()) if out is not None else "none" if what == "saliency" else None
    splits = cast(Any, data_config(values)).open()
    images, folders = {}, []
    for split in (cast(FileDataset, splits.train), cast(FileDataset, splits.val)):
        place = split.saliency_source.folder if what == "saliency" else split.region_maps.folder
        for folder in (split.images.folder, split.masks.folder) if out is not None else ():
            own, other_folder = folder.resolve(), place.resolve()
            if other_folder.is_relative_to(own) or own.is_relative_to(other_folder):  # masks would be taken for maps
                raise UserError(f"--out {out}: the data has its own files in {folder}. Choose a folder for maps alone.")
        folders.append(place)
        maps = split.saliency_source.files if what == "saliency" else split.region_maps
        for name in split.names:
            images[maps.paths.get(name, place / f"{name}.png")] = split.images.path(name)
    for folder in {path.parent for path in images}:
        require_inside(folder, out or data)
    return MapJob(what, tuple(dict.fromkeys(folders)), images)


def write_maps(job: MapJob, detect: Detector | Proposer, *, quiet: bool = False) -> WriteResult:
    """Write the missing maps. The same call continues an interrupted one."""
    missing = {target: image for target, image in job.images.items() if not target.exists()}
    for folder in {target.parent for target in missing}:
        remove_abandoned(folder, lambda head: head.startswith(b"\x89PNG"))
    skipped, broken = len(job.images) - len(missing), []
    with Meter(f"maps of {job.what}", len(job.images), skipped, quiet=quiet) as meter:
        for target, image in missing.items():
            try:
                pixels = read_image(image)
            except UserError as error:  # one broken image among thousands: the others are still worth having
                broken.append(error)
            else:
                found = Pillow.fromarray(detect(pixels))  # saliency: one bit a pixel
                with _suggest_out(target, job.what):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with replacing(target) as temporary:
                        found.save(temporary, format="PNG", optimize=True)
            meter.advance(1)
    return WriteResult(len(missing) - len(broken), skipped, broken)


@contextmanager
def _suggest_out(path: Path, what: str) -> Iterator[None]:
    """The data's own folder may be read-only."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise UserError(
            f"{path} cannot be written ({error.strerror}). --out FOLDER puts the maps elsewhere; "
            f"a recipe finds them there by data.{what}: FOLDER."
        ) from error
