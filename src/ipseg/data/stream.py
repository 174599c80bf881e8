"""Batches as a pure function of seed, step and iteration: nothing to save, so a run resumes exactly where it was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice

import numpy as np
import torch

from ipseg.data.augment import place, random_crop, whole
from ipseg.data.batch import Batch, BatchPlan, Picture, StepBatch
from ipseg.data.loading import KeptPictures, read_ahead
from ipseg.data.memory import ReplayMemory
from ipseg.data.view import StepView

AHEAD = 2
"""Batches whose pictures are read before they are due. One would do if all took equally long."""


class BatchStream:
    """The batches of one step.

    Current pictures come from one random order of the step's pictures after another; pictures from memory are drawn
    anew for each batch. `keep` bytes of current pictures stay in memory, and `workers` threads read ahead; neither
    changes a batch.
    """

    def __init__(
        self,
        view: StepView,
        memory: ReplayMemory,
        plan: BatchPlan,
        *,
        crop: tuple[int, int],
        scales: tuple[float, float],
        flip: bool,
        seed: int,
        device: torch.device,
        keep: float = 0,
        workers: int = 0,
    ) -> None:
        self.view, self.memory, self.plan = view, memory, plan
        self.crop, self.scales, self.flip, self.seed, self.device = crop, scales, flip, seed, device
        self.workers = workers
        self._current = KeptPictures(view, keep)
        self._orders: dict[int, list[int]] = {}

    def __getitem__(self, iteration: int) -> StepBatch:
        return self._make(iteration, map(self._current.picture, self._visits(range(iteration, iteration + 1))))

    @contextmanager
    def batches(self, iterations: range) -> Iterator[Iterator[StepBatch]]:
        """The batches of these iterations, one after the other, their pictures read ahead inside the block."""
        count = self.plan.current
        reading = read_ahead(self._current.picture, self._visits(iterations), workers=self.workers, ahead=AHEAD * count)
        with reading as pictures:
            yield (self._make(iteration, islice(pictures, count)) for iteration in iterations)

    def _make(self, iteration: int, current: Iterable[Picture]) -> StepBatch:
        rng = np.random.default_rng([self.seed, self.view.step.index, iteration])
        plan = self.plan
        pictures = [*current, *self._remember(rng, plan.rehearsed)]
        crops = self._lay(rng, pictures, uncropped=False)
        wholes = self._lay(rng, self._remember(rng, plan.wholes), uncropped=True) if plan.wholes else None
        return StepBatch(crops, plan.current, wholes)

    def _visits(self, iterations: range) -> Iterator[int]:
        """Which pictures of the view these iterations show as current ones."""
        count = self.plan.current
        return (self._visit(visit) for visit in range(iterations.start * count, iterations.stop * count))

    def _visit(self, visit: int) -> int:
        """Which picture of the view the visit-th visit goes to."""
        epoch, place_in_epoch = divmod(visit, len(self.view))
        if epoch not in self._orders:
            rng = np.random.default_rng([self.seed, self.view.step.index, 1 << 31, epoch])
            self._orders = {epoch: rng.permutation(len(self.view)).tolist()}
        return self._orders[epoch][place_in_epoch]

    def _remember(self, rng: np.random.Generator, count: int) -> list[Picture]:
        replace = count > len(self.memory)
        drawn = rng.choice(len(self.memory), count, replace=replace).tolist() if count else []
        return [self.memory.picture(index) for index in drawn]

    def _lay(self, rng: np.random.Generator, pictures: list[Picture], *, uncropped: bool) -> Batch:
        lay = whole if uncropped else random_crop
        placements = []
        for picture in pictures:
            height, width = picture.labels.shape
            placements.append(lay(rng, height, width, self.crop, self.scales, flip=self.flip))
        return place(pictures, placements, self.crop, len(self.view.step.seen), self.device)
