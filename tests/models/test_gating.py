"""Gated heads: what is skipped could not have won, and what is left out is counted."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ipseg.models.gating import Gate

SIZE = (3, 4)


def scene(seed: int, classes: list[int], images: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Background, posterior and pixel scores; posteriors from all but certain to all but ruled out."""
    rng = torch.Generator().manual_seed(seed)
    posterior = torch.rand(images, sum(classes), generator=rng) ** 6
    pixel = torch.rand(images, sum(classes), *SIZE, generator=rng)
    return torch.rand(images, *SIZE, generator=rng), posterior, pixel


def gate_of(posterior, pixel, classes, ran: list[tuple[int, int]]) -> Gate:
    """A gate whose heads note for which images they ran."""
    scores = pixel * posterior[..., None, None]
    parts = torch.split(scores, classes, dim=1)

    def run(head: int, rows: torch.Tensor) -> torch.Tensor:
        ran.extend((head, int(row)) for row in rows)
        return parts[head][rows]

    return Gate(posterior, classes, run)


def every_head(background, posterior, pixel) -> torch.Tensor:
    return torch.cat([background[:, None], pixel * posterior[..., None, None]], dim=1)


everywhere = torch.ones(1, *SIZE, dtype=torch.bool)
many_heads = st.lists(st.integers(1, 4), min_size=1, max_size=6)


@given(st.integers(0, 10**6), many_heads, st.integers(1, 4))
def test_labels_of_the_exact_gate_are_those_of_all_heads(seed, classes, images):
    made, ran = scene(seed, classes, images), []
    gate = gate_of(*made[1:], classes, ran)
    scores = gate.open(made[0], everywhere.expand(images, *SIZE))
    assert torch.equal(scores.argmax(1), every_head(*made).argmax(1))
    assert len(ran) == len(set(ran)) == gate.ran
    assert gate.share == len(ran) / (images * len(classes))


@given(st.integers(0, 10**6), many_heads)
def test_a_head_that_the_exact_gate_skips_could_not_have_won_a_pixel(seed, classes):
    made, ran = scene(seed, classes, 1), []
    best = gate_of(*made[1:], classes, ran).open(made[0], everywhere).amax(1)
    bounds = [part.amax() for part in torch.split(made[1], classes, dim=1)]
    skipped = set(range(len(classes))) - {head for head, _ in ran}
    assert all((bounds[head] < best).all() for head in skipped)


@given(st.integers(0, 10**6), many_heads, st.integers(1, 9))
def test_a_padded_gate_runs_heads_on_powers_of_two_and_scores_alike(seed, classes, images):
    made, shown = scene(seed, classes, images), everywhere.expand(images, *SIZE)
    ran, lengths = [], []
    gate = gate_of(*made[1:], classes, ran)
    scores = gate.open(made[0], shown)
    padded = gate_of(*made[1:], classes, [])
    padded.padded, run = True, padded.run
    padded.run = lambda head, rows: lengths.append(len(rows)) or run(head, rows)
    assert torch.equal(padded.open(made[0], shown), scores)
    assert set(lengths) <= {1, 2, 4, 8, 16}
    assert padded.ran == gate.ran == len(ran)


def test_with_one_certain_class_a_gate_runs_one_head_of_many():
    posterior = torch.full((1, 50), 1e-4)
    posterior[0, 17] = 0.99
    pixel = torch.rand(1, 50, *SIZE)
    pixel[0, 17, 0] = 0.9  # it covers the first row; the rest is background
    background = torch.full((1, *SIZE), 0.8)
    background[0, 0] = 0.01
    ran: list[tuple[int, int]] = []
    gate = gate_of(posterior, pixel, [1] * 50, ran)
    scores = gate.open(background, everywhere)
    assert ran == [(17, 0)]
    assert gate.share == pytest.approx(1 / 50)
    assert scores.argmax(1)[0, 0].tolist() == [18] * SIZE[1]


def test_padding_keeps_no_head_running():
    background = torch.full((1, *SIZE), 0.8)
    background[0, :, 2:] = 0.0
    posterior, pixel = torch.full((1, 2), 0.1), torch.rand(1, 2, *SIZE)
    shown = everywhere.clone()
    shown[0, :, 2:] = False
    ran: list[tuple[int, int]] = []
    gate_of(posterior, pixel, [1, 1], ran).open(background, shown)
    assert ran == []
    gate_of(posterior, pixel, [1, 1], ran).open(background, everywhere)
    assert ran
