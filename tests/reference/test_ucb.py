"""UCB's pixel weights beside the numbers of its authors' code (vectors/README.md)."""

from __future__ import annotations

import pytest
import torch
from given_network import assert_close, load_cases, step_of

from ipseg.methods.ucb import PixelWeights, certainty, class_balance

PLOP, SSUL = load_cases("ucb_weights"), load_cases("ucb_weights_ssul")


def assert_same_weights(v, labels, *, scaled: bool) -> None:
    """Batch after batch."""
    step = step_of([int(v["n_old"]) - 1, int(v["n_new"])], 1)
    least = float(v["entropy_high"])
    weights = PixelWeights(step, torch.device("cpu"), least_certain=least, scaled=scaled)
    for batch, logits, theirs, frequency in zip(
        labels, v["old_logit"], v["out_weight"], v["out_frequency"], strict=True
    ):
        found = weights(batch, logits, torch.ones_like(batch, dtype=torch.bool))
        assert_close(weights.frequency, frequency)
        assert_close(found, theirs)


def of_ssul(labels: torch.Tensor) -> torch.Tensor:
    """SSUL's labels have an unknown class before the background; both are background here."""
    return (labels - 1).clamp(min=0).where(labels != 255, 255)


CASES = [(v, v["label"], True) for v in PLOP] + [(v, of_ssul(v["label"]), False) for v in SSUL]


def whole(v, labels: torch.Tensor) -> bool:
    """Whether every batch has the first and the last class. If not, the authors' histogram, which spans the labels of
    the batch, counts into other bins."""
    kinds = labels.where(labels != 255, 0)
    return all(batch.min() == 0 and batch.max() == int(v["n_old"] + v["n_new"]) - 1 for batch in kinds)


@pytest.mark.parametrize("case", CASES)
def test_weights_are_the_authors_where_their_histogram_has_all_classes(case):
    v, labels, scaled = case
    if whole(v, labels):
        assert_same_weights(v, labels, scaled=scaled)
    else:
        with pytest.raises(AssertionError):
            assert_same_weights(v, labels, scaled=scaled)


def test_both_variants_are_compared():
    assert {scaled for v, labels, scaled in CASES if whole(v, labels)} == {True, False}


def test_from_the_bound_on_a_pixel_has_no_weight_and_a_certain_one_e():
    assert certainty(torch.tensor([0.0, 0.4, 0.8, 1.0]), 0.8).tolist() == pytest.approx(
        [2.71828, 1.64872, 0, 0], rel=1e-5
    )


def test_rare_classes_weigh_more_within_bounds_and_the_background_one():
    balance = class_balance(torch.tensor([0.5, 0.4, 0.1, 0.0]), old=3)
    assert balance.tolist() == pytest.approx([1.0, 0.625, 3**0.5, 3**0.5])
    assert class_balance(torch.tensor([1.0, 0.0, 0.0]), old=2)[0] == 1
