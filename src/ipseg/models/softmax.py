"""DeepLabV3 with one softmax over all classes: encoder, one point-wise classifier a step, bilinear upsampling."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ipseg.models.features import Canvas
from ipseg.models.heads import Trunk
from ipseg.models.network import Encoder, ModelConfig


@dataclass(frozen=True)
class SoftmaxOutput:
    """The outputs of one pass."""

    stages: tuple[Tensor, ...]
    """The backbone's four stages, finest first."""
    decoded: Tensor
    """(B, width, h, w): the classifiers' input, without dropout: the decoder's output or, with a trunk, the trunk's."""
    logits: Tensor
    """(B, 1 + C, h, w) in float32, before upsampling; background first."""
    canvas: Canvas

    def upsampled(self) -> Tensor:
        """(B, 1 + C, H, W) logits at the size of the images."""
        return self.canvas.upsample(self.logits)


class SoftmaxNetwork(nn.Module):
    """Logits of background and every class, concatenated over the steps' classifiers.

    trunk: put one trunk of IPSeg's heads before the classifiers, which brings the finer stages in.
    """

    def __init__(self, config: ModelConfig, *, trunk: bool = False, pretrained: bool = True) -> None:
        super().__init__()
        self.encoder = Encoder(replace(config, decoder_dropout=0.0), pretrained=pretrained)
        self.dropout = nn.Dropout(config.decoder_dropout)  # here, for losses compare the decoder's output without it
        self.trunk = Trunk(self.encoder.backbone.channels[:3], config.width, config.width) if trunk else None
        self.width = config.width
        self.classifiers = nn.ModuleList()

    def add_step(self, outputs: int) -> None:
        """Add a step's classifier."""
        classifier = nn.Conv2d(self.width, outputs, 1)
        self.classifiers.append(classifier.to(next(self.encoder.parameters()).device))

    def rows(self) -> tuple[list[Tensor], list[Tensor]]:
        """Of every step's classifier the weights, (outputs, width), and the biases; the background is the first row."""
        parameters = list(self.classifiers.parameters())
        return [weight.flatten(1) for weight in parameters[::2]], list(parameters[1::2])

    @torch.no_grad()
    def init_from_background(self) -> None:
        """Let the newest classes start as the background, which shares its probability with them evenly (MiB).

        They have the background's weights, and they and it the background's bias less log(|new| + 1). The other
        classes' probabilities stay as they were, so the old model and the new one begin by agreeing.
        """
        weights, biases = self.rows()
        weights[-1].copy_(weights[0][:1].expand_as(weights[-1]))
        biases[0][0] -= math.log(len(biases[-1]) + 1)
        biases[-1].copy_(biases[0][0])

    def forward(self, images: Tensor, boxes: Tensor | None = None) -> SoftmaxOutput:
        """images: (B, 3, H, W) in 0-1, any size. boxes: where the images lie; by default they fill the canvas."""
        features = self.encoder(images, boxes)
        decoded, shared = features.decoded, self.dropout(features.decoded)
        if self.trunk is not None:
            decoded = shared = self.trunk(shared, features.stages)
        logits = torch.cat([classifier(shared) for classifier in self.classifiers], dim=1)
        return SoftmaxOutput((*features.stages, features.last), decoded, logits.float(), features.canvas)
