"""Write docs/settings.md from the settings themselves: `python docs/make_settings.py`.

Every setting is explained once, under its field in the code. A test compares the page with what this would write.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import yaml

from ipseg.config import field_docs, to_dict
from ipseg.data.ade import AdeConfig
from ipseg.data.coco import CocoConfig
from ipseg.data.folder import FolderConfig
from ipseg.data.memory import MemoryConfig
from ipseg.data.scenes.dataset import ScenesConfig
from ipseg.data.voc import VocConfig
from ipseg.methods.registry import METHODS
from ipseg.models.backbone import BackboneConfig
from ipseg.models.network import ModelConfig
from ipseg.scenario import ScenarioConfig
from ipseg.training.evaluate import EvaluationConfig
from ipseg.training.recipe import Recipe, TrainingConfig

PAGE = Path(__file__).parent / "settings.md"
HEAD = """\
# Settings

Generated from the code by `python docs/make_settings.py`; [recipes](recipes.md) shows how they are used.

The scope says when a setting acts, and so when it may change: empty, not in a run; `fixed`, nor in what is built on the
run; `later`, not in a run, but runs that differ in it share a base step; `inference`, in `evaluate` and `predict`;
`runtime`, on `--resume`; `place`, on `--resume` for the same files elsewhere.
"""
SECTIONS: dict[str, tuple[str, type]] = {
    "The recipe itself": ("", Recipe),
    "data, `name: scenes`": ("data", ScenesConfig),
    "data, `name: folder`": ("data", FolderConfig),
    "data, `name: voc`": ("data", VocConfig),
    "data, `name: ade`": ("data", AdeConfig),
    "data, `name: coco`": ("data", CocoConfig),
    "scenario": ("scenario", ScenarioConfig),
    "model": ("model", ModelConfig),
    "model.backbone": ("model.backbone", BackboneConfig),
    **{f"method, `name: {name}`": ("method", cls) for name, cls in METHODS.items()},
    "memory": ("memory", MemoryConfig),
    "training": ("training", TrainingConfig),
    "evaluation": ("evaluation", EvaluationConfig),
}


def page() -> str:
    """The whole page."""
    shown: dict[str, str] = {}
    return "\n".join([HEAD, *(section(title, *what, shown) for title, what in SECTIONS.items())]).rstrip() + "\n"


def listed(names: Iterable[str]) -> str:
    """Settings in a sentence."""
    return ", ".join(f"`{name}`" for name in sorted(names))


def section(title: str, prefix: str, cls: type, shown: dict[str, str]) -> str:
    """A table of a section's settings. Those that a section before has alike are named below it."""
    docs, hints = field_docs(cls), typing.get_type_hints(cls)
    head, rows, known = ["| setting | takes | default | scope | meaning |", "|---|---|---|---|---|"], [], []
    for field in dataclasses.fields(cls):
        name = f"{prefix}.{field.name}" if prefix else field.name
        if field.name == "name" and prefix in ("data", "method"):
            continue  # the heading says it
        cells = [
            f"`{name}`",
            takes(hints[field.name]),
            default(field),
            field.metadata.get("scope", ""),
            docs[field.name],
        ]
        row = "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
        if shown.get(name) == row:
            known.append(name)
        else:
            rows.append(row)
            shown[name] = row
    as_above = [f"As above: {listed(known)}.", ""] if known else []
    return "\n".join([f"## {title}", "", *([*head, *rows, ""] if rows else []), *as_above])


def takes(hint: Any) -> str:
    """What values a setting has, in words."""
    names = {int: "int", float: "float", bool: "bool", str: "str", type(None): "null"}
    if hint in names:
        return names[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return ", ".join(f"`{arg}`" for arg in args)
    if origin is tuple:
        many = len(args) == 2 and args[1] is Ellipsis
        return f"list ({takes(args[0])})" if many else f"{len(args)} {takes(args[0])}s"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(takes(arg) for arg in args)
    return "section"


def default(field: dataclasses.Field[Any]) -> str:
    """The default as YAML; sections have defaults of their own."""
    if field.default_factory is not dataclasses.MISSING:
        return "see below"
    if field.default is dataclasses.MISSING:
        return "required"
    text = yaml.safe_dump(to_dict(field.default), default_flow_style=True).removesuffix("...\n").strip()
    return f"`{text}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
