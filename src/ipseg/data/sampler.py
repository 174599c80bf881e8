"""Which images a batch shows, and how they are augmented: a pure function of seed, step and iteration.

A resumed run sees the batches of one that was never stopped, and no random state is saved.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ipseg.data.batch import BatchPlan
from ipseg.data.transforms import AugmentParams, Resize

EPOCH = 1 << 31
"""Seeds of epochs end in this and the epoch, those of batches in the iteration: the two never meet."""

Row = tuple[int, AugmentParams]
"""An image and its augmentation. Images of the step are numbered from 0, those of the memory after them."""


@dataclass(frozen=True)
class Shard:
    """One process's part of every batch: each `of`-th image, beginning with number `rank`."""

    rank: int = 0
    of: int = 1

    def __call__(self, count: int) -> range:
        """Which of so many images."""
        return range(self.rank, count, self.of)


ALONE = Shard()


@dataclass(frozen=True)
class BatchRows:
    """What one process shows in one batch; the fields are those of `StepBatch`."""

    inputs: Sequence[Row]
    num_new: int
    replay_images: Sequence[Row] = ()
    num_posterior: int = 0

    @property
    def rows(self) -> list[Row]:
        """All of them, in the order in which they are read."""
        return [*self.inputs, *self.replay_images]


@dataclass(frozen=True, kw_only=True)
class StepSampler:
    """Samples the batches of one step.

    New images follow one random order of the step's images after another; replayed images are drawn anew for each
    batch. The shards of several processes make up the batch of one: everything random is drawn for the whole batch,
    and each process keeps its part.
    """

    plan: BatchPlan
    step: int
    num_images: int
    """Images of the step."""
    memory_size: int
    seed: int
    scales: tuple[float, float]
    flip: bool
    shard: Shard = ALONE

    def one_pass(self, number: int = 0) -> Iterator[BatchRows]:
        """The first batches, until they have shown every image of the step; further passes show it other crops.

        Each begins where an order of the images begins.
        """
        start = number * (self.num_images // math.gcd(self.num_images, self.plan.num_new))
        return (self[start + iteration] for iteration in range(-(-self.num_images // self.plan.num_new)))

    def unaugmented(self) -> Iterator[BatchRows]:
        """This process's images of the step once, uncropped."""
        rows, size = self.shard(self.num_images), len(self.shard(self.plan.num_new)) or 1
        whole = AugmentParams(1.0, 0.0, 0.0, flip=False, resize="shrink")
        for start in range(0, len(rows), size):
            inputs = [(row, whole) for row in rows[start : start + size]]
            yield BatchRows(inputs, num_new=len(inputs))

    def __getitem__(self, iteration: int) -> BatchRows:
        plan, shard = self.plan, self.shard
        rng = np.random.default_rng([self.seed, self.step, iteration])
        visits = range(iteration * plan.num_new, (iteration + 1) * plan.num_new)
        shown = [self._new_image(visit) for visit in visits] + self._replayed(rng, plan.num_replayed)
        inputs = self._augmented(rng, shown, self.scales, "crop")

        shown = self._replayed(rng, plan.num_replay_images)
        if plan.crop_replay_images:
            replay_images = self._augmented(rng, shown, self.scales, "crop")
        else:  # never larger than fits
            replay_images = self._augmented(rng, shown, (min(self.scales[0], 1.0), 1.0), "full")

        # Dealt out in turn, new and replayed inputs together: no process is left without an image.
        return BatchRows(
            inputs=[inputs[i] for i in shard(len(inputs))],
            num_new=len(shard(plan.num_new)),
            replay_images=[replay_images[i] for i in shard(len(replay_images))],
            num_posterior=len(shard(plan.num_posterior)),
        )

    def _new_image(self, visit: int) -> int:
        epoch, position = divmod(visit, self.num_images)
        return int(_order(self.seed, self.step, epoch, self.num_images)[position])

    def _replayed(self, rng: np.random.Generator, count: int) -> list[int]:
        """Without replacement while the memory is large enough."""
        if not count:
            return []
        drawn = rng.choice(self.memory_size, count, replace=count > self.memory_size)
        return [self.num_images + int(index) for index in drawn]

    def _augmented(
        self, rng: np.random.Generator, rows: Sequence[int], scales: tuple[float, float], resize: Resize
    ) -> list[Row]:
        return [(row, AugmentParams.draw(rng, scales, flip=self.flip, resize=resize)) for row in rows]


@lru_cache(maxsize=2)  # a batch may lie in two epochs
def _order(seed: int, step: int, epoch: int, count: int) -> NDArray[np.int64]:
    return np.random.default_rng([seed, step, EPOCH, epoch]).permutation(count)
