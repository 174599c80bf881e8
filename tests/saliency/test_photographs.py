"""On photographs, where they are there: a model and the fallback, against the maps that came with them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from ipseg.data.dataset import Dataset
from ipseg.data.voc import VocConfig
from ipseg.saliency.fallback import salient
from ipseg.saliency.onnx import OnnxSaliency

SHARED = Path(os.environ.get("IPSEG_SHARED", Path(__file__).parents[3] / "shared"))
DATA, MODEL = SHARED / "data" / "voc_animals", SHARED / "weights" / "u2netp.onnx"

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is not there; IPSEG_SHARED names its folder")


@pytest.fixture(scope="module")
def photographs() -> Dataset:
    return VocConfig(path=str(DATA), saliency="given").open().val


def iou(a: np.ndarray, b: np.ndarray) -> float:
    return float((a & b).sum() / (a | b).sum())


@pytest.mark.skipif(not MODEL.is_file(), reason=f"{MODEL} is not there")
def test_the_model_gives_nearly_the_maps_that_came_with_the_photographs(photographs):
    # Not the very same: docs/data.md says how near, and why. How pixels are prepared is tested to the digit elsewhere.
    pytest.importorskip("onnxruntime", reason="needs the extra saliency")
    detect = OnnxSaliency(MODEL)
    found = [iou(detect(photographs.image(index)), photographs.saliency(index)) for index in (0, 200)]
    assert np.mean(found) > 0.85


def test_the_fallback_finds_about_half_of_what_a_model_finds(photographs):
    found = [iou(salient(photographs.image(index)), photographs.saliency(index)) for index in range(0, 445, 30)]
    assert np.mean(found) > 0.4
