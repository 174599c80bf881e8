"""The replay memory of a run: how much, of which classes, in how many bytes, and what that means for privacy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image
from rich import box
from rich.table import Table
from rich.text import Text

from ipseg.apps.run import Run
from ipseg.data.dataset import EmptyDataset
from ipseg.data.memory import load_memory
from ipseg.errors import UserError
from ipseg.files import read_json


def memory_report(run: Path, step: int | None = None) -> dict[str, Any]:
    """The memory after a step, in numbers; bytes are those of the files on disk."""
    opened = Run.open(run)
    index = opened.step(step).index
    place = opened.folder.step(index) / "memory"
    manifest = place / "manifest.json"
    if not manifest.is_file():
        raise UserError(f"{run} has no memory after step {index}: it was deleted, or left out of a pack.")
    memory = load_memory(place, EmptyDataset())
    maps, copies, labels = (
        [place / kind / f"{exemplar.name}.png" for exemplar in memory.exemplars]
        for kind in ("saliency", "images", "labels")
    )
    pixels = [_pixels(path) for path in maps]
    mask_bytes, copy_bytes, label_bytes = (
        [path.stat().st_size for path in paths if path.is_file()] for paths in (maps, copies, labels)
    )
    return {
        "step": index,
        "images": len(memory),
        "size": read_json(manifest, "the memory's manifest").get("size"),
        "store": "copy" if copy_bytes else "path",
        "classes": {name: sum(name in exemplar.classes for exemplar in memory.exemplars) for name in memory.order},
        "mask_bytes": sum(mask_bytes),
        "uint8_bytes": sum(pixels),
        "packed_bytes": sum(-(-count // 8) for count in pixels),
        "mask_share": sum(mask_bytes) / sum(pixels) if pixels else None,
        "copy_bytes": sum(copy_bytes),
        "copies": len(copy_bytes),
        "labels": len(label_bytes),
        "label_bytes": sum(label_bytes),
        "manifest_bytes": manifest.stat().st_size,
    }


def _pixels(path: Path) -> int:
    try:
        with Image.open(path, formats=("PNG",)) as opened:
            return opened.width * opened.height
    except (OSError, Image.DecompressionBombError) as error:
        raise UserError(f"the memory's saliency map is missing or damaged: {path} ({error}).") from error


def privacy(report: dict[str, Any]) -> str:
    """What the memory gives away, in one sentence."""
    if not report["images"]:
        return "privacy: nothing of any image is kept here; the weights remember what they remember."
    if report["copies"]:
        return f"privacy: {report['copies']} whole images lie here: treat this folder like the data set itself."
    kept = "image and pixel labels" if report["labels"] else "image labels"
    return f"privacy: names, {kept} and outlines of training images lie here, the images themselves do not."


def memory_table(report: dict[str, Any]) -> Table:
    """How many replayed images hold each class."""
    table = Table("class", box=box.SIMPLE_HEAD, title=f"memory after step {report['step']}", title_justify="left")
    table.add_column("images", justify="right")
    for name, count in report["classes"].items():
        table.add_row(Text(name), str(count))
    return table


def memory_lines(report: dict[str, Any]) -> list[str]:
    """Bytes and what they mean."""
    store = {"path": "by name", "copy": "with copies"}[report["store"]]
    manifest = format_bytes(report["manifest_bytes"])
    lines = [f"images: {report['images']}, kept {store}; the manifest takes {manifest}"]
    if report["images"]:
        share = report["mask_share"]
        eighth = "within" if share <= 1 / 8 else "above"
        lines.append(
            f"saliency maps: {format_bytes(report['mask_bytes'])} at one bit a pixel (PNG, all of it); as bytes they "
            f"would take {format_bytes(report['uint8_bytes'])}: {100 * share:.2f} %, {eighth} an eighth (12.5 %)"
        )
        if share > 1 / 8:
            lines.append("(a PNG's own frame of about 70 bytes weighs more than the bits of very small images)")
    if report["copies"]:
        lines.append(f"copies: {format_bytes(report['copy_bytes'])} in {report['copies']} PNG files")
    if report["labels"]:
        lines.append(f"pixel labels of the step that stored each: {format_bytes(report['label_bytes'])}")
    return [*lines, privacy(report)]


def format_bytes(count: int) -> str:
    """A number of bytes as people read it.

    >>> format_bytes(999), format_bytes(23_400), format_bytes(5_250_000)
    ('999 B', '23.4 kB', '5.2 MB')
    """
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
