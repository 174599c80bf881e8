"""A model as an ONNX file: the same labels as torch, of any size, after one step and after eleven."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from PIL import Image

import ipseg
from ipseg.apps import export
from ipseg.errors import UserError
from ipseg.methods.base import Method
from ipseg.methods.registry import METHODS, method_config
from ipseg.models.backbone import BackboneConfig
from ipseg.models.lda import StreamingLDA
from ipseg.models.network import ModelConfig
from ipseg.scenario import ScenarioConfig

EXAMPLE = Path(__file__).parents[2] / "examples" / "onnx_predict.py"
SIZES = [(64, 96), (75, 101), (33, 40), (130, 97), (20, 31)]


def method_after(name: str, steps: int, backbone: str = "test_resnet") -> Method:
    """A method with random weights after so many steps of one class."""
    torch.manual_seed(0)
    model = ModelConfig(backbone=BackboneConfig(name=backbone), width=8, posterior_width=16, rates=(1, 2))
    method = method_config({"name": name}).build(model)
    classes = tuple(f"class {i}" for i in range(12))
    scenario = ScenarioConfig(name="joint" if name == "joint" else "1-1").build("scenes", classes)
    for step in scenario.steps[:steps]:
        method.begin_step(step)
    posterior = getattr(method.network, "posterior", None)
    if isinstance(posterior, StreamingLDA):  # all zero until it has seen images
        posterior.weight.normal_(0, 0.3)
        posterior.bias.normal_()
    return method


@pytest.mark.parametrize("steps", [1, 11])
@pytest.mark.parametrize("name", ["ipseg", "ipseg_lda"])
def test_labels_agree_with_torch_at_every_size(name, steps):
    method = method_after(name, steps)
    checks = export.compare(method, export.to_onnx(method, None, {}), SIZES)
    assert [check.size for check in checks] == SIZES
    assert min(check.agreement for check in checks) >= export.AGREEMENT
    assert max(check.difference for check in checks) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_can_be_exported(name):
    method = method_after(name, 1 if name == "joint" else 2)
    checks = export.compare(method, export.to_onnx(method, None, {}), SIZES[1:3])
    assert min(check.agreement for check in checks) >= export.AGREEMENT


@pytest.mark.slow
def test_swin_takes_one_size():
    method = method_after("ipseg", 2, "swin_tiny_patch4_window7_224")
    (check,) = export.compare(method, export.to_onnx(method, (128, 128), {}), [(128, 128)])
    assert check.agreement >= export.AGREEMENT


def test_a_file_says_what_it_is_and_runs_without_this_package(tiny_run, tmp_path):
    out, photo = tmp_path / "model.onnx", tmp_path / "photo.png"
    ipseg.export(tiny_run, out, step=0)
    file = onnx.load(out)
    facts = {entry.key: entry.value for entry in file.metadata_props}
    model = ipseg.load(tiny_run, 0)
    assert tuple(json.loads(facts["classes"])) == model.classes
    assert facts["ipseg"] == ipseg.__version__
    assert facts["step"] == "0"
    assert file.producer_name == "ipseg"
    assert [opset.version for opset in file.opset_import] == [export.OPSET]

    Image.fromarray(export.sample_image(57, 91)).save(photo)
    labels = tmp_path / "labels.png"
    code = "import sys; sys.modules.update(torch=None, ipseg=None); import runpy; runpy.run_path(sys.argv.pop(1))"
    ran = subprocess.run(
        [sys.executable, "-c", code, str(EXAMPLE), str(out), str(photo), str(labels)], capture_output=True, check=True
    )
    assert b"background:" in ran.stdout
    assert (np.asarray(Image.open(labels)) == model.predict(photo).labels).mean() >= export.AGREEMENT


def test_a_file_that_disagrees_is_not_written(tiny_run, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "compare", lambda *_: [export.Check((64, 64), 0.7, 1.0)])
    with pytest.raises(UserError, match=r"disagrees with torch in 30\.0% .* --size"):
        ipseg.export(tiny_run, tmp_path / "model.onnx")
    assert list(tmp_path.glob("*.onnx")) == []


def test_a_file_of_one_size_refuses_another(tiny_run):
    method = method_after("ipseg", 1)
    data = export.to_onnx(method, (64, 64), {})
    with pytest.raises(UserError, match="onnxruntime cannot run the file"):
        export.compare(method, data, [(64, 96)])


def test_without_the_extra_it_is_named(tiny_run, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "find_spec", lambda name: None if name == "onnxruntime" else name)
    with pytest.raises(UserError, match=r"onnxruntime: pip install 'ipseg\[export\]'"):
        ipseg.export(tiny_run, tmp_path / "model.onnx")


def test_another_file_is_not_replaced(tiny_run, tmp_path):
    out = tmp_path / "model.onnx"
    out.write_bytes(b"somebody else's")
    with pytest.raises(UserError, match="is not replaced"):
        ipseg.export(tiny_run, out)
    with pytest.raises(UserError, match="inside the run directory"):
        ipseg.export(tiny_run, tiny_run / "model.onnx")


@pytest.mark.parametrize("text", ["512", "512x", "axb", "-1x5"])
def test_a_size_that_is_none(text):
    with pytest.raises(UserError, match="--size"):
        export.parse_size(text)


def test_a_size_of_zero(tiny_run, tmp_path):
    with pytest.raises(UserError, match="--size"):
        ipseg.export(tiny_run, tmp_path / "model.onnx", size=(0, 64))
