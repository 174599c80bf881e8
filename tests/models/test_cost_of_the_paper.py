"""Swin-B on VOC 15-1 is as large and as costly as the paper says (its table of costs), for IPSeg and SSUL-M."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from ipseg.methods.registry import method_config
from ipseg.models.backbone import BackboneConfig
from ipseg.models.network import ModelConfig, count_parameters
from ipseg.scenario import describe

PAPER = [135.92, 139.76, 143.60, 147.66, 151.28, 155.12]
"""Millions of parameters after each step. The fourth fits neither neighbor: the steps are 3.84 M apart elsewhere."""
SSUL_M = [106.20, 110.03, 113.89, 117.95, 121.56, 125.40]
"""The same of SSUL-M."""


@pytest.fixture(scope="module")
def costs() -> tuple[list[int], int]:
    """IPSeg's."""
    return costs_of(name="ipseg")


def costs_of(**method_settings: Any) -> tuple[list[int], int]:
    """Parameters after each step, and the base step's multiply-adds; on no device at all: only shapes are computed."""
    parameters, macs = [], 0
    with torch.device("meta"):
        model = ModelConfig(backbone=BackboneConfig(name="swin_base_patch4_window12_384"))
        method = method_config(method_settings).build(model)
        for step in describe("voc/15-1").steps:
            method.begin_step(step)
            parameters.append(count_parameters(method.network))
            if step.index == 0:
                with FlopCounterMode(display=False) as counter:
                    method.predict(torch.empty(1, 3, 512, 512))
                macs = counter.get_total_flops() // 2
    return parameters, macs


@pytest.mark.parametrize("step", range(6))
def test_parameters_are_the_papers_within_one_percent(costs, step):
    assert costs[0][step] / 1e6 == pytest.approx(PAPER[step], rel=0.01)


def test_multiply_adds_of_the_base_step_are_the_papers_within_one_percent(costs):
    assert costs[1] / 1e9 == pytest.approx(137.1, rel=0.01)


def test_every_step_adds_the_same_number_of_parameters(costs):
    assert len({after - before for before, after in pairwise(costs[0])}) == 1


def test_ssul_m_has_the_papers_parameters_with_ipsegs_heads_and_its_multiply_adds_with_its_own():
    """The paper's row mixes the two: larger heads, one each for unknown and background, and the cost of small ones."""
    parameters, macs = costs_of(name="ssul_m", head="ipseg")
    assert [count / 1e6 for count in parameters] == pytest.approx(SSUL_M, rel=0.01)
    assert macs / 1e9 > 150
    assert costs_of(name="ssul_m")[1] / 1e9 == pytest.approx(94.9, rel=0.01)
