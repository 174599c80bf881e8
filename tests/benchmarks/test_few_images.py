"""benchmarks/few-images: what `ipseg extend` says beforehand is what was measured."""

from __future__ import annotations

import statistics
from pathlib import Path

import few_images
import torch

from ipseg.apps.extend import EXPECTED
from ipseg.models.lda import StreamingLDA
from ipseg.models.posterior import BINS

LINES = [
    line for line in few_images.read(Path(few_images.__file__).with_name("results.jsonl")) if line["on"] == "validation"
]


def test_what_is_said_beforehand_was_measured():
    for count in few_images.COUNTS:
        means = [statistics.fmean(few_images.new_iou(LINES, count, name)) for name in few_images.NEW]
        assert EXPECTED[count] == (round(min(means)), round(max(means)))


def test_the_figure_is_drawn(tmp_path):
    few_images.draw_figure(LINES, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_the_uncorrected_posterior_is_lower_for_the_rarer_class():
    posterior = StreamingLDA(3)
    posterior.add_step(1)
    pooled = torch.rand(50, 3 * BINS * BINS, generator=torch.Generator().manual_seed(0))
    posterior.learn([(pooled, torch.arange(50)[:, None] < 5)])
    plain = few_images.uncorrected(posterior)
    assert plain.bias < posterior.bias
    assert torch.equal(plain.weight, posterior.weight)
