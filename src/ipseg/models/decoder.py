"""ASPP, the decoder of DeepLab V3, on the last stage of the backbone."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Norm(nn.BatchNorm2d):
    """Batch normalization that also takes one value a channel, as the mean of a single image: it has no spread."""

    def forward(self, x: Tensor) -> Tensor:
        """Such a value is normalized with the running statistics, which stay as they are."""
        if self.training and x.numel() == x.shape[1]:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        return super().forward(x)


def conv_block(inputs: int, outputs: int, kernel: int, dilation: int = 1) -> nn.Sequential:
    """Convolution, batch normalization, ReLU."""
    padding = dilation * (kernel // 2)
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, padding=padding, dilation=dilation, bias=False),
        Norm(outputs),
        nn.ReLU(),
    )


class Aspp(nn.Module):
    """Atrous spatial pyramid pooling: one point-wise, three dilated and one image-level view, projected together."""

    def __init__(self, inputs: int, width: int, rates: tuple[int, ...], dropout: float) -> None:
        super().__init__()
        self.reach = max(rates, default=0)
        """Radius of the receptive field, in cells."""
        self.views = nn.ModuleList(
            [conv_block(inputs, width, 1), *(conv_block(inputs, width, 3, dilation=rate) for rate in rates)]
        )
        self.whole = conv_block(inputs, width, 1)
        self.project = nn.Sequential(conv_block(width * (len(rates) + 2), width, 1), nn.Dropout(dropout))

    def forward(self, features: Tensor, mean: Tensor) -> Tensor:
        """mean: (B, C, 1, 1), of the features over each image's box: padding does not reach it."""
        whole = self.whole(mean.to(features.dtype)).expand(-1, -1, *features.shape[-2:])
        decoded: Tensor = self.project(torch.cat([*(view(features) for view in self.views), whole], dim=1))
        return decoded
