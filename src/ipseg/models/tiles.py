"""Images too large to be seen at once: the network sees them tile by tile, with context around each tile.

Two things depend on the whole image: ASPP's image pooling and the posterior's. Both are means of the backbone's last
stage, so a first pass over all tiles adds them up, and in a second pass every tile is given them. The rest is local,
but for what lies farther away than the context.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from ipseg.models.boxes import full_boxes, inside, pool_weights, weighted
from ipseg.models.features import Tile, Window, cells_of
from ipseg.models.freezing import set_mode
from ipseg.models.network import Encoder, pad_to_multiple
from ipseg.models.posterior import BINS

CONTEXT = 96
"""Pixels that the backbone sees around what the decoder looks at."""
POOLING = 384
"""Pixels around a tile in the first pass: no ASPP looks there, but the posterior feels the mean of all cells."""
POOLED = 704
"""Of a tile in the first pass, without that."""
MARGIN = 64
"""Of these, the pixels that the heads see: three convolutions, at strides 16, 8 and 4, look no farther."""

T = TypeVar("T")
Place = tuple[slice, slice]
"""Rows and columns."""


@dataclass(frozen=True)
class Span:
    """A tile along one axis, in pixels of the image; first to last: with its context."""

    start: int
    end: int
    first: int
    last: int

    def with_margin(self, margin: int, multiple: int) -> tuple[int, int]:
        """The tile and a margin, in pixels of what is seen; it may end in the padding."""
        end = min(self.end + margin, self.last)
        return max(self.start - margin, self.first) - self.first, end + -end % multiple - self.first


def spans(length: int, side: int, context: int, grid: int) -> list[Span]:
    """An axis cut into tiles of about equal length, all at multiples of the grid."""
    side = math.ceil(length / math.ceil(length / side))
    side, context = side + -side % grid, context + -context % grid
    starts = range(0, length, side)
    return [Span(at, min(at + side, length), max(at - context, 0), min(at + side + context, length)) for at in starts]


def grid_of(encoder: Encoder) -> int:
    """Tiles begin at its multiples, so that strides and windows of attention (Swin) lie as in the whole image."""
    found = {getattr(module, "window_size", None) for module in encoder.backbone.body.modules()}
    grid: int = encoder.backbone.multiple
    return grid * math.lcm(*(side for window in found if isinstance(window, tuple) for side in window))


def context_of(encoder: Encoder) -> int:
    """Pixels around a tile that are seen with it: as far as ASPP looks, and some more for the backbone."""
    stride: int = encoder.backbone.body.feature_info.reduction()[-1]
    return encoder.decoder.reach * stride + CONTEXT


class Tiles:
    """One large image, cut into tiles. read: rows and columns of the image -> (1, 3, h, w) in 0-1."""

    def __init__(
        self,
        encoder: Encoder,
        read: Callable[[slice, slice], Tensor],
        size: tuple[int, int],
        side: int,
        context: int,
    ) -> None:
        self.encoder, self.read, self.size = encoder, read, size
        self.multiple, self.side, self.context = encoder.backbone.multiple, side, context
        set_mode(encoder, training=False)
        with torch.no_grad():
            self._mean, self._pooled = self._pool()

    def predictions(self, predict: Callable[[Tensor], T]) -> Iterator[tuple[T, Place, Place]]:
        """The second pass: what a method predicts of each tile, where in that the tile lies, and where in the image."""
        for rows, columns in self._cut(self.side, self.context):
            window = self._window(rows, columns, MARGIN)
            self.encoder.tile = Tile(self._mean, self._pooled, window)
            try:
                prediction = predict(self._image(rows, columns))
            finally:
                self.encoder.tile = None
            inner = (
                slice(rows.start - rows.first - window[0], rows.end - rows.first - window[0]),
                slice(columns.start - columns.first - window[1], columns.end - columns.first - window[1]),
            )
            yield prediction, inner, (slice(rows.start, rows.end), slice(columns.start, columns.end))

    def _pool(self) -> tuple[Tensor, Tensor]:
        """The first pass: the means of the last stage over the whole image. The decoder's context is not needed."""
        sums: list[Tensor] = []
        for rows, columns in self._cut(POOLED, POOLING):
            image = self._image(rows, columns)
            padded = pad_to_multiple(image, self.multiple).contiguous(memory_format=torch.channels_last)
            canvas = (padded.shape[-2], padded.shape[-1])
            shown = inside(full_boxes(image), canvas)
            last = self.encoder.backbone(padded, shown)[-1]
            window = self._window(rows, columns)
            maps = last, *self.encoder.posterior_maps(padded, shown, last)
            own = [each[..., *cells_of(window, canvas, each)] for each in maps]
            stride = canvas[0] // last.shape[-2]
            shares = [self._share(each, stride, rows, columns, BINS if i else 1) for i, each in enumerate(own)]
            sums = [one + more for one, more in zip(sums, shares, strict=True)] if sums else shares
        return sums[0], torch.cat([each.flatten(1) for each in sums[1:]], dim=1)

    def _share(self, features: Tensor, stride: int, rows: Span, columns: Span, bins: int) -> Tensor:
        """A tile's contribution to a mean over the whole image."""
        height, width = (length + -length % self.multiple for length in self.size)
        box = torch.tensor([[0.0, 0.0, *self.size]], device=features.device)
        down, across = pool_weights(box, (height, width), (height // stride, width // stride), bins)
        top, left = rows.start // stride, columns.start // stride
        return weighted(
            features, down[..., top : top + features.shape[-2]], across[..., left : left + features.shape[-1]]
        )

    def _cut(self, side: int, context: int) -> list[tuple[Span, Span]]:
        """Tiles of the whole image."""
        rows, columns = (spans(length, side, context, grid_of(self.encoder)) for length in self.size)
        return [(row, column) for row in rows for column in columns]

    def _image(self, rows: Span, columns: Span) -> Tensor:
        return self.read(slice(rows.first, rows.last), slice(columns.first, columns.last))

    def _window(self, rows: Span, columns: Span, margin: int = 0) -> Window:
        (top, bottom), (left, right) = (one.with_margin(margin, self.multiple) for one in (rows, columns))
        return top, left, bottom, right
