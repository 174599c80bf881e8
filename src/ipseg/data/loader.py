"""From rows to batches: samples are read, kept while they fit in memory, and transformed on the training device."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import tee
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from ipseg.data.batch import BatchPlan, Sample, StepBatch
from ipseg.data.memory import ReplayMemory
from ipseg.data.sampler import ALONE, BatchRows, Shard, StepSampler
from ipseg.data.step_dataset import StepDataset
from ipseg.data.transforms import PackedImages, Size, apply_transform, cat, pack

T = TypeVar("T")
R = TypeVar("R")

AHEAD = 2
"""Batches whose images are read before they are due. One would do if all took equally long."""
CHUNK = 64
"""Images that go to the device together."""
PRELOAD_WORKERS = 4
"""Threads that read them. Half of an image's time holds Python's lock, so that more threads only wait for each other:
1262 photographs took 3.3 seconds with 16 threads and 1.7 with 4, on two cores."""
GIGABYTE = 1 << 30
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where Linux says how much memory a container may use, in its two versions."""


class BatchLoader:
    """The batches of one step: sampler -> samples -> transform on the device.

    `cache_bytes` of samples stay in memory, on a GPU if all fit; `workers` threads read ahead. Neither changes a batch.
    """

    def __init__(
        self,
        dataset: StepDataset,
        memory: ReplayMemory,
        plan: BatchPlan,
        *,
        crop: Size,
        scales: tuple[float, float],
        flip: bool,
        seed: int,
        device: torch.device,
        cache_bytes: float = 0,
        workers: int = 0,
        shard: Shard = ALONE,
    ) -> None:
        self.crop, self.workers = crop, workers
        self.samples = StepSamples(dataset, memory, device, cache_bytes)
        self.sampler = StepSampler(
            plan=plan,
            step=dataset.step.index,
            num_images=len(dataset),
            memory_size=len(memory),
            seed=seed,
            scales=scales,
            flip=flip,
            shard=shard,
        )

    def __getitem__(self, iteration: int) -> StepBatch:
        with self._load([self.sampler[iteration]]) as batches:
            return next(batches)

    @contextmanager
    def batches(self, iterations: range) -> Iterator[Iterator[StepBatch]]:
        """The batches of these iterations; images are read ahead inside the block."""
        with self._load(map(self.sampler.__getitem__, iterations)) as batches:
            yield batches

    def one_pass(self, number: int = 0) -> Iterator[StepBatch]:
        """Every image of the step, augmented as in training: the same in a resumed run."""
        with self._load(self.sampler.one_pass(number)) as batches:
            yield from batches

    def unaugmented(self) -> Iterator[StepBatch]:
        """This process's images of the step once, uncropped, shrunk only if larger than the crop."""
        with self._load(self.sampler.unaugmented()) as batches:
            yield from batches

    @contextmanager
    def _load(self, rows: Iterable[BatchRows]) -> Iterator[Iterator[StepBatch]]:
        if self.samples.preloaded is not None:
            yield (self._transform(batch, self.samples.preloaded, [row for row, _ in batch.rows]) for batch in rows)
            return
        to_read, due = tee(rows)
        groups = ([row for row, _ in batch.rows] for batch in to_read)
        with read_ahead(self.samples.read, groups, workers=self.workers, ahead=AHEAD) as read:
            packed = ((batch, self.samples.pack(samples)) for batch, samples in zip(due, read, strict=True))
            yield (self._transform(batch, images, range(len(images))) for batch, images in packed)

    def _transform(self, batch: BatchRows, images: PackedImages, positions: Sequence[int]) -> StepBatch:
        """`positions`: where the batch's rows are among the packed images."""
        chosen = list(zip(positions, batch.rows, strict=True))
        transforms = [params.transform(images.sizes[at], self.crop) for at, (_, params) in chosen]
        count = len(batch.inputs)
        inputs = apply_transform(images, positions[:count], transforms[:count], self.crop)
        replay_images = None
        if batch.replay_images:
            replay_images = apply_transform(images, positions[count:], transforms[count:], self.crop)
        return StepBatch(inputs, batch.num_new, replay_images, batch.num_posterior)


class Passes:
    """Passes over a step: each iteration over this is the next one."""

    def __init__(self, loader: BatchLoader) -> None:
        self.loader, self._begun = loader, 0

    def __iter__(self) -> Iterator[StepBatch]:
        self._begun += 1
        return self.loader.one_pass(self._begun - 1)


class StepSamples:
    """The samples of a step's dataset and, numbered after them, of the memory.

    Those of the dataset that fit into `cache_bytes` are read once, the others whenever any thread asks for them.
    """

    def __init__(
        self, dataset: StepDataset, memory: ReplayMemory, device: torch.device, cache_bytes: float = 0
    ) -> None:
        self.dataset, self.memory, self.device = dataset, memory, device
        self.bytes_left = cache_bytes
        self._kept: dict[int, tuple[Sample, NDArray[np.uint8]]] = {}
        """With the saliency map apart, one bit a pixel: with a byte VOC would not fit in 8 GB."""
        self._lock = threading.Lock()
        self.preloaded = self._preload(cache_bytes) if device.type == "cuda" and cache_bytes else None

    def read(self, row: int) -> Sample:
        """From the cache, the files or the memory."""
        if row >= len(self.dataset):
            return self._read(row)  # the memory keeps its own
        if row in self._kept:
            sample, bits = self._kept[row]
            salient = np.unpackbits(bits, count=sample.labels.size).view(bool)
            return replace(sample, salient=salient.reshape(sample.labels.shape))
        sample = self._read(row)
        bits = np.packbits(sample.salient)
        size = sample.image.nbytes + sum(pixels.nbytes for pixels in sample.maps.values())
        size += bits.nbytes - sample.salient.nbytes
        with self._lock:
            if row not in self._kept and size <= self.bytes_left:
                self.bytes_left -= size
                self._kept[row] = replace(sample, salient=np.empty(0, dtype=bool)), bits
        return sample

    def pack(self, samples: Sequence[Sample]) -> PackedImages:
        """On the device."""
        return pack(samples, len(self.dataset.step.seen), self.device)

    def _read(self, row: int) -> Sample:
        size = len(self.dataset)
        return self.dataset.sample(row) if row < size else self.memory.sample(row - size)

    def _preload(self, limit: float) -> PackedImages | None:
        """All samples on the GPU if they fit into `limit` bytes and half of what is free there."""
        limit = min(limit, torch.cuda.mem_get_info(self.device)[0] / 2)
        count = len(self.dataset) + len(self.memory)
        packs: list[PackedImages] = []
        chunks = [range(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK)]
        with read_ahead(self._read, chunks, workers=PRELOAD_WORKERS, ahead=1) as groups:  # not kept in memory as well
            for samples in groups:
                packs.append(self.pack(samples))
                if sum(each.bytes for each in packs) / sum(map(len, packs)) * count > limit:
                    return None
        return cat(packs)


def cache_limit(gigabytes: float) -> float:
    """Bytes for samples: as many as wished, but at most half of the memory: a run that fills it is killed.

    Processes that torchrun has started on this machine share them: over the epochs each sees every image.
    """
    limits = [float("inf")]  # no bound where the system does not say
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for limit in map(Path, LIMITS):
        text = limit.read_text().strip() if limit.is_file() else ""
        limits += [float(text)] if text.isdigit() else []  # "max" where there is none
    return min(gigabytes * GIGABYTE, min(limits) / 2) / int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


@contextmanager
def read_ahead(
    read: Callable[[T], R], groups: Iterable[Sequence[T]], *, workers: int, ahead: int
) -> Iterator[Iterator[list[R]]]:
    """`read` of each item, group after group, while threads read up to `ahead` groups further.

    Threads: decoding an image releases Python's lock, and results need not be sent between processes. An error is
    raised where its group is due, as without workers. No thread outlives the block.
    """
    if workers == 0:
        yield ([read(item) for item in group] for group in groups)
        return
    pool = ThreadPoolExecutor(workers, thread_name_prefix="ipseg-reader")

    def in_order() -> Iterator[list[R]]:
        waiting: deque[list[Future[R]]] = deque()
        for group in groups:
            waiting.append([pool.submit(read, item) for item in group])
            if len(waiting) > ahead:
                yield [future.result() for future in waiting.popleft()]
        while waiting:
            yield [future.result() for future in waiting.popleft()]

    try:
        yield in_order()
    finally:
        pool.shutdown(cancel_futures=True)
