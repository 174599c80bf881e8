"""A detector of salient objects that is small enough to be written by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest


@pytest.fixture
def reds(tmp_path: Path) -> Callable[..., Path]:
    """Writes a model whose map is the red channel."""
    onnx = pytest.importorskip("onnx", reason="needs the extra dev")
    pytest.importorskip("onnxruntime", reason="needs the extra saliency")
    make = onnx.helper

    def write(shape: Sequence[int | str | None] = (1, 3, 16, 16), *, double: bool = False) -> Path:
        kind = onnx.TensorProto.DOUBLE if double else onnx.TensorProto.FLOAT
        numbers = {"zero": [0], "one": [1], "axis": [len(shape) - 3]}
        graph = make.make_graph(
            [make.make_node("Slice", ["image", "zero", "one", "axis"], ["red"])],
            "reds",
            [make.make_tensor_value_info("image", kind, list(shape))],
            [make.make_tensor_value_info("red", kind, None)],
            [make.make_tensor(name, onnx.TensorProto.INT64, [1], value) for name, value in numbers.items()],
        )
        path = tmp_path / "reds.onnx"
        model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8)
        path.write_bytes(model.SerializeToString())
        return path

    return write
