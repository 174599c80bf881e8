"""The README's photograph: a network of dogs and horses, before and after it learned cats from 32 photographs.

python benchmarks/few-images/photograph.py --data small --work work --out docs/images/before-after.png
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from few_images import OWN_VALIDATION, Animals
from PIL import Image

import ipseg
from ipseg.apps.extend_images import before_and_after
from ipseg.apps.run import Run
from ipseg.scenario import BACKGROUND

OLD, NEW = ("dog", "horse"), "cat"
OLD_IMAGES, IMAGES = 200, 32
CHELSEA = Path(__file__).parents[2] / "docs" / "images" / "chelsea.jpg"


def main(words: Sequence[str] | None = None) -> int:
    """Train, extend, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="voc_animals at 160 pixels")
    parser.add_argument("--work", type=Path, required=True, help="a folder for data and runs")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(words)
    animals, work, rng = Animals(options.data), options.work / "photograph", np.random.default_rng(0)

    def some(count: int, name: str, without: Sequence[str] = ()) -> list[int]:
        pool = [i for i in animals.showing(name) if not animals.shown[i] & set(without)]
        return [int(i) for i in rng.permutation(pool)[:count]]

    old = sorted({i for name in OLD for i in some(OLD_IMAGES, name, without=[NEW])})
    animals.write(work / "old", animals.train, old, animals.held_out[:50], OLD)
    own = animals.held_out[:OWN_VALIDATION]
    animals.write(work / "cats", animals.train, some(IMAGES, NEW, without=OLD), own, [NEW])
    recipe = Path(__file__).with_name("base.yaml")
    ipseg.train(recipe, work / "base", set=[f"data.path={work / 'old'}", "training.epochs=6"])
    ipseg.extend(work / "base", work / "cats", [NEW], work / "cat", set=["training.batch_size=8"])
    run = Run.open(work / "cat")
    before, after = run.scenario.steps
    models = run.method(before), run.method(after)
    sheet = before_and_after(models, [np.asarray(Image.open(CHELSEA))], (BACKGROUND, *after.seen), run.device)
    sheet.save(options.out, optimize=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
