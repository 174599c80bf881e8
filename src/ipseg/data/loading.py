"""Pictures on their way to batches: decoded once and kept while they fit in memory, read ahead by threads."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from ipseg.data.batch import Sample
from ipseg.data.packed import PackedImages, cat, pack
from ipseg.data.step_dataset import StepDataset

T = TypeVar("T")
R = TypeVar("R")
GIGABYTE = 1 << 30
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where Linux says how much memory a container may use, in its two versions."""


@dataclass(frozen=True)
class _Packed:
    """A picture at rest, its saliency map with one bit a pixel: with a byte VOC would not fit in 8 GB."""

    picture: Sample
    salient: NDArray[np.uint8]

    def unpack(self) -> Sample:
        shape = self.picture.labels.shape
        bits = np.unpackbits(self.salient, count=shape[0] * shape[1])
        return replace(self.picture, salient=bits.view(bool).reshape(shape))


class KeptPictures:
    """The pictures of a view. What fits in a limit is read once; the others are read whenever they are asked for.

    Any thread may ask.
    """

    def __init__(self, view: StepDataset, limit: float) -> None:
        self.view = view
        self.left = limit
        """Bytes that may still be kept."""
        self._kept: dict[int, _Packed] = {}
        self._lock = threading.Lock()

    def sample(self, position: int) -> Sample:
        """The picture at a position of the view."""
        kept = self._kept.get(position)
        if kept is not None:
            return kept.unpack()
        picture = self.view.sample(position)
        size = _size(picture)
        with self._lock:
            if position in self._kept or size > self.left:
                return picture
            self.left -= size
            nothing = np.empty(0, dtype=bool)
            self._kept[position] = _Packed(replace(picture, salient=nothing), np.packbits(picture.salient))
        return picture


def _size(picture: Sample) -> int:
    full = 0 if picture.full is None else picture.full.nbytes
    return picture.image.nbytes + picture.labels.nbytes + -(-picture.salient.size // 8) + full


def room(gigabytes: float) -> float:
    """Bytes for pictures: as many as wished, but at most half of the memory: a run that fills it is killed.

    Processes that torchrun has started on this machine share them: over the epochs each sees every picture.
    """
    return min(gigabytes * GIGABYTE, _memory() / 2) / int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def _memory() -> float:
    """Bytes of the machine, or of the container on it; no bound where the system does not say."""
    found = [float("inf")]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for limit in map(Path, LIMITS):
        text = limit.read_text().strip() if limit.is_file() else ""
        found += [float(text)] if text.isdigit() else []  # "max" where there is none
    return min(found)


CHUNK = 256
"""Pictures that go to the device together."""
READERS = 4
"""Threads that read them. Half of a picture's time holds Python's lock, so that more threads only wait for each other:
1262 photographs took 3.3 seconds with 16 threads and 1.7 with 4, on two cores."""


def resident(
    read: Callable[[int], Sample], count: int, classes: int, limit: float, device: torch.device
) -> PackedImages | None:
    """All pictures on the GPU if they fit; none on the CPU, which has its pictures at hand.

    They may take `limit` bytes, and half of what is free on the device.
    """
    if device.type != "cuda" or limit == 0:
        return None
    limit = min(limit, torch.cuda.mem_get_info(device)[0] / 2)
    piles: list[PackedImages] = []
    with read_ahead(read, range(count), workers=READERS, ahead=2 * READERS) as pictures:
        while chunk := list(islice(pictures, CHUNK)):
            piles.append(pack(chunk, classes, device))
            if sum(pile.bytes for pile in piles) / sum(map(len, piles)) * count > limit:
                return None
    return cat(piles)


@contextmanager
def read_ahead(read: Callable[[T], R], items: Iterable[T], *, workers: int, ahead: int) -> Iterator[Iterator[R]]:
    """What `read` gives for each item, in their order, while threads read up to `ahead` items further.

    Threads, for decoding a picture leaves Python's lock to others, and what they read need not be sent. An error is
    raised where its item is due, as without workers. No thread outlives the block.
    """
    if workers == 0:
        yield map(read, items)
        return
    pool = ThreadPoolExecutor(workers, thread_name_prefix="ipseg-reader")
    try:
        yield _in_order(pool, read, items, ahead)
    finally:
        pool.shutdown(cancel_futures=True)


def _in_order(pool: ThreadPoolExecutor, read: Callable[[T], R], items: Iterable[T], ahead: int) -> Iterator[R]:
    waiting: deque[Future[R]] = deque()
    for item in items:
        waiting.append(pool.submit(read, item))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
