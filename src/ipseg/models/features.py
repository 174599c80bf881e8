"""The features of one pass through backbone and decoder, which all heads read."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor, nn

from ipseg.models.resize import upsample

Window = tuple[int, int, int, int]
"""Top, left, bottom and right, in pixels of a canvas."""


@dataclass(frozen=True)
class Tile:
    """Statistics of a whole image for an encoder that sees one tile of it."""

    mean: Tensor
    """(1, C, 1, 1): of the last stage, over the whole image."""
    pooled: Tensor
    """(1, D): the posterior's view of the whole image."""
    window: Window
    """The part of the tile that is used; the rest is context."""


@dataclass(frozen=True)
class Canvas:
    """Where the images of a batch lie in the padded ones."""

    boxes: Tensor
    """(B, 4): top, left, bottom, right."""
    padded: tuple[int, int]
    """Height and width with padding."""
    original: tuple[int, int]
    """Height and width as they came."""

    def upsample(self, logits: Tensor) -> Tensor:
        """Logits of a head at the size of the images."""
        return upsample(logits, self.padded)[..., : self.original[0], : self.original[1]]


@dataclass(frozen=True)
class Features:
    """Outputs of one encoder pass, for every branch."""

    stages: tuple[Tensor, ...]
    """The backbone's first three stages, finest first."""
    last: Tensor
    """Its last stage, which the decoder reads."""
    mean: Tensor
    """(B, C, 1, 1): of the last stage, over each image."""
    decoded: Tensor
    """The decoder's output."""
    pooled: Tensor
    """The image posterior's input. It may be of more images than the others."""
    canvas: Canvas
    window: tuple[slice, slice] | None = None
    """Of a tile: the rows and columns of the last stage that the other features show."""

    def __getitem__(self, rows: slice | Tensor) -> Features:
        return replace(
            self,
            stages=tuple(stage[rows] for stage in self.stages),
            **{name: getattr(self, name)[rows] for name in ("last", "mean", "decoded", "pooled")},
            canvas=replace(self.canvas, boxes=self.canvas.boxes[rows]),
        )

    def within(self, window: Window) -> Features:
        """The features of a part of the image. The last stage stays whole: decoding looks far around."""
        top, left, bottom, right = window
        padded, (height, width) = self.canvas.padded, self.canvas.original
        size = (min(bottom, height) - top, min(right, width) - left)
        boxes = self.canvas.boxes.new_tensor([[0, 0, *size]]).expand(len(self.canvas.boxes), 4)
        cells = cells_of(window, padded, self.decoded)
        return replace(
            self,
            stages=tuple(stage[..., *cells_of(window, padded, stage)] for stage in self.stages),
            decoded=self.decoded[..., *cells],
            canvas=Canvas(boxes, (bottom - top, right - left), size),
            window=cells,
        )

    def decode(self, decoder: nn.Module) -> Tensor:
        """The output of another decoder than the encoder's."""
        decoded: Tensor = decoder(self.last, self.mean)
        return decoded if self.window is None else decoded[..., *self.window]


def cells_of(window: Window, canvas: tuple[int, int], features: Tensor) -> tuple[slice, slice]:
    """Rows and columns of a feature map over a canvas that show a window, whose edges lie on cells."""
    stride = canvas[0] // features.shape[-2]
    top, left, bottom, right = (edge // stride for edge in window)
    return slice(top, bottom), slice(left, right)
