"""An image posterior in closed form: linear discriminant analysis from sums over all images seen.

The sums of steps add up, so the discriminants of old classes come from all their images rather than the few in memory:
they are not forgotten, and no image is stored.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ipseg.models.posterior import BINS
from ipseg.models.precision import autocast_disabled
from ipseg.models.reduce import all_reduce_sum

SHRINKAGE = 2.0
"""For D features and n images SHRINKAGE * D / n times its own variance is added to the variance of each feature: the
fewer images, the more the discriminants would otherwise fit noise."""


class StreamingLDA(nn.Module):
    """For every class the discriminant between images with it and without it, both taken as equally likely."""

    images: Tensor
    """Number of images."""
    total: Tensor
    """(D,): the sum of their features."""
    products: Tensor
    """(D, D): the sum of all products of two features."""
    images_of: Tensor
    """(C,): images with the class."""
    total_of: Tensor
    """(C, D): the sum of the features of these."""
    weight: Tensor
    bias: Tensor

    def __init__(self, inputs: int, shrinkage: float = SHRINKAGE) -> None:
        super().__init__()
        self.shrinkage = shrinkage
        self.sizes: list[int] = []
        """Classes of each step."""
        shapes = {"images": (), "total": (inputs,), "products": (inputs, inputs)}
        shapes |= {"images_of": (0,), "total_of": (0, inputs), "weight": (0, inputs), "bias": (0,)}
        for name, shape in shapes.items():
            self.register_buffer(name, torch.zeros(shape))

    def add_step(self, classes: int) -> None:
        """Make room for the classes of a new step. Images of earlier steps count as images without them."""
        self.sizes.append(classes)
        for name in ("images_of", "total_of", "weight", "bias"):
            known: Tensor = getattr(self, name)
            setattr(self, name, torch.cat([known, known.new_zeros(classes, *known.shape[1:])]))

    def forward(self, pooled: Tensor) -> Tensor:
        """(B, |C_1:t|) logits, in the order of learning."""
        with autocast_disabled(pooled):  # large numbers that nearly cancel each other
            return F.linear(_whole(pooled, self.weight), self.weight, self.bias)

    def learn(self, seen: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Add images, each batch as its pooled features and its labels, (B, C) bool, and update the discriminants.

        Of several processes each shows its share.
        """
        more = [torch.zeros_like(known) for known in self._sums()]
        for pooled, labels in seen:
            with autocast_disabled(pooled):
                x, y = _whole(pooled, self.total), labels.to(self.total)
                moments = (x.new_tensor(len(x)), x.sum(0), x.T @ x, y.sum(0), y.T @ x)
            for known, new in zip(more, moments, strict=True):
                known.add_(new)
        for known, new in zip(self._sums(), more, strict=True):
            known.add_(all_reduce_sum(new))
        self.weight, self.bias = (found.to(self.weight) for found in self._discriminants())

    def _sums(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        return self.images, self.total, self.products, self.images_of, self.total_of

    def _discriminants(self) -> tuple[Tensor, Tensor]:
        """(C, D) and (C,).

        With S the covariance within the two kinds of images, with and without a class, and d the difference of their
        means, a discriminant is d / S. S is that of all images less a part along d, so one inverse serves all.

        A mean of n images is off by chance, by S / n. On average that lowers a class's logit by tr(S_shrunk^-1 S) / 2n,
        more than 10 for four images, so that their class would hardly be seen again: it is given back.
        """
        # not every device has double precision
        count, total, products, count_of, total_of = (known.double().cpu() for known in self._sums())
        mean, share = total / count, count_of / count
        covariance = products / count - mean[:, None] * mean
        variance = covariance.diagonal()
        floor = (1e-6 * variance.mean()).clamp(min=1e-12)  # a feature may never change
        shrunk = covariance + torch.diag(self.shrinkage * len(mean) / count * variance + floor)
        inverse = torch.linalg.inv(shrunk)
        images_with, images_without = count_of.clamp(min=1), (count - count_of).clamp(min=1)
        with_it, without = total_of / images_with[:, None], (total - total_of) / images_without[:, None]
        difference = with_it - without
        solved = difference @ inverse
        along = share * (1 - share) * (difference * solved).sum(1)
        weight = solved / (1 - along)[:, None]
        chance = (inverse * covariance).sum() / 2 * (1 / images_with - 1 / images_without)
        bias = chance - (weight * (with_it + without) / 2).sum(1)
        known = (count_of > 0) & (count_of < count)  # a class of no image, or of every one, has no discriminant
        return weight * known[:, None], bias * known


def _whole(pooled: Tensor, like: Tensor) -> Tensor:
    """(B, D): roots of the means over the image. Means of what a ReLU lets through are skewed, their roots less."""
    means = pooled.to(like.dtype).reshape(len(pooled), -1, BINS * BINS).mean(2)
    return means.sign() * means.abs().sqrt()
