"""Counts of (true class, predicted class) over pixels: the one thing that every IoU is computed from."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ipseg.scenario import IGNORE


class ConfusionMatrix:
    """An int64 matrix of pixel counts: rows are the truth, columns the prediction.

    >>> confusion = ConfusionMatrix(2)
    >>> confusion.update(torch.tensor([0, 0, 1, 255]), torch.tensor([0, 1, 1, 1]))
    >>> confusion.counts.tolist()
    [[1, 1], [0, 1]]
    """

    def __init__(self, classes: int, device: torch.device | str = "cpu") -> None:
        if not 1 <= classes <= IGNORE:
            raise ValueError(f"classes is {classes}; it must be between 1 and {IGNORE}, background included.")
        self.classes = classes
        self.matrix = torch.zeros(classes, classes, dtype=torch.int64, device=device)

    def update(self, truth: Tensor, prediction: Tensor) -> None:
        """Count the pixels of two label maps of one shape, but those whose truth is 255."""
        if truth.shape != prediction.shape:
            raise ValueError(
                f"truth has shape {tuple(truth.shape)}, prediction {tuple(prediction.shape)}; both must agree."
            )
        if truth.is_floating_point() or prediction.is_floating_point():
            raise ValueError(f"labels must be whole numbers; truth is {truth.dtype}, prediction {prediction.dtype}.")
        counted = truth != IGNORE
        rows, columns = (labels[counted].to(self.matrix.device, torch.int64) for labels in (truth, prediction))
        for name, labels in (("truth", rows), ("prediction", columns)):  # one too large would count in the next row
            if labels.numel() and (int(labels.min()) < 0 or int(labels.max()) >= self.classes):
                held = f"{int(labels.min())} to {int(labels.max())}"
                raise ValueError(f"{name} holds labels {held}; valid: 0 to {self.classes - 1}.")
        pairs = torch.bincount(rows * self.classes + columns, minlength=self.classes**2)
        self.matrix += pairs.view(self.classes, self.classes)

    def merge(self, other: ConfusionMatrix) -> None:
        if other.classes != self.classes:
            raise ValueError(f"a matrix of {other.classes} classes cannot be added to one of {self.classes}.")
        self.matrix += other.matrix.to(self.matrix.device)

    @property
    def counts(self) -> NDArray[np.int64]:
        counts: NDArray[np.int64] = self.matrix.cpu().numpy().copy()
        return counts
