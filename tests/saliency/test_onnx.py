"""Detectors in ONNX form: what they are given, what they give, and models that do not fit."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from ipseg.errors import UserError
from ipseg.saliency.onnx import PRESETS, OnnxSaliency, prepare


def half_red(height: int = 24, width: int = 40) -> np.ndarray:
    """Black, the right half red."""
    image = np.zeros((height, width, 3), dtype=np.uint8)
    image[:, width // 2 :, 0] = 200
    return image


def test_what_the_model_marks_is_salient_at_the_images_own_size(reds):
    found = OnnxSaliency(reds())(half_red())
    assert (found.shape, found.dtype) == ((24, 40), bool)
    assert found[:, 22:].all()
    assert not found[:, :18].any()


def test_the_threshold_decides(reds):
    image = half_red()
    image[:12, 20:, 0] = 100
    assert OnnxSaliency(reds(), "isnet", threshold=0.2)(image)[:10, 22:].all()
    assert not OnnxSaliency(reds(), "isnet", threshold=0.8)(image)[:10, 22:].any()


def test_a_flat_map_has_no_salient_pixel(reds):
    assert not OnnxSaliency(reds())(np.zeros((20, 20, 3), dtype=np.uint8)).any()


@pytest.mark.parametrize(("shape", "preset", "size"), [
    ([1, 3, 48, 48], "u2net", 48),
    (["N", 3, "H", "W"], "u2net", 320),
    ([1, 3, None, 64], "isnet", 64),
    (["N", 3, "H", "W"], "isnet", 1024),
])  # fmt: skip
def test_the_size_is_the_models_own_or_else_that_of_the_preset(reds, shape, preset, size):
    assert OnnxSaliency(reds(shape=shape), preset).scores(half_red()).shape == (size, size)


def test_pixels_are_prepared_as_the_preset_says():
    image = np.full((8, 8, 3), (100, 50, 0), dtype=np.uint8)
    u2net = prepare(image, PRESETS["u2net"], 4)
    assert u2net.shape == (1, 3, 4, 4)
    expected = [(1 - 0.485) / 0.229, (0.5 - 0.456) / 0.224, (0 - 0.406) / 0.225]
    assert u2net[0, :, 0, 0] == pytest.approx(expected, abs=1e-6)
    isnet = prepare(image, PRESETS["isnet"], 4)  # as in the authors' own inference: / 255, - 0.5, / 1
    assert isnet[0, :, 0, 0] == pytest.approx([100 / 255 - 0.5, 50 / 255 - 0.5, -0.5], abs=1e-6)
    assert np.isfinite(prepare(np.zeros((3, 3, 3), dtype=np.uint8), PRESETS["u2net"], 4)).all()


@pytest.mark.parametrize("shape", [[1, 3, 32, 16], [1, 1, 16, 16], [3, 16, 16], [2, 3, 16, 16]])
def test_a_model_of_another_shape_is_refused_with_both_shapes(reds, shape):
    with pytest.raises(UserError, match=r"takes tensor\(float\) \[.*expected one image, tensor\(float\)") as error:
        OnnxSaliency(reds(shape=shape))
    assert str(shape) in str(error.value)


def test_a_model_that_says_it_takes_any_size_and_does_not_is_named(tmp_path):
    onnx = pytest.importorskip("onnx", reason="needs the extra dev")
    pytest.importorskip("onnxruntime", reason="needs the extra saliency")
    make = onnx.helper
    numbers = onnx.TensorProto.FLOAT
    graph = make.make_graph(
        [make.make_node("Add", ["image", "learned"], ["map"])],  # a table of positions, say
        "fixed inside",
        [make.make_tensor_value_info("image", numbers, [1, 3, "H", "W"])],
        [make.make_tensor_value_info("map", numbers, None)],
        [make.make_tensor("learned", numbers, [1, 1, 32, 32], [0.0] * 1024)],
    )
    path = tmp_path / "fixed.onnx"
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(UserError, match=r"fixed\.onnx cannot be run on an image of 320 x 320"):
        OnnxSaliency(path)(half_red())


def test_a_model_of_other_numbers_is_refused(reds):
    with pytest.raises(UserError, match=r"takes tensor\(double\).*expected one image, tensor\(float\)"):
        OnnxSaliency(reds(double=True))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (np.zeros((1, 3, 16, 16)), r"its first output has the shape \[1, 3, 16, 16\]; expected one map"),
        (np.full((1, 1, 16, 16), np.nan), "values that are not finite"),
    ],
)
def test_an_answer_that_is_no_map_is_refused(reds, monkeypatch, answer, message):
    detector = OnnxSaliency(reds())
    monkeypatch.setattr(detector, "_session", SimpleNamespace(run=lambda *_: [answer]))
    with pytest.raises(UserError, match=message):
        detector(half_red())


def test_a_file_that_is_no_model_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.onnx is not a file"):
        OnnxSaliency(tmp_path / "nowhere.onnx")
    (tmp_path / "text.onnx").write_text("this is no model")
    with pytest.raises(UserError, match=r"text\.onnx is not an ONNX model"):
        OnnxSaliency(tmp_path / "text.onnx")


def test_without_onnxruntime_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UserError, match=r"pip install 'ipseg\[saliency\]'.*--fallback"):
        OnnxSaliency(tmp_path / "model.onnx")
