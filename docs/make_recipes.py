"""Write the complete recipes anew, every setting with its meaning of today: `python docs/make_recipes.py`.

Their heads and values stay as they are; a setting that is new appears with its default. Recipes with a `base:` list
only what they change and are left alone.
"""

from __future__ import annotations

from pathlib import Path

from ipseg.config import read_yaml, to_yaml
from ipseg.training.recipe import load_recipe
from ipseg.training.recipe_files import shipped_recipes


def complete() -> list[Path]:
    """The recipes that stand on no other."""
    return [path for path in shipped_recipes() if "base" not in read_yaml(path, "the recipe")]


def written(path: Path) -> str:
    """The recipe's file as it should be."""
    lines = path.read_text(encoding="utf-8").splitlines()
    head = "\n".join(lines[: lines.index("")])  # the first comment, up to the empty line below it
    return f"{head}\n\n{to_yaml(load_recipe(path)).rstrip()}\n"


if __name__ == "__main__":
    for recipe in complete():
        recipe.write_text(written(recipe), encoding="utf-8")
