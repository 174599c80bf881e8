"""What an extension did to the old classes, in numbers that can be had: their annotations are gone.

On images of the memory: whether the model still predicts the right classes of the image (its stored image label), and
how many pixels that the model gave to an old class before have kept it. The second is agreement with the old model, not
truth. Both flatter a little, for the new step has trained on these very images.
On other images with masks: IoU before and after, of the classes that they annotate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from rich import box
from rich.table import Table
from rich.text import Text
from torch import Tensor

from ipseg.apps.extend_images import before_and_after, images_to_show
from ipseg.apps.model import as_tensor
from ipseg.apps.run import Run
from ipseg.data.dataset import DatasetSplits
from ipseg.data.memory import ReplayMemory
from ipseg.evaluation.image_level import ImageLevel
from ipseg.evaluation.metrics import mean
from ipseg.files import replacing
from ipseg.methods.base import Method
from ipseg.progress import Meter
from ipseg.report.compare import percent
from ipseg.scenario import BACKGROUND

BEFORE_AFTER = "before_after.png"
MIN_IOU = 0.05
"""On the new data's own validation images. A new class that has less was not learned."""


def compare_last_steps(run: Run, splits: DatasetSplits, *, own_split: bool) -> dict[str, Any]:
    """The model before the last step beside the one after it, on images of the memory and of these splits.

    Some are drawn into the run's folder. own_split: they are validation images, on which no step was trained. A
    folder's images may have been.
    """
    before, after = run.scenario.steps[-2:]
    old, new = run.method(before), run.method(after)
    memory = run.memory(before)
    first, last = run.measure(before, splits, old), run.measure(after, splits, new)
    if images := images_to_show(splits, memory, after.new):
        sheet = before_and_after((old, new), images, (BACKGROUND, *after.seen), run.device)
        with replacing(run.path / BEFORE_AFTER) as temporary:
            sheet.save(temporary, format="PNG")
    own = run.folder.result(after.index).iou
    reached = {name: last.iou.get(name) if own[name] is None else own[name] for name in after.new}
    return {
        "memory": on_memory(old, new, memory, before.seen, run.device) if len(memory) else None,
        "validation": on_validation(first.iou, last.iou, before.seen, after.new)
        | {
            "images": last.images,
            "own_split": own_split,
            "not_annotated": [name for name in after.seen if name not in splits.classes],
        },
        "new_in_data": mean(own[name] for name in after.new),
        "not_learned": [name for name, iou in reached.items() if iou is not None and iou < MIN_IOU],
        "not_measured": [name for name, iou in reached.items() if iou is None],
    }


def on_memory(
    before: Method, after: Method, memory: ReplayMemory, old: Sequence[str], device: torch.device
) -> dict[str, Any]:
    """Image labels and pixels of old classes, by both models, on every image of the memory."""
    levels = {"before": ImageLevel(), "after": ImageLevel()}
    moves = torch.zeros(1 + len(old), 256, dtype=torch.long, device=device)  # pixels by (label before, label after)
    with Meter("images of the memory", len(memory)) as meter:
        for index in range(len(memory)):
            sample = memory.sample(index)
            assert sample.stored is not None
            labels = [model.predict(as_tensor(sample.image, device)).labels for model in (before, after)]
            for level, model, predicted in zip(levels.values(), (before, after), labels, strict=True):
                level.update(sample.stored[None], both=model.image_classes(predicted)[:, : len(old)].cpu().numpy())
            moves += torch.bincount((labels[0] * 256 + labels[1]).flatten(), minlength=moves.numel()).view_as(moves)
            meter.advance(1)
    return {
        "images": len(memory),
        "image_accuracy": {when: level.accuracy(range(len(old)))["both"] for when, level in levels.items()},
        "pixels_kept": _share(moves.diagonal()[1:], moves[1:]),
        "classes": {
            name: {
                "images": sum(name in exemplar.classes for exemplar in memory.exemplars),
                "image_f1": {when: level.f1([i])["both"] for when, level in levels.items()},
                "pixels_kept": _share(moves[i + 1, i + 1], moves[i + 1]),
                "pixels_to_new": _share(moves[i + 1, 1 + len(old) :], moves[i + 1]),
            }
            for i, name in enumerate(old)
        },
    }


def _share(part: Tensor, whole: Tensor) -> float | None:
    return int(part.sum()) / int(whole.sum()) if whole.any() else None


def on_validation(
    before: dict[str, float | None], after: dict[str, float | None], old: Sequence[str], new: Sequence[str]
) -> dict[str, Any]:
    """IoU of the old classes before and after, and of the new ones; null where it cannot be measured."""
    pairs = {name: {"before": before[name], "after": after[name]} for name in old}
    return {
        "iou": pairs | {name: {"before": None, "after": after[name]} for name in new},
        "old": {when: mean(pair[when] for pair in pairs.values()) for when in ("before", "after")},
        "new": mean(after[name] for name in new),
    }


# ---- for the terminal -------------------------------------------------------------------------------------------


def _images_measured(validation: dict[str, Any]) -> str:
    """A folder's images may have been learned from, so they validate nothing."""
    return "validation images" if validation["own_split"] else "images of --val"


def extension_table(report: dict[str, Any]) -> Table:
    table = Table("class", box=box.SIMPLE_HEAD, caption_justify="left")
    for column in ("in memory", "in image, before", "after", "pixels kept", "IoU before", "after"):
        table.add_column(column, justify="right")
    memory, validation = report["memory"], report["validation"]
    for name in (*report["old"], *report["new"]):
        cells = ["–"] * 4
        if memory and name in memory["classes"]:
            found = memory["classes"][name]
            cells = [str(found["images"]), *map(percent, (*found["image_f1"].values(), found["pixels_kept"]))]
        style = "bold" if name in report["new"] else ""
        table.add_row(Text(name, style=style), *cells, *map(percent, validation["iou"][name].values()))
    table.caption = Text(
        "In percent; bold: new. In image: F1 of the predicted classes of an image against its stored labels.\n"
        "Pixels kept: of those the old model gave to the class. "
        f"IoU: on {_images_measured(validation)}, where they annotate it.",
        style="dim",
    )
    return table


def extension_lines(report: dict[str, Any]) -> list[str]:
    memory, validation, images = report["memory"], report["validation"], _images_measured(report["validation"])
    unknown = report["not_measured"]
    learned = [name for name in report["new"] if name not in (*report["not_learned"], *unknown)]
    lines = [f"learned: {', '.join(learned)}, from {report['images']} images"] if learned else []
    if unknown:
        lines.append(f"trained and not measured: {', '.join(unknown)}; no validation image shows it")
    if memory:
        accuracy, kept = memory["image_accuracy"], memory["pixels_kept"]
        pixels = "the old model saw none of them" if kept is None else f"{percent(kept)} % of their pixels kept"
        lines.append(
            f"old classes in {memory['images']} images of the memory: {pixels}; "
            f"images with all classes right {percent(accuracy['before'])} % -> {percent(accuracy['after'])} %"
        )
    else:
        lines.append("old classes: no image in the memory")
    old = validation["old"]
    if old["before"] is None:
        lines.append(f"old classes on {images}: not annotated there; --val FOLDER with their masks tells")
    else:
        lines.append(
            f"old classes on {validation['images']} {images}: mIoU {percent(old['before'])} -> {percent(old['after'])}"
        )
        if validation["not_annotated"]:
            lines.append(f"not annotated there, so not measured: {', '.join(validation['not_annotated'])}")
    if validation["new"] is not None:
        return [*lines, f"new classes: mIoU {percent(validation['new'])}"]
    own = percent(report["new_in_data"])
    return [*lines, f"new classes: not annotated there; mIoU {own} on the validation images of the new data"]
