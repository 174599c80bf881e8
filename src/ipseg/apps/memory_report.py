"""What a run remembers: how much, of which classes, in how many bytes, and what that means for privacy."""

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
    """The memory after a step, in numbers; bytes are those of the files as they lie there."""
    opened = Run.open(run)
    index = opened.step(step).index
    place = opened.folder.step(index) / "memory"
    if not (place / "manifest.json").is_file():
        raise UserError(f"{run} has no memory after step {index}: it was deleted, or left out of a pack.")
    memory = load_memory(place, EmptyDataset())
    names = [exemplar.name for exemplar in memory.exemplars]
    maps = [place / "saliency" / f"{name}.png" for name in names]
    copies = [file for name in names if (file := place / "images" / f"{name}.png").is_file()]
    labels = [file for name in names if (file := place / "labels" / f"{name}.png").is_file()]
    pixels = [_pixels(path) for path in maps]
    mask_bytes, raw = sum(path.stat().st_size for path in maps), sum(pixels)
    return {
        "step": index,
        "pictures": len(names),
        "size": read_json(place / "manifest.json", "the memory's manifest").get("size"),
        "store": "copy" if copies else "path",
        "classes": {name: sum(name in exemplar.classes for exemplar in memory.exemplars) for name in memory.order},
        "mask_bytes": mask_bytes,
        "uint8_bytes": raw,
        "packed_bytes": sum(-(-count // 8) for count in pixels),
        "mask_share": mask_bytes / raw if raw else None,
        "copy_bytes": sum(path.stat().st_size for path in copies),
        "copies": len(copies),
        "labels": len(labels),
        "label_bytes": sum(path.stat().st_size for path in labels),
        "manifest_bytes": (place / "manifest.json").stat().st_size,
    }


def _pixels(path: Path) -> int:
    try:
        with Image.open(path, formats=("PNG",)) as opened:
            return opened.width * opened.height
    except (OSError, Image.DecompressionBombError) as error:
        raise UserError(f"the memory's saliency map is missing or damaged: {path} ({error}).") from error


def privacy(report: dict[str, Any]) -> str:
    """What the memory gives away, in one sentence."""
    if not report["pictures"]:
        return "privacy: nothing of any picture is kept here; the weights remember what they remember."
    if report["copies"]:
        return f"privacy: {report['copies']} whole pictures lie here: treat this folder like the data set itself."
    kept = "image and pixel labels" if report["labels"] else "image labels"
    return f"privacy: names, {kept} and outlines of training pictures lie here, the pictures themselves do not."


def memory_table(report: dict[str, Any]) -> Table:
    """How many remembered pictures hold each class."""
    table = Table("class", box=box.SIMPLE_HEAD, title=f"memory after step {report['step']}", title_justify="left")
    table.add_column("pictures", justify="right")
    for name, count in report["classes"].items():
        table.add_row(Text(name), str(count))
    return table


def memory_lines(report: dict[str, Any]) -> list[str]:
    """Bytes and what they mean."""
    count, store = report["pictures"], {"path": "by name", "copy": "with copies"}[report["store"]]
    lines = [f"pictures: {count}, kept {store}; the manifest takes {say_bytes(report['manifest_bytes'])}"]
    if count:
        share = report["mask_share"]
        eighth = "within" if share <= 1 / 8 else "above"
        lines.append(
            f"saliency maps: {say_bytes(report['mask_bytes'])} at one bit a pixel (PNG, all of it); as bytes they "
            f"would take {say_bytes(report['uint8_bytes'])}: {100 * share:.2f} %, {eighth} an eighth (12.5 %)"
        )
        if share > 1 / 8:
            lines.append("(a PNG's own frame of about 70 bytes weighs more than the bits of very small pictures)")
    if report["copies"]:
        lines.append(f"copies: {say_bytes(report['copy_bytes'])} in {report['copies']} PNG files")
    if report["labels"]:
        lines.append(f"pixel labels of the step that stored each: {say_bytes(report['label_bytes'])}")
    return [*lines, privacy(report)]


def say_bytes(count: int) -> str:
    """A number of bytes as people read it.

    >>> say_bytes(999), say_bytes(23_400), say_bytes(5_250_000)
    ('999 B', '23.4 kB', '5.2 MB')
    """
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
