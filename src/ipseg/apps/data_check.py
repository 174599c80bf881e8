"""Is a data set complete, and what is in it? Every file is read; all that is wrong is listed, not only the first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ipseg.config import override
from ipseg.data.dataset import PROBLEM_KINDS, DataError, require_same_size
from ipseg.data.file_dataset import FileDataConfig, FileDataset, in_both
from ipseg.data.file_tree import Files, truncate
from ipseg.data.image_io import read_image, read_salient
from ipseg.data.mask_index import MaskInfo, scan_masks
from ipseg.data.parallel import parallel_map
from ipseg.data.registry import data_config
from ipseg.errors import UserError
from ipseg.scenario import Scenario, ScenarioConfig, Setting

SHOWN = 10
"""Problems of a kind that a person is shown; a program gets all."""
SPLITS = ("train", "val")
Size = tuple[int, int]
"""Height and width."""
Result = MaskInfo | Size | UserError
"""What is known of a file, or what is wrong with it."""


def check(
    path: Path, kind: str, scenario: str | None = None, setting: Setting = "overlap", changes: Sequence[str] = ()
) -> dict[str, Any]:
    """Open a data set of a format, read every file and report, as `--json` does. Raises for a wrong tree."""
    for change in changes:
        if not change.strip().startswith("data."):
            raise UserError(f"--set {change}: settings here are data.*, such as data.val=val.")
        if change.partition("=")[0].strip() in ("data.path", "data.name"):
            raise UserError(f"--set {change}: the folder is the command's argument, and its kind --format.")
    settings: dict[str, Any] = {"data": {"name": kind, "path": str(path)}}
    config = cast(FileDataConfig, data_config(override(settings, changes)["data"]))
    opened = config.open()
    planned = ScenarioConfig(name=scenario, setting=setting).build(opened.name, opened.classes) if scenario else None
    splits = {name: cast(FileDataset, opened.split(name)) for name in SPLITS}
    with_images = any(name in split.images.paths for split in splits.values() for name in split.names)
    files, problems = Counter[str](), list[UserError]()
    presence = {}
    for name, split in splits.items():
        results = _read_split(split, with_images=with_images, maps_needed=name == "train")
        files.update({part: sum(map(_is_there, found.values())) for part, found in results.items()})
        problems += _problems(split.names, results)
        presence[name] = [one.classes for one in results["masks"].values() if isinstance(one, MaskInfo)]
    problems += in_both(splits["train"], splits["val"])
    report: dict[str, Any] = {
        "path": str(path),
        "format": kind,
        **{part: files[part] for part in ("images", "masks", "saliency_maps")},
        "splits": {name: len(split.names) for name, split in splits.items()},
        "classes_per_image": {name: dict(sorted(Counter(map(len, found)).items())) for name, found in presence.items()},
        "images_per_class": {
            name: {one: sum(value in image for image in found) for value, one in enumerate(opened.classes, start=1)}
            for name, found in presence.items()
        },
        **{kind: [str(error) for error in problems if _kind(error) == kind] for kind in PROBLEM_KINDS},
        "scenario": planned and planned.name,
        "setting": planned and planned.setting,
        "classes_per_step": planned and [list(step.new) for step in planned.steps],
        "images_per_step": planned and planned.images_per_step(presence["train"]),
    }
    # VOC has thousands of images for other tasks, and lists that say which are meant
    without_mask = [] if kind == "voc" else _without_mask(config.root, splits.values())
    return report | {"notes": _notes(report, without_mask, planned)}


def _read_split(split: FileDataset, *, with_images: bool, maps_needed: bool) -> dict[str, dict[str, Result]]:
    """By kind of file and name: every image (unless only masks are there), mask and saliency map."""
    source = split.saliency_source
    maps_needed &= source.mode == "given"  # others that are there are read, too
    read_masks = partial(scan_masks, read=split.read_mask)  # cached, so that training finds what was read here
    images = partial(_read_sizes, read_image, "reading images")
    maps = partial(_read_sizes, read_salient, "reading saliency maps")
    return {
        "images": _read_files(split.names, split.images, images) if with_images else {},
        "masks": _read_files(split.names, split.masks, read_masks),
        "saliency_maps": _read_files(split.names, source.files, maps, required=maps_needed),
    }


def _read_files(
    names: Sequence[str],
    files: Files,
    read: Callable[[list[Path]], Sequence[Result]],
    *,
    required: bool = True,
) -> dict[str, Result]:
    there = [name for name in names if name in files.paths]
    results: dict[str, Result] = dict(zip(there, read([files.paths[name] for name in there]), strict=True))
    missing = {name: files.missing(name) for name in names if name not in files.paths} if required else {}
    return results | missing


def _read_sizes(read: Callable[[Path], np.ndarray], title: str, paths: list[Path]) -> list[Size | UserError]:
    return parallel_map(partial(_read_size, read), paths, title)


def _read_size(read: Callable[[Path], np.ndarray], path: Path) -> Size | UserError:
    """Of the whole file: one that is cut off still has its size at the beginning."""
    try:
        height, width = read(path).shape[:2]
    except UserError as error:
        return error
    return height, width


def _problems(names: Sequence[str], results: dict[str, dict[str, Result]]) -> list[UserError]:
    """All that is wrong with the files of each name."""
    problems: list[UserError] = []
    for name in names:
        sizes = {}
        for part, found in results.items():
            one = found.get(name)
            if isinstance(one, UserError):
                problems.append(one)
            elif one is not None:
                sizes[part.removesuffix("s")] = one.size if isinstance(one, MaskInfo) else one
        try:
            require_same_size(name, **sizes)
        except DataError as error:
            problems.append(error)
    return problems


def _kind(error: UserError) -> str:
    return error.kind if isinstance(error, DataError) else "unreadable"


def _is_there(result: Result) -> bool:
    """Whether there is a file, whole or not."""
    return not (isinstance(result, UserError) and _kind(result) == "missing")


def _without_mask(root: Path, splits: Collection[FileDataset]) -> list[str]:
    """Images that have no mask and that no split names: nobody would miss them."""
    used = {split.images.paths.get(name) for split in splits for name in (*split.names, *split.masks.paths)}
    unused = {path for split in splits for path in split.images.paths.values()} - used
    return sorted(path.relative_to(root).as_posix() for path in unused)


def _notes(report: dict[str, Any], without_mask: Sequence[str], scenario: Scenario | None) -> list[str]:
    """What is no mistake in itself, but stands in the way of training."""
    notes = [] if report["images"] else ["no images: only masks were read"]
    notes += [f"the split {name} is empty" for name in SPLITS if not report["splits"][name]]
    if without_mask:
        notes.append(f"images without a mask are left out: {len(without_mask)} ({truncate(without_mask)})")
    for split, counts in report["images_per_class"].items():
        absent = [name for name in (scenario.order if scenario else counts) if not counts[name]]
        if absent and report["splits"][split]:
            notes.append(f"no image of the split {split} holds {truncate(absent)}")
    if not report["saliency_maps"]:
        notes.append("no saliency maps; `ipseg saliency` makes them")
    empty = [str(index) for index, count in enumerate(report["images_per_step"] or ()) if not count]
    return [*notes, f"no training image for step {', '.join(empty)}"] if empty else notes


# ---- for people -----------------------------------------------------------------------------------------------------


def as_tables(report: dict[str, Any]) -> RenderableType:
    """The report to look at, with the first problems of each kind."""
    splits = _table("split", "images", "classes in an image: images")
    for name, count in report["splits"].items():
        shares = ", ".join(f"{classes}: {images}" for classes, images in report["classes_per_image"][name].items())
        splits.add_row(name, str(count), shares)
    per_class = _table("class", *SPLITS)
    for name in report["images_per_class"]["train"]:
        counts = [str(report["images_per_class"][split][name]) for split in SPLITS]
        per_class.add_row(Text(name), *counts)  # a name in brackets is no markup
    parts: list[RenderableType] = [
        Text(f"Files: {report['images']} images, {report['masks']} masks, {report['saliency_maps']} saliency maps."),
        splits,
        per_class,
    ]
    if report["scenario"]:
        steps = _table("step", "learns", "images")
        steps.title, steps.title_justify = f"{report['scenario']} {report['setting']}", "left"
        for index, names in enumerate(report["classes_per_step"]):
            steps.add_row(str(index), Text(", ".join(names)), str(report["images_per_step"][index]))
        parts.append(steps)
    parts += [Text(f"Note: {note}.") for note in report["notes"]]
    for kind in PROBLEM_KINDS:
        if problems := report[kind]:
            more = [f"... and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
            title = f"{kind.replace('_', ' ').capitalize()}: {len(problems)}"
            parts.append(Text("\n  ".join([title, *problems[:SHOWN], *more])))
    return Group(*parts)


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
