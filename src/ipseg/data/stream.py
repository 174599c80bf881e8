"""Batches as a pure function of (seed, step, iteration): a resumed run sees the same ones, no random state is saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from ipseg.data.augment import NO_AUGMENT, AugmentParams, CropTransform, Size, place, random_crop, unchanged, whole
from ipseg.data.batch import Batch, BatchPlan, Sample, StepBatch
from ipseg.data.loading import KeptPictures, read_ahead, resident
from ipseg.data.memory import ReplayMemory
from ipseg.data.packed import pack
from ipseg.data.step_dataset import StepDataset

AHEAD = 2
"""Batches whose pictures are read before they are due. One would do if all took equally long."""

Lay = Callable[[AugmentParams, Size, Size], CropTransform]


@dataclass(frozen=True)
class Share:
    """One process's part of every batch: each `of`-th picture, beginning with number `rank`."""

    rank: int = 0
    of: int = 1

    def __call__(self, count: int) -> range:
        """Which of so many pictures."""
        return range(self.rank, count, self.of)


EVERYTHING = Share()


class BatchStream:
    """The batches of one step.

    Current pictures come from one random order of the step's pictures after another; pictures from memory are drawn
    anew for each batch. `keep` bytes of pictures stay in memory, on a GPU where all fit, and `workers` threads read
    ahead; neither changes a batch, and the shares of several processes make up the batch of one.
    """

    def __init__(
        self,
        view: StepDataset,
        memory: ReplayMemory,
        plan: BatchPlan,
        *,
        crop: Size,
        scales: tuple[float, float],
        flip: bool,
        seed: int,
        device: torch.device,
        keep: float = 0,
        workers: int = 0,
        share: Share = EVERYTHING,
    ) -> None:
        self.view, self.memory, self.plan, self.share = view, memory, plan, share
        self.crop, self.scales, self.flip, self.seed, self.device = crop, scales, flip, seed, device
        self.workers = workers
        self._kept = KeptPictures(view, keep)
        self._pile = resident(self._read, len(view) + len(memory), len(view.step.seen), keep, device)
        self._orders: dict[int, list[int]] = {}

    def __getitem__(self, iteration: int) -> StepBatch:
        return self._make(iteration, map(self._picture, self._visits(range(iteration, iteration + 1))))

    @contextmanager
    def batches(self, iterations: range, *, in_turn: bool = False) -> Iterator[Iterator[StepBatch]]:
        """The batches of these iterations, one after the other, their pictures read ahead inside the block.

        in_turn: whole pictures from memory come one after the other, all equally often, instead of being drawn.
        """
        visits = () if self._pile is not None else self._visits(iterations)
        count = len(self.share(self.plan.num_new))
        with read_ahead(self._picture, visits, workers=self.workers, ahead=AHEAD * count) as pictures:
            yield (self._make(iteration, pictures, in_turn=in_turn) for iteration in iterations)

    def one_pass(self) -> Iterator[StepBatch]:
        """Every picture of the step, laid as in training; where batches hold whole remembered ones, all of these too.

        Made when asked for, and the same whenever a run goes on.
        """
        plan, count = self.plan, -(-len(self.view) // self.plan.num_new)
        if plan.num_replay_images:
            count = max(count, -(-len(self.memory) // plan.num_replay_images))
        with self.batches(range(count), in_turn=True) as batches:
            yield from batches

    def pictures(self) -> Iterator[StepBatch]:
        """Every picture of the step once, whole and unscaled where the canvas has room: our share of them."""
        rows, size = self.share(len(self.view)), len(self.share(self.plan.num_new)) or 1
        visits = () if self._pile is not None else rows
        with read_ahead(self._picture, visits, workers=self.workers, ahead=AHEAD * size) as pictures:
            for some in (rows[start : start + size] for start in range(0, len(rows), size)):
                yield StepBatch(self._lay(unchanged, some, [NO_AUGMENT] * len(some), pictures), len(some))

    def _picture(self, row: int) -> Sample:
        """The pictures of the view, and after them those of the memory."""
        return self._kept.sample(row) if row < len(self.view) else self.memory.sample(row - len(self.view))

    def _read(self, row: int) -> Sample:
        """The same, but nothing of the view is kept: what has gone to the GPU is not needed here."""
        return self.view.sample(row) if row < len(self.view) else self._picture(row)

    def _make(self, iteration: int, current: Iterator[Sample], *, in_turn: bool = False) -> StepBatch:
        """Everything random is drawn for the whole batch, in one order, whichever share of it is wanted."""
        rng, plan, share = np.random.default_rng([self.seed, self.view.step.index, iteration]), self.plan, self.share
        own = [*share(plan.num_new + plan.num_replayed)]  # dealt out in turn: no process stays without a picture
        rows = [*self._visits(range(iteration, iteration + 1), EVERYTHING), *self._remember(rng, plan.num_replayed)]
        chances = [AugmentParams.draw(rng, self.scales, flip=self.flip) for _ in rows]
        crops = self._lay(random_crop, [rows[i] for i in own], [chances[i] for i in own], current)
        more = plan.num_replay_images
        rows = self._in_turn(iteration, more) if in_turn else self._remember(rng, more)
        scales = self.scales if plan.crop_replay_images else (min(self.scales[0], 1.0), 1.0)
        chances, own = [AugmentParams.draw(rng, scales, flip=self.flip) for _ in rows], [*share(more)]
        lay = random_crop if plan.crop_replay_images else whole
        wholes = self._lay(lay, [rows[i] for i in own], [chances[i] for i in own], current) if own else None
        return StepBatch(crops, len(share(plan.num_new)), wholes, len(share(plan.num_posterior)))

    def _lay(self, lay: Lay, rows: Sequence[int], chances: Sequence[AugmentParams], current: Iterator[Sample]) -> Batch:
        pile, at = self._pile, rows
        if pile is None:
            shown = [next(current) if row < len(self.view) else self._picture(row) for row in rows]
            pile, at = pack(shown, len(self.view.step.seen), self.device), range(len(rows))
        placements = [lay(chance, pile.sizes[row], self.crop) for chance, row in zip(chances, at, strict=True)]
        return place(pile, at, placements, self.crop)

    def _visits(self, iterations: range, share: Share | None = None) -> Iterator[int]:
        """Which pictures of the view these iterations show as current ones: our share, if not told otherwise."""
        count, share = self.plan.num_new, share or self.share
        return (self._visit(iteration * count + i) for iteration in iterations for i in share(count))

    def _visit(self, visit: int) -> int:
        """Which picture of the view the visit-th visit goes to."""
        epoch, place_in_epoch = divmod(visit, len(self.view))
        if epoch not in self._orders:
            rng = np.random.default_rng([self.seed, self.view.step.index, 1 << 31, epoch])
            self._orders = {known: order for known, order in self._orders.items() if known == epoch - 1}
            self._orders[epoch] = rng.permutation(len(self.view)).tolist()
        return self._orders[epoch][place_in_epoch]

    def _remember(self, rng: np.random.Generator, count: int) -> list[int]:
        replace = count > len(self.memory)
        drawn = rng.choice(len(self.memory), count, replace=replace).tolist() if count else []
        return [len(self.view) + index for index in drawn]

    def _in_turn(self, iteration: int, count: int) -> list[int]:
        return [
            len(self.view) + place % len(self.memory) for place in range(iteration * count, (iteration + 1) * count)
        ]
