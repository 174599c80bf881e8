"""The notebook runs as it is written, and its claims hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parent.parent / "examples" / "one_more_class.ipynb"


@pytest.mark.slow
def test_the_notebook_teaches_a_class_and_keeps_the_old_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert names["report"]["validation"]["new"] > 0.5
    assert names["report"]["memory"]["pixels_kept"] > 0.95
    assert (tmp_path / "runs" / "notebook" / "cup.onnx").is_file()
