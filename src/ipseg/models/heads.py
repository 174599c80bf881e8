"""Segmentation heads: the permanent branch phi_p and the temporary branches phi_t are built alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ipseg.models.compiled import compilable
from ipseg.models.decoder import Norm, conv_block
from ipseg.models.resize import resize

Module = TypeVar("Module", bound=nn.Module)

UNKNOWN, PURE_BACKGROUND = 0, 1
"""Channels of the permanent branch: c'_u and c'_b."""
OTHER_FOREGROUND = 0
"""Channel c_f of a temporary branch; c'_b follows as 1, then the step's classes."""


class SplitConv(nn.Conv2d):
    """A 3x3 convolution of two tensors joined by their channels, as the sum of one convolution of each.

    The stage is frozen after the base step. Torch computes no gradient of an input that asks for none, but of joined
    channels it would compute all and drop most of them; and joining copies both.
    """

    def __init__(self, inputs: int, stage: int, outputs: int) -> None:
        super().__init__(inputs + stage, outputs, 3, padding=1, bias=False)
        self.split = [inputs, stage]

    def forward(self, x: Tensor, stage: Tensor) -> Tensor:  # type: ignore[override]
        """x: the features of the head; stage: those of the backbone at the same resolution."""
        of_x, of_stage = torch.split(self.weight, self.split, dim=1)
        return F.conv2d(x, of_x, padding=1) + F.conv2d(stage, of_stage, padding=1)


class Trunk(nn.Module):
    """Three 3x3 convolutions with upsampling between them, each also fed with the stage of its resolution (3, 2, 1)."""

    def __init__(self, stages: Sequence[int], inputs: int, width: int) -> None:
        super().__init__()
        widths = [inputs, width, width]
        self.blocks = nn.ModuleList(
            nn.Sequential(SplitConv(before, stage, width), Norm(width), nn.ReLU())
            for before, stage in zip(widths, stages[::-1], strict=True)
        )

    @compilable
    def forward(self, decoded: Tensor, stages: Sequence[Tensor]) -> Tensor:
        """decoded: the decoder's output; stages: the backbone's first three, finest first."""
        x = decoded
        for block, stage in zip(self.blocks, stages[::-1], strict=True):
            assert isinstance(block, nn.Sequential)
            conv, norm, relu = block
            x = relu(norm(conv(resize(x, stage.shape[-2:]), stage)))
        return x


class SmallTrunk(nn.Module):
    """SSUL's: one 3x3 convolution on the decoder's output; it ignores the finer stages."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.block = conv_block(inputs, width, 3)

    @compilable
    def forward(self, decoded: Tensor, _stages: Sequence[Tensor]) -> Tensor:
        x: Tensor = self.block(decoded)
        return x


class RegionTrunk(nn.Module):
    """MicroSeg's: three convolutions of vectors, each the mean of the decoder's output over a region.

    Theirs are of 3x3 on maps of a single cell, where only the center of the kernel meets anything but padding. Here
    they are that center.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(conv_block(width, width, 1) for _ in range(3)))

    def forward(self, vectors: Tensor, _stages: Sequence[Tensor]) -> Tensor:
        """vectors: (B, width, regions, 1)."""
        x: Tensor = self.blocks(vectors)
        return x


class Head(nn.Module):
    """A trunk and a point-wise classifier."""

    def __init__(self, trunk: Trunk | SmallTrunk | RegionTrunk, width: int, outputs: int) -> None:
        super().__init__()
        self.trunk = trunk
        self.decoder: nn.Module | None = None
        """Its own, of the backbone's last stage; none: it reads the encoder's."""
        self.classifier = nn.Conv2d(width, outputs, 1)

    def forward(self, decoded: Tensor, stages: Sequence[Tensor]) -> Tensor:
        """(B, outputs, h, w) logits: of the first stage's size, or with the small trunk of the decoder's."""
        logits: Tensor = self.classifier(self.trunk(decoded, stages))
        return logits

    @torch.no_grad()
    def init_from(self, other: Head, rows: Sequence[int]) -> None:
        """Begin as a copy of another head's trunk and classifier; output row i starts as its row rows[i].

        A new head starts where unknown objects already are; from scratch it would first relearn "not background".
        """
        self.trunk.load_state_dict(other.trunk.state_dict())
        for target, source in zip(self.classifier.parameters(), other.classifier.parameters(), strict=True):
            target.copy_(source[list(rows)])


def he_init(module: Module) -> Module:
    """He's normal initialization, as in the code of SSUL and IPSeg; linear layers begin without bias.

    PyTorch's own draws have 0.41 times its spread. Before a batch normalization the spread of a convolution does not
    matter forwards, but its gradient falls as the spread grows: at the same rate it learns 6 times as slowly.
    """
    for part in module.modules():
        if isinstance(part, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(part.weight)
        if isinstance(part, nn.Linear):
            nn.init.zeros_(part.bias)
    return module
