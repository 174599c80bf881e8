"""An image posterior in closed form: linear discriminants from the moments of all pictures that steps have shown.

Moments of steps add up. So what is known of old classes comes from all their pictures, not from the few that are
remembered, it is not forgotten, and no picture is kept: sums are all that is left of them.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ipseg.model.posterior import BINS
from ipseg.model.precision import unmixed
from ipseg.model.together import summed

SHRINKAGE = 2.0
"""For D features and n pictures SHRINKAGE * D / n times its own variance is added to the variance of each feature: the
fewer pictures, the surer discriminants would else be of what is chance."""


class Moments(nn.Module):
    """For every class the discriminant between pictures with it and without it, both taken for equally likely."""

    pictures: Tensor
    """How many were seen."""
    total: Tensor
    """(D,): the sum of their features."""
    products: Tensor
    """(D, D): the sum of all products of two features."""
    pictures_of: Tensor
    """(C,): how many had the class."""
    total_of: Tensor
    """(C, D): the sum of the features of these."""
    weight: Tensor
    bias: Tensor

    def __init__(self, inputs: int, shrinkage: float = SHRINKAGE) -> None:
        super().__init__()
        self.shrinkage = shrinkage
        self.sizes: list[int] = []
        """Classes of each step."""
        shapes = {"pictures": (), "total": (inputs,), "products": (inputs, inputs)}
        shapes |= {"pictures_of": (0,), "total_of": (0, inputs), "weight": (0, inputs), "bias": (0,)}
        for name, shape in shapes.items():
            self.register_buffer(name, torch.zeros(shape))

    def add_step(self, classes: int) -> None:
        """Room for the classes of a new step. Pictures of earlier steps count as pictures without them."""
        self.sizes.append(classes)
        for name in ("pictures_of", "total_of", "weight", "bias"):
            known: Tensor = getattr(self, name)
            setattr(self, name, torch.cat([known, known.new_zeros(classes, *known.shape[1:])]))

    def forward(self, pooled: Tensor) -> Tensor:
        """(B, |C_1:t|) logits, in the order of learning."""
        with unmixed(pooled):  # large numbers that nearly cancel each other
            return F.linear(_whole(pooled, self.weight), self.weight, self.bias)

    def learn(self, seen: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Add pictures, each batch as its pooled features and its labels, (B, C) bool, and draw the conclusions.

        Of several processes each shows its share.
        """
        more = [torch.zeros_like(known) for known in self._sums()]
        for pooled, labels in seen:
            with unmixed(pooled):
                x, y = _whole(pooled, self.total), labels.to(self.total)
                moments = (x.new_tensor(len(x)), x.sum(0), x.T @ x, y.sum(0), y.T @ x)
            for known, new in zip(more, moments, strict=True):
                known.add_(new)
        for known, new in zip(self._sums(), more, strict=True):
            known.add_(summed(new))
        self.weight, self.bias = (found.to(self.weight) for found in self._discriminants())

    def _sums(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        return self.pictures, self.total, self.products, self.pictures_of, self.total_of

    def _discriminants(self) -> tuple[Tensor, Tensor]:
        """(C, D) and (C,).

        With S the covariance within the two kinds of pictures, with and without a class, and d the difference of their
        means, a discriminant is d / S. S is that of all pictures less a part along d, so one solution serves all.
        """
        # not every device has double precision
        count, total, products, count_of, total_of = (known.double().cpu() for known in self._sums())
        mean, share = total / count, count_of / count
        covariance = products / count - mean[:, None] * mean
        variance = covariance.diagonal().clone()
        floor = (1e-6 * variance.mean()).clamp(min=1e-12)  # a feature may never change
        covariance.diagonal().add_(self.shrinkage * len(mean) / count * variance + floor)
        with_it = total_of / count_of[:, None].clamp(min=1)
        without = (total - total_of) / (count - count_of)[:, None].clamp(min=1)
        difference = with_it - without
        solved = torch.linalg.solve(covariance, difference.T).T
        along = share * (1 - share) * (difference * solved).sum(1)
        weight = solved / (1 - along)[:, None]
        bias = -(weight * (with_it + without) / 2).sum(1)
        told = (count_of > 0) & (count_of < count)  # of a class that no picture had, or each, nothing is known
        return weight * told[:, None], bias * told


def _whole(pooled: Tensor, like: Tensor) -> Tensor:
    """(B, D): roots of the means over the picture. Means of what a ReLU lets through are skewed, their roots less."""
    means = pooled.to(like.dtype).reshape(len(pooled), -1, BINS * BINS).mean(2)
    return means.sign() * means.abs().sqrt()
