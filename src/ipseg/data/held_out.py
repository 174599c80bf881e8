"""A fixed part of the training pictures to choose settings on, so that the validation pictures stay unseen."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace

from ipseg.data.source import Image, Mask, Saliency, Source, Split
from ipseg.errors import UserError


class Part:
    """Some pictures of a split."""

    def __init__(self, whole: Split, indices: Sequence[int]) -> None:
        self.whole, self.indices = whole, indices
        self.names: Sequence[str] = [whole.names[index] for index in indices]

    def image(self, index: int) -> Image:
        """The picture."""
        return self.whole.image(self.indices[index])

    def mask(self, index: int) -> Mask:
        """Its classes."""
        return self.whole.mask(self.indices[index])

    def saliency(self, index: int) -> Saliency:
        """What stands out."""
        return self.whole.saliency(self.indices[index])

    def presence(self) -> list[frozenset[int]]:
        """Those of the whole split, once more."""
        found = self.whole.presence()
        return [found[index] for index in self.indices]


def hold_out(source: Source, share: float) -> Source:
    """The data set without its validation pictures: a share of the training pictures is measured on, the rest learned.

    Which ones follows from their names alone, so they are the same in every run, whatever its seed.
    """
    train = source.train
    chosen = [index for index, name in enumerate(train.names) if _place(name) < share]
    kept = [index for index, name in enumerate(train.names) if _place(name) >= share]
    if not chosen or not kept:
        raise UserError(
            f"evaluation.held_out is {share}, but of {len(train.names)} training pictures that leaves {len(kept)} to "
            f"learn from and {len(chosen)} to measure on. Choose another share."
        )
    return replace(source, train=Part(train, kept), val=Part(train, chosen))


def _place(name: str) -> float:
    """Where a name falls between 0 and 1: anywhere, but always there."""
    return zlib.crc32(name.encode()) / 2**32
