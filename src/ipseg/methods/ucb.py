"""UCB (IEEE TIP 2025): pixels weigh by the certainty of the old model and by how rare their class is."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ipseg.methods.prototypes import class_masks
from ipseg.methods.pseudo_labels import entropy
from ipseg.models.reduce import all_reduce_max, all_reduce_sum
from ipseg.scenario import IGNORE, Step


class PixelWeights(nn.Module):
    """The weights of a step's batches. The classes' frequencies are a state, kept in checkpoints of the step.

    least_certain: from this entropy on a pixel of an old class has no weight. scaled: entropies are stretched to 0 to 1
    over the batch.
    """

    def __init__(self, step: Step, device: torch.device, *, least_certain: float, scaled: bool) -> None:
        super().__init__()
        self.old, self.least_certain, self.scaled = 1 + len(step.old), least_certain, scaled
        self.register_buffer("frequency", torch.zeros(1 + len(step.seen), device=device))
        self.register_buffer("images", torch.zeros((), device=device))

    @torch.no_grad()
    def forward(self, labels: Tensor, old_logits: Tensor, counted: Tensor) -> Tensor:
        """(B, H, W), with a mean of 1 over counted pixels.

        labels: after pseudo-labels, background 0; 255 is background. old_logits: the old model's.
        """
        frequency = self.get_buffer("frequency")
        classes = class_masks(labels.where(labels != IGNORE, 0), range(len(frequency))) * counted[:, None]
        self._count(classes)
        uncertain = entropy(old_logits)
        if self.scaled:
            highest = all_reduce_max(uncertain.where(counted, 0).amax())
            lowest = -all_reduce_max(-uncertain.where(counted, 1).amin())
            uncertain = (uncertain - lowest) / (highest - lowest).clamp(min=1e-8)
        new = classes[:, self.old :].sum(1) > 0
        certain = certainty(uncertain.where(counted & ~new, 0), self.least_certain)
        balance = class_balance(frequency, self.old)
        weights = certain * (classes * balance[:, None, None]).sum(1)
        pixels, total = all_reduce_sum(torch.stack([classes.sum(), weights.sum()]))
        normalized: Tensor = weights * (pixels / total.clamp(min=1e-8))
        return normalized

    def _count(self, classes: Tensor) -> None:
        """The running mean of the batches' frequencies, each weighed by its images."""
        frequency, images = self.get_buffer("frequency"), self.get_buffer("images")
        pixels = all_reduce_sum(classes.sum((0, 2, 3)))
        more = all_reduce_sum(images.new_tensor(len(classes)))
        frequency += (pixels / pixels.sum().clamp(min=1) - frequency) * more / (images + more)
        images += more


def certainty(uncertain: Tensor, least: float) -> Tensor:
    """Exp of how far below `least` the entropy is, in units of it; 0 from there on."""
    return ((least - uncertain) / least).exp() * (uncertain < least)


def class_balance(frequency: Tensor, old: int) -> Tensor:
    """(classes,): the mean frequency of the classes that were met over each one's, within bounds; background 1."""
    new = len(frequency) - old
    met = (frequency > 0).sum() - 1
    balance = frequency[1:].sum() / (met * frequency)
    balance = torch.cat([torch.ones_like(balance[:1]), balance[1:].nan_to_num(nan=1.0)])
    return balance.clamp(min=(new / old) ** 0.5).clamp(max=(old / new) ** 0.5)
