"""Imports point one way, reading results needs no torch, and nothing unpickles."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ipseg

ROOT = Path(ipseg.__file__).parent
LAYERS = ["scenario", "data", "models", "methods", "training", "sweep", "apps", "cli"]
"""Each may import the layers before it."""
SHARED = {"errors", "config", "files", "own_code", "parsing", "progress", "visible", "__init__"}
"""Modules that every package may import, and that import each other alone."""
ALSO = {
    "scenario": set(),
    "training": {"saliency", "evaluation"},
    "sweep": {"saliency", "evaluation", "report"},
    "apps": {"saliency", "evaluation", "report"},
    "cli": {"saliency", "evaluation", "report"},
    "evaluation": {"scenario"},
    "report": {"scenario", "evaluation.results"},
    "saliency": set(),
}
MODULES = sorted(path for path in ROOT.rglob("*.py") if path.name != "__main__.py")


def package_of(name: str) -> str:
    return name.split(".", maxsplit=1)[0]


def imports(path: Path) -> set[str]:
    """Modules of ipseg, without its name, that a file imports anywhere, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]  # `from ipseg.data import view` is a module
            found |= {name if is_module(name) else str(node.module) for name in names}
    return {name.removeprefix("ipseg").removeprefix(".") or "__init__" for name in found if re.match(r"ipseg\b", name)}


def is_module(name: str) -> bool:
    place = ROOT.parent.joinpath(*name.split("."))
    return place.is_dir() or place.with_suffix(".py").is_file()


def test_imports_point_one_way():
    for path in MODULES:
        package = package_of(path.relative_to(ROOT).parts[0].removesuffix(".py"))
        if package == "__init__":
            continue  # the public names, imported when they are asked for
        below = LAYERS[: LAYERS.index(package)] if package in LAYERS else []
        allowed = {package, *SHARED, *below, *ALSO.get(package, {"saliency"})} if package not in SHARED else SHARED
        wrong = {name for name in imports(path) if not {package_of(name), name} & allowed}
        assert not wrong, f"{path.relative_to(ROOT)} must not import {sorted(wrong)}"


@pytest.mark.parametrize("name", ["ipseg", "ipseg.scenario", "ipseg.report", "ipseg.evaluation.results"])
def test_reading_results_needs_no_torch(name):
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
                allowed = call not in line or f".{call}" in line or "weights_only=True" in line
                assert allowed, f"{path.name}:{number}: {line.strip()}"


def test_no_message_advises_to_delete_a_file():
    """It may be the only copy; what is moved aside can be moved back."""
    advice = re.compile(r"\b[Dd]elete (it|the|this|its)\b|\b[Rr]emove (the|this) (file|folder|checkpoint|run)")
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            assert not advice.search(text), f"{path.name}: {text}"
