"""Make voc_animals of Pascal VOC 2012: the images that show an animal, their longest side 320 pixels.

    python benchmarks/animals/make_animals.py VOCdevkit/VOC2012 --out voc_animals
    ipseg saliency voc_animals --format voc --model u2netp.onnx

Of the augmented training list and of the validation list, with the masks of SBD; saliency maps that are there already
are shrunk too. The results were measured on the same but for two of the 3,131 training images: theirs have no
2010_001807 and 2011_000219, but 2008_002037 and 2009_003272, which show people alone.

    python benchmarks/animals/make_animals.py voc_animals --out small --side 160    # for ../animals-small
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from ipseg.data.dataset import Dataset
from ipseg.data.voc import AUG, LISTS, VocConfig
from ipseg.errors import WRONG, UserError, require_at_least

ANIMALS = ("cat", "cow", "dog", "horse", "sheep")
MAPS = "saliency_map"
SIDE, QUALITY = 320, 75


def make(source: Path, out: Path, side: int = SIDE) -> dict[str, int]:
    """Write the tree; how many images each of its lists has."""
    if out.exists():
        raise UserError(f"--out {out} is there already; name a folder that is not.")
    maps = (source / MAPS).is_dir()
    voc = VocConfig(path=str(source), saliency="given" if maps else "none").build()
    animals = {1 + voc.classes.index(name) for name in ANIMALS}
    for folder in ("JPEGImages", AUG, LISTS, *([MAPS] if maps else [])):
        (out / folder).mkdir(parents=True)
    splits = {"train": voc.train, "val": voc.val}
    return {name: _make(split, animals, out, name, side, maps=maps) for name, split in splits.items()}


def _make(split: Dataset, animals: set[int], out: Path, list_name: str, side: int, *, maps: bool) -> int:
    chosen = [index for index, present in enumerate(split.class_presence()) if present & animals]
    for index in chosen:
        image, mask, name = Image.fromarray(split.image(index)), split.mask(index), split.names[index]
        size = _within(image.size, side)
        image.resize(size, Image.Resampling.BICUBIC).save(out / "JPEGImages" / f"{name}.jpg", quality=QUALITY)
        layers = {AUG: mask} | ({MAPS: split.saliency(index)} if maps else {})
        for folder, layer in layers.items():
            Image.fromarray(layer).resize(size, Image.Resampling.NEAREST).save(out / folder / f"{name}.png")
    (out / LISTS / f"{list_name}.txt").write_text("".join(f"{split.names[index]}\n" for index in chosen))
    return len(chosen)


def _within(size: tuple[int, int], side: int) -> tuple[int, int]:
    """Width and height with the longest side at most this; smaller images stay as they are.

    >>> _within((500, 375), 320), _within((200, 100), 320)
    ((320, 240), (200, 100))
    """
    share = min(1.0, side / max(size))
    return max(1, round(size[0] * share)), max(1, round(size[1] * share))


def main(words: Sequence[str] | None = None) -> int:
    """Make it, and say what is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="VOCdevkit/VOC2012, with SegmentationClassAug and train_aug.txt")
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    parser.add_argument("--side", type=int, default=SIDE, help="the longest side in pixels (default: %(default)s)")
    options = parser.parse_args(words)
    try:
        require_at_least("--side", options.side, 1)
        made = make(options.source, options.out, options.side)
    except UserError as error:
        print(error, file=sys.stderr)
        return WRONG
    print(", ".join(f"{count} images in {name}" for name, count in made.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
