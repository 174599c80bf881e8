"""Which classes meet in training pictures: of the pictures of each class, the percentage that has another one too.

    python benchmarks/real/together.py --out together.json --set data.path=.../voc_animals

What a remembered picture may hold of a class that is learned later.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from ipseg.files import write_text
from ipseg.training.recipe import Recipe, load_recipe

RECIPE = Path(__file__).parent / "animals.yaml"


def shares(recipe: Recipe) -> dict[str, dict[str, float]]:
    """Class -> other class -> percentage; and under `pictures` how many the class has."""
    splits = recipe.splits()
    order = recipe.scenario.build(splits.name, splits.classes).order
    value = {name: 1 + splits.classes.index(name) for name in order}
    found: dict[str, dict[str, float]] = {}
    for name in order:
        having = [present for present in splits.train.class_presence() if value[name] in present]
        others = {
            other: round(100 * sum(value[other] in present for present in having) / max(1, len(having)), 1)
            for other in order
            if other != name
        }
        found[name] = {"pictures": len(having), **others}
    return found


def main(words: Sequence[str] | None = None) -> None:
    """Count and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--set", dest="changes", action="append", default=[], help="KEY=VALUE")
    options = parser.parse_args(words)
    text = json.dumps(shares(load_recipe(RECIPE, options.changes)), indent=1) + "\n"
    write_text(options.out, text)
    print(text, end="")


if __name__ == "__main__":
    main()
