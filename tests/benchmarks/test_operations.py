"""What an iteration computes: the count behind the share of a GPU's peak."""

from __future__ import annotations

import pytest
from operations import teraflop


@pytest.mark.slow
def test_the_count_is_that_of_the_network():
    assert teraflop("r50 320 step 0") == pytest.approx(4.01, abs=0.01)  # what torch counted while a GPU computed it
