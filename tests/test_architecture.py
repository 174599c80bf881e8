"""Imports point one way, and what people only look at needs no torch."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ipseg

ROOT = Path(ipseg.__file__).parent
ROOMS = ["scenario", "data", "models", "methods", "training", "sweep", "apps", "cli"]
"""Each may import what stands before it, and itself; from data on also saliency."""
FOR_ALL = {"errors", "config", "files", "own_code", "parsing", "progress", "visible", "__init__"}
MODULES = sorted(path for path in ROOT.rglob("*.py") if path.name not in ("__main__.py",))


def allowed(room: str) -> set[str]:
    """The rooms, or modules of rooms, that a room may import."""
    if room == "evaluation":
        return FOR_ALL | {"evaluation", "scenario"}
    if room == "report":
        return FOR_ALL | {"report", "scenario", "evaluation.results"}
    if room == "saliency":
        return {"errors", "files", "saliency"}
    below = set(ROOMS[: ROOMS.index(room) + 1]) | ({"saliency"} if room != "scenario" else set())
    commands = {"_command", "cli_data", "cli_report", "cli_saliency", "cli_sweep", "evaluation", "report"}
    shown = {"evaluation", "report"}
    extra = {"training": {"evaluation"}, "sweep": shown, "apps": shown, "cli": commands}
    return FOR_ALL | below | extra.get(room, set())


def imports(path: Path) -> set[str]:
    """Modules of ipseg, without its name, that a file imports anywhere, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            module = node.module or ""
            # `from ipseg.data import view` names a module as `from ipseg.data.step_dataset import StepDataset` does
            names = [f"{module}.{alias.name}" for alias in node.names]
            found |= {name if _is_module(name) else module for name in names}
    return {name.removeprefix("ipseg").removeprefix(".") or "__init__" for name in found if _ours(name)}


def _ours(name: str) -> bool:
    return name.split(".", maxsplit=1)[0] == "ipseg"


def _is_module(name: str) -> bool:
    place = ROOT.parent.joinpath(*name.split("."))
    return place.is_dir() or place.with_suffix(".py").is_file()


def room_of(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0].removesuffix(".py")
    return "cli" if first == "_command" or first.startswith("cli_") else first  # parts of the command


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_imports_point_one_way(path):
    room = room_of(path)
    if room == "__init__":
        return  # the public names, made when they are asked for
    used = imports(path)
    if room in FOR_ALL:
        assert used <= FOR_ALL
        return
    may = allowed(room)
    wrong = {name for name in used if not any(name == one or name.startswith(f"{one}.") for one in may)}
    assert not wrong, f"{room} must not import {sorted(wrong)}"


def test_every_room_has_its_place():
    rooms = {room_of(path) for path in MODULES}
    assert rooms <= {*ROOMS, *FOR_ALL, "saliency", "evaluation", "report"}


@pytest.mark.parametrize("name", ["ipseg", "ipseg.scenario", "ipseg.report", "ipseg.evaluation.results"])
def test_what_people_only_look_at_needs_no_torch(name):
    code = f"""
import importlib, pkgutil, sys
package = importlib.import_module("{name}")
if "{name}" != "ipseg":
    for found in pkgutil.walk_packages(getattr(package, "__path__", []), "{name}."):
        importlib.import_module(found.name)
print(sorted({{"torch", "timm", "torchvision"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_nothing_unpickles_a_strangers_file():
    calls = ("pickle", "torch.load(", "np.load(", "numpy.load(", "yaml.load(", "eval(", "exec(")
    for path in MODULES:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for call in calls:
                if call in line and f".{call}" not in line and "weights_only=True" not in line:
                    raise AssertionError(f"{path.name}:{number}: {line.strip()}")


def test_no_message_advises_to_delete_a_file():
    """It may be the only copy of what is intact after all; what is moved aside can be moved back."""
    advice = re.compile(r"\b[Dd]elete (it|the|this|its)\b|\b[Rr]emove (the|this) (file|folder|checkpoint|run)")
    texts = {
        path: [node.value for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if _is_text(node)]
        for path in MODULES
    }
    assert {path: found for path, all_of in texts.items() if (found := list(filter(advice.search, all_of)))} == {}


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
