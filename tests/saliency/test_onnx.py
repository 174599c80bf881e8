"""Detectors in ONNX form: what they are given, what they give, and models that do not fit."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from ipseg.errors import UserError
from ipseg.saliency.onnx import PRESETS, OnnxConfig, OnnxSaliency, prepare

PLAIN = OnnxConfig(size=16, scale=255, mean=(0, 0, 0), std=(1, 1, 1), min_max=False)


def half_red(height: int = 24, width: int = 40) -> np.ndarray:
    """Black, the right half red."""
    image = np.zeros((height, width, 3), dtype=np.uint8)
    image[:, width // 2 :, 0] = 200
    return image


def test_what_the_model_marks_stands_out_at_the_pictures_own_size(reds):
    found = OnnxSaliency(reds(), PLAIN)(half_red())
    assert (found.shape, found.dtype) == ((24, 40), bool)
    assert found[:, 22:].all()
    assert not found[:, :18].any()


def test_the_threshold_decides(reds):
    assert not OnnxSaliency(reds(), PLAIN, threshold=0.9)(half_red()).any()  # red is 200 / 255 there
    assert OnnxSaliency(reds(), replace(PLAIN, min_max=True), threshold=0.9)(half_red()).any()


def test_another_output_is_another_map(reds):
    green = half_red()[..., [1, 0, 2]]
    assert not OnnxSaliency(reds(), PLAIN)(green).any()
    assert OnnxSaliency(reds(), replace(PLAIN, output=1))(green).any()


def test_a_flat_map_has_nothing_that_stands_out(reds):
    assert not OnnxSaliency(reds(), replace(PLAIN, min_max=True))(np.zeros((20, 20, 3), dtype=np.uint8)).any()


def test_a_model_for_any_size_takes_the_size_that_is_set(reds):
    path = reds(shape=["N", 3, "H", "W"])
    assert OnnxSaliency(path, replace(PLAIN, size=48)).scores(half_red()).shape == (48, 48)


def test_pixels_are_prepared_as_the_settings_say():
    image = np.full((8, 8, 3), (100, 50, 0), dtype=np.uint8)
    u2net = prepare(image, OnnxConfig(size=4))
    assert u2net.shape == (1, 3, 4, 4)
    expected = [(1 - 0.485) / 0.229, (0.5 - 0.456) / 0.224, (0 - 0.406) / 0.225]
    assert u2net[0, :, 0, 0] == pytest.approx(expected, abs=1e-6)
    isnet = prepare(image, PRESETS["isnet"])  # as in the authors' own inference: 1024 pixels, / 255, - 0.5, / 1
    assert isnet.shape == (1, 3, 1024, 1024)
    assert isnet[0, :, 0, 0] == pytest.approx([100 / 255 - 0.5, 50 / 255 - 0.5, -0.5], abs=1e-6)
    assert np.isfinite(prepare(np.zeros((3, 3, 3), dtype=np.uint8), OnnxConfig())).all()


@pytest.mark.parametrize("shape", [[1, 3, 32, 32], [1, 1, 16, 16], [3, 16, 16], [2, 3, 16, 16]])
def test_a_model_of_another_shape_is_refused_with_both_shapes(reds, shape):
    with pytest.raises(
        UserError, match=r"takes tensor\(float\) \[.*expected tensor\(float\) \[1, 3, 16, 16\]"
    ) as error:
        OnnxSaliency(reds(shape=shape), PLAIN)
    assert str(shape) in str(error.value)


def test_a_model_that_says_it_takes_any_size_and_does_not_is_named(tmp_path):
    onnx = pytest.importorskip("onnx", reason="needs the extra dev")
    pytest.importorskip("onnxruntime", reason="needs the extra saliency")
    make = onnx.helper
    numbers = onnx.TensorProto.FLOAT
    graph = make.make_graph(
        [make.make_node("Add", ["picture", "learned"], ["map"])],  # a table of positions, say
        "fixed inside",
        [make.make_tensor_value_info("picture", numbers, [1, 3, "H", "W"])],
        [make.make_tensor_value_info("map", numbers, None)],
        [make.make_tensor("learned", numbers, [1, 1, 32, 32], [0.0] * 1024)],
    )
    path = tmp_path / "fixed.onnx"
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(UserError, match=r"fixed\.onnx cannot be run on a picture of model\.size=16"):
        OnnxSaliency(path, PLAIN)(half_red())


def test_a_model_of_other_numbers_is_refused(reds):
    with pytest.raises(UserError, match=r"takes tensor\(double\).*expected tensor\(float\)"):
        OnnxSaliency(reds(double=True), PLAIN)


def test_a_model_whose_answer_is_no_map_is_refused(reds):
    with pytest.raises(UserError, match=r"output 2 has the shape \[1, 3, 16, 16\]; expected one map"):
        OnnxSaliency(reds(), replace(PLAIN, output=2))(half_red())


def test_an_output_that_is_not_there_is_refused(reds):
    with pytest.raises(UserError, match=r"has 3 outputs: model\.output must be 0 to 2, not 7"):
        OnnxSaliency(reds(), replace(PLAIN, output=7))


def test_a_file_that_is_no_model_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.onnx is not a file"):
        OnnxSaliency(tmp_path / "nowhere.onnx", PLAIN)
    (tmp_path / "text.onnx").write_text("this is no model")
    with pytest.raises(UserError, match=r"text\.onnx is not an ONNX model"):
        OnnxSaliency(tmp_path / "text.onnx", PLAIN)


def test_without_onnxruntime_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UserError, match=r"pip install 'ipseg\[saliency\]'.*--fallback"):
        OnnxSaliency(tmp_path / "model.onnx", PLAIN)


@pytest.mark.parametrize("wrong", [{"size": 0}, {"output": -1}, {"std": (1.0, 0.0, 1.0)}])
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(UserError, match=rf"model\.{next(iter(wrong))}"):
        OnnxConfig(**wrong)
