"""What one more class did to the old ones, in numbers that can be had: old annotations are gone.

On remembered pictures: whether the model still says the right classes of the picture (its stored image label), and how
many pixels that the model gave to an old class before have kept it. The second is agreement with the old model, not
truth. Both flatter a little, for the new step has trained on these very pictures.
On other pictures with masks: IoU before and after, of the classes that they annotate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich import box
from rich.table import Table
from rich.text import Text

from ipseg.data.dataset import DatasetSplits, EmptyDataset
from ipseg.data.memory import ReplayMemory, load_memory
from ipseg.evaluation.image_level import ImageLevel
from ipseg.evaluation.metrics import mean
from ipseg.methods.base import Method
from ipseg.progress import Meter, silence
from ipseg.report.compare import percent
from ipseg.scenario.split import Scenario
from ipseg.training.distributed import DistributedContext
from ipseg.training.experiment import measure
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import Recipe
from ipseg.training.setup import restore
from ipseg.training.system import choose_device

Pair = dict[str, float | None]
"""before and after."""
LEAST_IOU = 0.05
"""On the new data's own validation pictures. A new class that has less was not learned."""


def measure_extension(
    folder: RunFolder, recipe: Recipe, scenario: Scenario, splits: DatasetSplits, *, own_split: bool, quiet: bool
) -> dict[str, Any]:
    """The model before the last step beside the one after it, on remembered pictures and on those of the source.

    own_split: they are validation pictures, which no step learned from. Of a folder's pictures nobody knows that.
    """
    device = choose_device(recipe.device)
    before, after = scenario.steps[-2:]
    models = [restore(recipe, folder, scenario, step.index, device) for step in (before, after)]
    memory = load_memory(folder.step(before.index) / "memory", EmptyDataset())
    theirs = replace(scenario, data_classes=splits.classes)  # mask values follow the data that is read
    with silence(wanted=quiet):
        results = [
            measure(model, recipe, splits, theirs, step, DistributedContext(device))
            for model, step in zip(models, (before, after), strict=True)
        ]
    own = folder.result(after.index).iou
    return {
        "memory": on_memory(models[0], models[1], memory, before.seen, device, quiet=quiet) if len(memory) else None,
        "validation": on_validation(results[0].iou, results[1].iou, before.seen, after.new)
        | {
            "pictures": results[1].images,
            "own_split": own_split,
            "not_annotated": [name for name in after.seen if name not in splits.classes],
        },
        "new_in_data": mean(own[name] for name in after.new),
        "not_learned": [name for name in after.new if (value := own[name]) is not None and value < LEAST_IOU],
    }


def on_memory(
    before: Method, after: Method, memory: ReplayMemory, old: Sequence[str], device: torch.device, *, quiet: bool
) -> dict[str, Any]:
    """Image labels and pixels of old classes, by both models, on every remembered picture."""
    levels = {"before": ImageLevel(), "after": ImageLevel()}
    moves = np.zeros((1 + len(old), 256), dtype=np.int64)  # pixels by (label before, label after)
    with Meter("looking at remembered pictures", len(memory), quiet=quiet) as meter:
        for index in range(len(memory)):
            picture = memory.sample(index)
            image = torch.from_numpy(picture.image).to(device).permute(2, 0, 1)[None].float() / 255
            assert picture.stored is not None
            labels = [model.predict(image).labels for model in (before, after)]
            for level, model, said in zip(levels.values(), (before, after), labels, strict=True):
                level.update(picture.stored[None], both=model.image_classes(said)[:, : len(old)].cpu().numpy())
            moves += _moves(labels[0], labels[1], len(old))
            meter.advance(1)
    every = range(len(old))
    return {
        "pictures": len(memory),
        "image_accuracy": {when: level.accuracy(every)["both"] for when, level in levels.items()},
        "pixels_kept": _share(int(moves.diagonal()[1:].sum()), int(moves[1:].sum())),
        "classes": {
            name: {
                "pictures": sum(name in exemplar.classes for exemplar in memory.exemplars),
                "image_f1": {when: level.f1([i])["both"] for when, level in levels.items()},
                "pixels_kept": _share(int(moves[i + 1, i + 1]), int(moves[i + 1].sum())),
                "pixels_to_new": _share(int(moves[i + 1, 1 + len(old) :].sum()), int(moves[i + 1].sum())),
            }
            for i, name in enumerate(old)
        },
    }


def _moves(before: torch.Tensor, after: torch.Tensor, old: int) -> NDArray[np.int64]:
    pairs = torch.bincount((before * 256 + after).flatten(), minlength=(1 + old) * 256)
    return np.asarray(pairs.cpu()).reshape(1 + old, 256)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def on_validation(
    before: dict[str, float | None], after: dict[str, float | None], old: Sequence[str], new: Sequence[str]
) -> dict[str, Any]:
    """IoU of the old classes before and after, and of the new ones; null where it cannot be told."""
    pairs: dict[str, Pair] = {name: {"before": before[name], "after": after[name]} for name in old}
    return {
        "iou": pairs | {name: {"before": None, "after": after[name]} for name in new},
        "old": {when: mean(pair[when] for pair in pairs.values()) for when in ("before", "after")},
        "new": mean(after[name] for name in new),
    }


# ---- for people -------------------------------------------------------------------------------------------------


def extension_table(report: dict[str, Any]) -> Table:
    """A row a class: what became of it."""
    columns = ["remembered", "in picture, before", "after", "pixels kept", "IoU before", "after"]
    table = Table("class", box=box.SIMPLE_HEAD, caption_justify="left")
    for column in columns:
        table.add_column(column, justify="right")
    memory, validation = report["memory"], report["validation"]
    for name in report["old"]:
        seen = memory["classes"][name] if memory else None
        cells = ["–"] * 4
        if seen:
            said = seen["image_f1"]
            cells = [str(seen["pictures"]), percent(said["before"]), percent(said["after"])]
            cells.append(percent(seen["pixels_kept"]))
        table.add_row(Text(name), *cells, *map(percent, validation["iou"][name].values()))
    for name in report["new"]:
        table.add_row(Text(name, style="bold"), *["–"] * 4, *map(percent, validation["iou"][name].values()))
    table.caption = Text(
        "In percent; bold: new. In picture: F1 of what is said of remembered pictures against their stored labels.\n"
        "Pixels kept: of those the old model gave to the class. "
        f"IoU: on {_kind(validation)}, where they annotate it.",
        style="dim",
    )
    return table


def _kind(validation: dict[str, Any]) -> str:
    """What was measured on. A folder's pictures may have been learned from, so they validate nothing."""
    return "validation pictures" if validation["own_split"] else "pictures of --val"


def extension_lines(report: dict[str, Any]) -> list[str]:
    """The same in a few sentences."""
    memory, validation = report["memory"], report["validation"]
    learned = [name for name in report["new"] if name not in report["not_learned"]]
    lines = [f"learned: {', '.join(learned)}, from {report['pictures']} pictures"] if learned else []
    if memory:
        said, kept = memory["image_accuracy"], memory["pixels_kept"]
        pixels = "the old model saw none of them" if kept is None else f"{percent(kept)} % of their pixels kept"
        lines.append(
            f"old classes in {memory['pictures']} remembered pictures: {pixels}; "
            f"pictures with all classes right {percent(said['before'])} % -> {percent(said['after'])} %"
        )
    else:
        lines.append("old classes: no remembered picture to look at")
    old = validation["old"]
    if old["before"] is None:
        lines.append(f"old classes on {_kind(validation)}: not annotated there; --val FOLDER with their masks tells")
    else:
        lines.append(
            f"old classes on {validation['pictures']} {_kind(validation)}: "
            f"mIoU {percent(old['before'])} -> {percent(old['after'])}"
        )
    if validation["not_annotated"] and old["before"] is not None:
        lines.append(f"not annotated there, so not measured: {', '.join(validation['not_annotated'])}")
    if validation["new"] is not None:
        return [*lines, f"new classes: mIoU {percent(validation['new'])}"]
    own = percent(report["new_in_data"])
    return [*lines, f"new classes: not annotated there; mIoU {own} on the validation pictures of the new data"]
