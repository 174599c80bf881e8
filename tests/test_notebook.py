"""The notebook runs as it is written, and its claims hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ipseg

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
    base, more = (ipseg.evaluate(f"runs/notebook/{run}", names["check"], quiet=True) for run in ("base", "more"))
    old = [(base.iou[name], more.iou[name]) for name in names["old"].classes]
    assert sum(after - before for before, after in old) / len(old) > -0.04
    assert (tmp_path / "runs" / "notebook" / "cup.onnx").is_file()
