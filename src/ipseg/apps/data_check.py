"""Contents and problems of a data set. Every file is read, and every problem listed, not only the first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from rich.console import Group, RenderableType

from ipseg.config import override
from ipseg.data.dataset import PROBLEM_KINDS, DataError, require_same_size
from ipseg.data.file_dataset import FileDataConfig, FileDataset, in_both
from ipseg.data.file_tree import Files, truncate
from ipseg.data.image_io import read_image, read_salient
from ipseg.data.mask_index import MaskInfo, scan_masks
from ipseg.data.parallel import parallel_map
from ipseg.data.registry import data_config
from ipseg.errors import UserError
from ipseg.report.formats import plain_table
from ipseg.scenario import Scenario, ScenarioConfig, Setting

MAX_LISTED = 10
"""Problems of a kind that the tables list; --json lists all."""
SPLITS = ("train", "val")
Size = tuple[int, int]
"""Height and width."""
Found = MaskInfo | Size | UserError
"""A file's content, or its problem."""


def check(
    path: Path, kind: str, scenario: str | None = None, setting: Setting = "overlap", changes: Sequence[str] = ()
) -> dict[str, Any]:
    """Open a data set of a format, read every file and report, as `--json` does. Raise if the layout is wrong."""
    for change in changes:
        key = change.partition("=")[0].strip()
        if not key.startswith("data."):
            raise UserError(f"--set {change}: settings here are data.*, such as data.val=val.")
        if key in ("data.path", "data.name"):
            raise UserError(f"--set {change}: the folder is the command's argument, and its kind --format.")
    settings: dict[str, Any] = {"data": {"name": kind, "path": str(path)}}
    config = cast(FileDataConfig, data_config(override(settings, changes)["data"]))
    opened = config.open()
    planned = ScenarioConfig(name=scenario, setting=setting).build(opened.name, opened.classes) if scenario else None
    splits = {name: cast(FileDataset, opened.split(name)) for name in SPLITS}
    with_images = any(name in split.images.paths for split in splits.values() for name in split.names)
    files, problems, presence = Counter[str](), list[UserError](), {}
    for name, split in splits.items():
        found = _read_split(split, with_images=with_images, need_maps=name == "train")
        for part, of_part in found.items():
            errors = [one for one in of_part.values() if isinstance(one, UserError)]
            files[part] += len(of_part) - sum(_problem_kind(error) == "missing" for error in errors)
        problems += _problems(split.names, found)
        presence[name] = [one.classes for one in found["masks"].values() if isinstance(one, MaskInfo)]
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
        **{kind: [str(error) for error in problems if _problem_kind(error) == kind] for kind in PROBLEM_KINDS},
        "scenario": planned and planned.name,
        "setting": planned and planned.setting,
        "classes_per_step": planned and [list(step.new) for step in planned.steps],
        "images_per_step": planned and planned.images_per_step(presence["train"]),
    }
    used = {split.images.paths.get(name) for split in splits.values() for name in (*split.names, *split.masks.paths)}
    unused = {path for split in splits.values() for path in split.images.paths.values()} - used
    if kind == "voc":  # it has thousands of images for other tasks, and lists of those with masks
        unused = set()
    names = sorted(path.relative_to(config.root).as_posix() for path in unused)
    return report | {"notes": _notes(report, names, planned)}


def _read_split(split: FileDataset, *, with_images: bool, need_maps: bool) -> dict[str, dict[str, Found]]:
    """By kind of file and name: every image (unless only masks exist), mask and saliency map."""
    source = split.saliency_source
    need_given_maps = need_maps and source.mode == "given"  # others that exist are read, too
    parts: list[tuple[str, Files, Callable[[list[Path]], Sequence[Found]], bool]] = [
        ("masks", split.masks, partial(scan_masks, read=split.read_mask), True),  # cached, for training too
        ("saliency_maps", source.files, partial(_read_sizes, read_salient, "reading saliency maps"), need_given_maps),
    ]
    if with_images:
        parts.insert(0, ("images", split.images, partial(_read_sizes, read_image, "reading images"), True))
    found: dict[str, dict[str, Found]] = {"images": {}}
    for part, files, read, required in parts:
        names = [name for name in split.names if name in files.paths]
        missing = [name for name in split.names if name not in files.paths] if required else []
        found[part] = dict(zip(names, read([files.paths[name] for name in names]), strict=True))
        found[part] |= {name: files.missing(name) for name in missing}
    return found


def _read_sizes(read: Callable[[Path], np.ndarray], title: str, paths: list[Path]) -> list[Size | UserError]:
    return parallel_map(partial(_read_size, read), paths, title)


def _read_size(read: Callable[[Path], np.ndarray], path: Path) -> Size | UserError:
    """Of the whole file: one that is cut off still has its size at the beginning."""
    try:
        height, width = read(path).shape[:2]
    except UserError as error:
        return error
    return height, width


def _problems(names: Sequence[str], found: dict[str, dict[str, Found]]) -> list[UserError]:
    """Unreadable and missing files of each name, and sizes that differ."""
    problems: list[UserError] = []
    for name in names:
        sizes = {}
        for part, files in found.items():
            one = files.get(name)
            if isinstance(one, UserError):
                problems.append(one)
            elif one is not None:
                sizes[part.removesuffix("s")] = one.size if isinstance(one, MaskInfo) else one
        try:
            require_same_size(name, **sizes)
        except DataError as error:
            problems.append(error)
    return problems


def _problem_kind(error: UserError) -> str:
    return error.kind if isinstance(error, DataError) else "unreadable"


def _notes(report: dict[str, Any], without_mask: Sequence[str], scenario: Scenario | None) -> list[str]:
    """Facts that are no errors, but prevent training."""
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


# ---- for the terminal -------------------------------------------------------------------------------------------


def as_tables(report: dict[str, Any]) -> RenderableType:
    """The report with the first problems of each kind."""
    splits = plain_table("", ["split", "images", "classes in an image: images"])
    for name, count in report["splits"].items():
        shares = ", ".join(f"{classes}: {images}" for classes, images in report["classes_per_image"][name].items())
        splits.add_row(name, str(count), shares)
    per_class = plain_table("", ["class", *SPLITS])
    for name in report["images_per_class"]["train"]:
        per_class.add_row(name, *(str(report["images_per_class"][split][name]) for split in SPLITS))
    parts: list[RenderableType] = [
        f"Files: {report['images']} images, {report['masks']} masks, {report['saliency_maps']} saliency maps.",
        splits,
        per_class,
    ]
    if report["scenario"]:
        steps = plain_table(f"{report['scenario']} {report['setting']}", ["step", "learns", "images"])
        for index, names in enumerate(report["classes_per_step"]):
            steps.add_row(str(index), ", ".join(names), str(report["images_per_step"][index]))
        parts.append(steps)
    parts += [f"Note: {note}." for note in report["notes"]]
    for kind in PROBLEM_KINDS:
        if problems := report[kind]:
            more = [f"... and {len(problems) - MAX_LISTED} more"] if len(problems) > MAX_LISTED else []
            title = f"{kind.replace('_', ' ').capitalize()}: {len(problems)}"
            parts.append("\n  ".join([title, *problems[:MAX_LISTED], *more]))
    return Group(*parts)
