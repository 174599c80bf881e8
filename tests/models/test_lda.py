"""A posterior from moments: textbook discriminants, that do not depend on when an image was shown."""

from __future__ import annotations

import pytest
import torch

from ipseg.models.lda import SHRINKAGE, StreamingLDA
from ipseg.models.posterior import BINS

PARTS = BINS * BINS


def shown(count: int = 200, inputs: int = 6, seed: int = 0):
    """Images of three kinds in clouds of their own: with class 0, with class 1, with neither."""
    draw = torch.Generator().manual_seed(seed)
    kinds = torch.randint(3, (count,), generator=draw)
    centers = 2 * torch.randn(3, inputs, generator=draw)
    features = centers[kinds] + torch.randn(count, inputs, generator=draw) @ torch.randn(inputs, inputs, generator=draw)
    return features.repeat_interleave(PARTS, dim=1), torch.stack([kinds == 0, kinds == 1], dim=1)


def learned(*parts, inputs: int = 6, classes: int = 2) -> StreamingLDA:
    posterior = StreamingLDA(inputs)
    posterior.add_step(classes)
    for part in parts:
        posterior.learn([part])
    return posterior


def test_few_images_do_not_make_it_sure_of_chance():
    """Noise with labels at random, sixteen times as many features as images: new noise is hardly told apart."""
    draw = torch.Generator().manual_seed(0)
    noise = torch.randn(16 + 200, 256 * PARTS, generator=draw)
    labels = torch.arange(16)[:, None] % 2 == torch.arange(2)
    assert learned((noise[:16], labels), inputs=256)(noise[16:]).abs().mean() < 0.5


def cov(x: torch.Tensor) -> torch.Tensor:
    return torch.cov(x.T, correction=0)


@pytest.mark.parametrize("few", [4, 8, 32])
def test_a_class_of_few_images_is_seen_as_often_as_it_is_rejected(few):
    """Two clouds of 64 features, 600 images in one and few in the other; mean over draws of the few."""
    draw = torch.Generator().manual_seed(0)

    def images(center: float, count: int) -> torch.Tensor:
        x = 5 + center + torch.randn(count, 64, generator=draw)  # roots of their squares are these again
        return x.square().repeat_interleave(PARTS, dim=1)

    many, labels = images(0.0, 600), torch.arange(600 + few)[:, None] >= 600
    seen, rejected = [], []
    for _ in range(30):
        posterior = learned((torch.cat([many, images(0.4, few)]), labels), inputs=64, classes=1)
        seen.append((posterior(images(0.4, 200)) > 0).float().mean())
        rejected.append((posterior(images(0.0, 200)) < 0).float().mean())
    assert torch.stack(seen).mean() > 0.75
    assert abs(torch.stack(seen).mean() - torch.stack(rejected).mean()) < 0.1


def test_each_class_has_the_linear_discriminant_of_the_textbook_on_roots():
    pooled, labels = shown()
    means = pooled[:, ::PARTS].double()
    x = means.sign() * means.abs().sqrt()
    said = learned((pooled, labels))(pooled)
    for one in range(2):
        there = labels[:, one]
        means = [x[rows].mean(0) for rows in (there, ~there)]
        spread = torch.cat([x[rows] - mean for rows, mean in zip((there, ~there), means, strict=True)])
        shrunk = SHRINKAGE * x.shape[1] / len(x) * torch.diag(x.var(0, unbiased=False))
        within = spread.T @ spread / len(x) + shrunk
        weight = torch.linalg.solve(within, means[0] - means[1])
        effective = torch.trace(torch.linalg.solve(cov(x) + shrunk, cov(x)))
        chance = effective / 2 * (1 / there.sum() - 1 / (~there).sum())
        expected = (x - (means[0] + means[1]) / 2) @ weight + chance
        assert torch.allclose(said[:, one].double(), expected, atol=1e-3)
        assert ((said[:, one] > 0) == there).float().mean() > 0.85


def test_it_does_not_matter_when_an_image_was_shown():
    pooled, labels = shown()
    at_once, in_parts = learned((pooled, labels)), StreamingLDA(6)
    in_parts.add_step(2)
    in_parts.learn([(pooled[:30], labels[:30]), (pooled[30:120], labels[30:120])])
    in_parts.learn([(pooled[120:], labels[120:])])
    assert torch.allclose(in_parts(pooled), at_once(pooled), atol=1e-4)


def test_a_class_that_comes_later_has_the_images_before_it_as_images_without_it():
    pooled, labels = shown()
    first, second = labels[:, 1].logical_not(), labels[:, 1]
    grown = learned((pooled[first], labels[first, :1]), classes=1)
    grown.add_step(1)
    grown.learn([(pooled[second], labels[second])])
    assert grown.sizes == [1, 1]
    assert torch.allclose(grown(pooled), learned((pooled, labels))(pooled), atol=1e-4)


@pytest.mark.parametrize("everywhere", [True, False])
def test_of_a_class_that_no_image_had_or_each_it_says_nothing(everywhere):
    pooled, labels = shown()
    labels = labels.clone()
    labels[:, 1] = everywhere
    said = learned((pooled, labels))(pooled)
    assert torch.equal(said[:, 1], torch.zeros(len(pooled)))
    assert said[:, 0].isfinite().all()


def test_a_feature_that_never_changes_and_few_images_do_no_harm():
    pooled, labels = shown(count=4, inputs=30)
    pooled[:, :PARTS] = 3.0
    said = learned((pooled, labels), inputs=30)(pooled)
    assert said.isfinite().all()


def test_mixed_precision_does_not_reach_it():
    pooled, labels = shown()
    posterior = learned((pooled + 100, labels))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(posterior(pooled + 100), learned((pooled + 100, labels))(pooled + 100))
