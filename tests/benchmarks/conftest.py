"""Scripts beside the library: tests import them by their names, as they import each other."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path += [str(BENCHMARKS), str(BENCHMARKS / "real")]


@pytest.fixture
def run_main(monkeypatch) -> Callable[..., None]:
    """Call a script as its command would."""

    def run(module: ModuleType, *words: object) -> None:
        monkeypatch.setattr(sys, "argv", [f"{module.__name__}.py", *map(str, words)])
        module.main()

    return run
