"""The replay memory of a run: its images, classes and bytes, and the consequences for privacy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image
from rich import filesize
from rich.table import Table

from ipseg.apps.run import Run
from ipseg.errors import UserError
from ipseg.files import read_json
from ipseg.report.formats import plain_table


def memory_report(path: Path, step: int | None = None) -> dict[str, Any]:
    """The memory after a step, in numbers; bytes are those of the files on disk."""
    run = Run.open(path)
    chosen = run.step(step)
    folder = run.folder.step(chosen.index) / "memory"
    manifest = folder / "manifest.json"
    if not manifest.is_file():
        raise UserError(f"{path} has no memory after step {chosen.index}: it was deleted, or left out of a pack.")
    memory = run.memory(chosen)
    names = [exemplar.name for exemplar in memory.exemplars]
    maps = [folder / "saliency" / f"{name}.png" for name in names]
    pixels = list(map(_count_pixels, maps))
    copies, labels = (
        [file.stat().st_size for name in names if (file := folder / kind / f"{name}.png").is_file()]
        for kind in ("images", "labels")
    )
    mask_bytes = sum(file.stat().st_size for file in maps)
    return {
        "step": chosen.index,
        "images": len(memory),
        "size": read_json(manifest, "the memory's manifest").get("size"),
        "store": "copy" if copies else "path",
        "classes": {name: sum(name in exemplar.classes for exemplar in memory.exemplars) for name in memory.order},
        "mask_bytes": mask_bytes,
        "uint8_bytes": sum(pixels),
        "packed_bytes": sum(-(-count // 8) for count in pixels),
        "mask_share": mask_bytes / sum(pixels) if pixels else None,
        "copy_bytes": sum(copies),
        "copies": len(copies),
        "labels": len(labels),
        "label_bytes": sum(labels),
        "manifest_bytes": manifest.stat().st_size,
    }


def _count_pixels(path: Path) -> int:
    try:
        with Image.open(path, formats=("PNG",)) as opened:
            return opened.width * opened.height
    except (OSError, Image.DecompressionBombError) as error:
        raise UserError(f"the memory's saliency map is missing or damaged: {path} ({error}).") from error


def privacy(report: dict[str, Any]) -> str:
    """What the memory reveals, in one sentence."""
    if not report["images"]:
        return "privacy: the memory holds nothing of any image; the weights may."
    if report["copies"]:
        return f"privacy: {report['copies']} whole images are stored here: treat this folder like the data set itself."
    kept = "image and pixel labels" if report["labels"] else "image labels"
    return f"privacy: names, {kept} and outlines of training images are stored here, the images themselves are not."


def memory_table(report: dict[str, Any]) -> Table:
    table = plain_table(f"memory after step {report['step']}", ["class"], ["images"])
    for name, count in report["classes"].items():
        table.add_row(name, str(count))
    return table


def memory_lines(report: dict[str, Any]) -> list[str]:
    size = filesize.decimal
    store = {"path": "by name", "copy": "with copies"}[report["store"]]
    lines = [f"images: {report['images']}, stored {store}; the manifest takes {size(report['manifest_bytes'])}"]
    if report["images"]:
        share = report["mask_share"]
        eighth = "within" if share <= 1 / 8 else "above"
        lines.append(
            f"saliency maps: {size(report['mask_bytes'])} at one bit a pixel (PNG, all of it); as bytes they "
            f"would take {size(report['uint8_bytes'])}: {100 * share:.2f} %, {eighth} an eighth (12.5 %)"
        )
        if share > 1 / 8:
            lines.append("(a PNG's own frame of about 70 bytes weighs more than the bits of very small images)")
    if report["copies"]:
        lines.append(f"copies: {size(report['copy_bytes'])} in {report['copies']} PNG files")
    if report["labels"]:
        lines.append(f"pixel labels of the step that stored each: {size(report['label_bytes'])}")
    return [*lines, privacy(report)]
