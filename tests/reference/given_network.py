"""A network whose heads give stored logits, so that a method's own arithmetic can be compared with a reference."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from ipseg.data.batch import Batch
from ipseg.models.features import Canvas, Features
from ipseg.models.posterior import Posterior
from ipseg.scenario import Step

VECTORS = Path(__file__).parent / "vectors"


GLOBBED: set[str] = set()
"""Cases that a test asked for."""


def names(prefix: str) -> list[str]:
    """The stored cases whose names begin so; a test has to ask for every one (test_every_vector.py)."""
    found = sorted(path.stem for path in VECTORS.glob(f"{prefix}*.npz"))
    assert found, f"no stored case begins with {prefix}"
    GLOBBED.update(found)
    return found


def load(name: str) -> dict[str, torch.Tensor]:
    with np.load(VECTORS / f"{name}.npz") as arrays:
        return {key: torch.from_numpy(arrays[key]) for key in arrays.files}


def load_cases(name: str) -> list[dict[str, torch.Tensor]]:
    """The cases of one file, whose keys are c0_NAME, c1_NAME, ...; what has no number is in all of them."""
    (stem,) = (found for found in names(name) if found == name)
    arrays = load(stem)
    common = {key: value for key, value in arrays.items() if not re.match(r"c\d+_", key)}
    count = int(common.pop("cases"))
    own = (
        {key.partition("_")[2]: each for key, each in arrays.items() if key.startswith(f"c{i}_")} for i in range(count)
    )
    return [common | each for each in own]


def assert_close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Within 1e-5 of the largest value."""
    assert ours.shape == theirs.shape
    torch.testing.assert_close(ours.float(), theirs.float(), rtol=0, atol=1e-5 * float(theirs.abs().max()))


class GivenHead(nn.Module):
    """One row of logits an image; the decoder's output carries the images' numbers."""

    decoder = None

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits.clone())

    def forward(self, decoded: torch.Tensor, _stages: object) -> torch.Tensor:
        return self.logits[decoded[:, 0, 0, 0].long()]


class GivenPosterior(Posterior):
    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__(1, 1, 0.0)
        self.logits = nn.Parameter(logits.clone())

    def forward(self, pooled: torch.Tensor) -> torch.Tensor:
        return self.logits[pooled[:, 0].long()]


class GivenEncoder(nn.Module):
    """Passes the images' numbers on."""

    def __init__(self, size: tuple[int, int]) -> None:
        super().__init__()
        self.size = size

    def forward(self, images: torch.Tensor, boxes: torch.Tensor | None = None, decoded: int | None = None) -> Features:
        rows = images[:, :1, :1, :1]
        boxes = torch.tensor([0.0, 0.0, *self.size]).expand(len(images), 4)
        return Features((), rows, rows, rows[:decoded], rows[:, :, 0, 0], Canvas(boxes, self.size, self.size))


class GivenNetwork(nn.Module):
    def __init__(
        self,
        permanent: torch.Tensor,
        heads: Sequence[torch.Tensor],
        posterior: torch.Tensor | None,
        size: Sequence[int],
    ) -> None:
        super().__init__()
        self.permanent = GivenHead(permanent)
        self.temporary = nn.ModuleList(GivenHead(logits) for logits in heads)
        self.posterior = None if posterior is None else GivenPosterior(posterior)
        self.encoder = GivenEncoder((int(size[0]), int(size[1])))


def numbered_images(count: int, size: Sequence[int]) -> torch.Tensor:
    """Images that carry their number, by which a given network knows them."""
    images = torch.zeros(count, 3, *size)
    images[:, 0, 0, 0] = torch.arange(count)
    return images


def numbered_batch(labels: torch.Tensor, salient: torch.Tensor, classes: int) -> Batch:
    count, *size = labels.shape
    boxes = torch.tensor([0.0, 0.0, *map(float, size)]).expand(count, 4)
    stored = torch.zeros(count, classes, dtype=torch.bool)
    return Batch(numbered_images(count, size), boxes, labels, salient.bool(), stored)


def step_of(sizes: Sequence[int], index: int) -> Step:
    every = tuple(f"c{i}" for i in range(sum(sizes)))
    old = sum(sizes[:index])
    return Step(index, every[old : old + sizes[index]], every[:old], ())
