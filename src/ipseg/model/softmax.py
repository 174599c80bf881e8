"""A network with one softmax over all classes: the encoder and a trunk of IPSeg's heads, and one classifier a step."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ipseg.model.heads import Trunk
from ipseg.model.network import Encoder, ModelConfig


class SoftmaxNetwork(nn.Module):
    """Logits of background and every class, concatenated over the steps' classifiers."""

    def __init__(self, config: ModelConfig, *, pretrained: bool = True) -> None:
        super().__init__()
        self.encoder = Encoder(config, pretrained=pretrained)
        self.trunk = Trunk(self.encoder.backbone.channels[:3], config.width, config.width)
        self.width = config.width
        self.classifiers = nn.ModuleList()

    def grow(self, outputs: int) -> None:
        """Add a step's classifier."""
        classifier = nn.Conv2d(self.width, outputs, 1)
        self.classifiers.append(classifier.to(next(self.trunk.parameters()).device))

    def forward(self, images: Tensor, boxes: Tensor | None = None) -> Tensor:
        """(B, 1 + C, H, W) logits."""
        features = self.encoder(images, boxes)
        x = self.trunk(features.decoded, features.stages)
        logits = torch.cat([classifier(x) for classifier in self.classifiers], dim=1)
        enlarged: Tensor = features.enlarge(logits.float())
        return enlarged
