"""Where recipes are found, and what a recipe that begins with `base:` says in full."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ipseg
from ipseg.config import Settings, override, read_yaml
from ipseg.errors import UserError
from ipseg.files import missing
from ipseg.own_code import look_in, require_allowed

FILES = (".yaml", ".yml")
MOST_BASES = 8
"""A reader must be able to follow the bases of a recipe to their end."""
CHOICES = {"data": "scenes", "method": "ipseg"}
"""Sections whose `name` decides which other keys they take, and the name where they give none."""


def read_recipe(path: Path, *, of_a_run: bool = False) -> Settings:
    """The settings of a recipe's file, those of its bases included. Its name is the file's if it gives none."""
    return {"name": path.stem} | with_base(read_yaml(path, "the recipe"), path, of_a_run=of_a_run)


def with_base(values: Mapping[str, Any], file: Path | None = None, *, of_a_run: bool = False) -> Settings:
    """Settings laid over those of the recipe that their `base` names, and so on down to one without a base.

    base: the name of a shipped recipe, or a .yaml file, relative to the file that names it.
    """
    layers, files = [dict(values)], [Path("the recipe") if file is None else file.resolve()]
    of_a_run = file is not None and _require_own(values, file, of_a_run=of_a_run)
    while "base" in layers[-1]:
        found = _find_base(layers[-1].pop("base"), files[-1])
        trail = " -> ".join(one.name for one in [*files, found])
        if found in files:
            raise UserError(f"the recipe is its own base: {trail}. One of them must say everything itself.")
        if len(layers) > MOST_BASES:
            raise UserError(
                f"the recipe has more than {MOST_BASES} bases, one on the other: {trail}. Name a later one."
            )
        layers.append({key: value for key, value in read_yaml(found, "the base").items() if key != "name"})
        files.append(found)
        of_a_run = _require_own(layers[-1], found, of_a_run=of_a_run)
    whole: Settings = {}
    for layer in reversed(layers):
        whole = merge_settings(whole, layer)
    return whole


def _require_own(values: Mapping[str, Any], file: Path, *, of_a_run: bool) -> bool:
    """Raise if a run's recipe, or one that such a recipe names, has code that is not allowed; whether it is one."""
    if of_a_run or file.with_name("run.json").exists():
        require_allowed(values, file)
        return True
    look_in(file.parent)  # the user's own
    return False


def _find_base(name: object, file: Path) -> Path:
    if not isinstance(name, str):
        raise UserError(f"base must be the name of a recipe or a .yaml file, got {name!r} in {file}.")
    if not name.endswith(FILES):
        return _shipped(name, f"base (in {file})").resolve()
    path = (file.parent / name).resolve()
    if not path.is_file():
        raise UserError(f"the base of {file} is missing: {path}. A file is looked for beside the recipe that names it.")
    return path


def merge_settings(base: Settings, changes: Settings) -> Settings:
    """Settings with changes: sections are changed key by key; one that names another data set or method begins anew."""
    result = dict(base)
    for key, value in changes.items():
        if isinstance(old := base.get(key), dict) and isinstance(value, dict) and not _chooses_another(key, old, value):
            result[key] = merge_settings(old, value)
        else:
            result[key] = value
    return result


def with_overrides(values: Settings, assignments: Sequence[str]) -> Settings:
    """Settings with `key=value` assignments. One that chooses another method leaves nothing of the old one's."""
    changes = override({}, assignments)
    anew: Settings = {
        section: {}
        for section in CHOICES
        if isinstance(new := changes.get(section), dict) and _chooses_another(section, values.get(section) or {}, new)
    }
    return override(values | anew, assignments)


def _chooses_another(section: str, old: Settings, new: Settings) -> bool:
    return section in CHOICES and "name" in new and new["name"] != old.get("name", CHOICES[section])


def find_recipe(name: str | Path) -> Path:
    """The file of a recipe: a file, a run's folder, or the name of one that comes with the package."""
    path = Path(name)
    if path.is_dir() and (path / "recipe.yaml").is_file():
        return path / "recipe.yaml"
    if path.is_file():
        return path
    if path.is_dir():
        raise UserError(f"{path} is a folder without a recipe.yaml, so it is no run's folder.")
    a_file = path.suffix in FILES
    if path.stem not in _known() and (a_file or path.parent != Path()):
        raise missing("the recipe" if a_file else "the recipe, or the run,", path)
    return _shipped(name, "recipe")


def shipped_recipes() -> list[Path]:
    """Recipes inside the installed package, or in the repository when run from there."""
    package = Path(ipseg.__file__).parent
    folder = package / "recipes" if (package / "recipes").is_dir() else package.parent.parent / "recipes"
    return sorted(folder.glob("*.yaml"))


def _known() -> dict[str, Path]:
    return {file.stem: file for file in shipped_recipes()}


def _shipped(name: str | Path, what: str) -> Path:
    known = _known()
    if Path(name).stem in known:
        return known[Path(name).stem]
    near = difflib.get_close_matches(Path(name).stem, known, n=1, cutoff=0.5)
    guess = f" Did you mean {near[0]}?" if near else ""
    raise UserError(
        f'no {what} "{name}".{guess} A recipe is a YAML file or a name that comes along: {", ".join(known)}. '
        "Rows of the paper's tables are runs of grids; docs/reproduce.md lists them."
    )
