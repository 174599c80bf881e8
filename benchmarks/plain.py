"""A plain way to train and to run IPSeg, as published code does: what speed is measured against.

Eager, fp16 autocast, contiguous tensors. The backbone runs separately for student, teacher and posterior; every head
runs, one after the other; pictures are decoded, scaled, cropped and mirrored on the CPU by worker processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ipseg.methods.ipseg import IPSeg
from ipseg.models.features import Features
from ipseg.models.heads import Head

MEAN, STD = np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)


class Crops(Dataset[Any]):
    """Random scale, crop and flip with Pillow, one picture at a time."""

    def __init__(self, folder: Path, names: list[str], side: int) -> None:
        self.folder, self.names, self.side = folder, names, side

    def __len__(self) -> int:
        return 100_000  # the names over and over

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, Tensor]:
        name, rng = self.names[index % len(self.names)], np.random.default_rng(index)
        image = Image.open(self.folder / "images" / f"{name}.jpg").convert("RGB")
        mask = Image.open(self.folder / "masks" / f"{name}.png")
        salient = Image.open(self.folder / "saliency" / f"{name}.png")
        scale = rng.uniform(0.5, 2)
        size = (int(image.width * scale), int(image.height * scale))
        image = image.resize(size, Image.Resampling.BILINEAR)
        mask, salient = (x.resize(size, Image.Resampling.NEAREST) for x in (mask, salient))
        arrays = [np.asarray(x) for x in (image, mask, salient)]
        pads = [(0, max(0, self.side - n)) for n in arrays[1].shape]
        arrays = [np.pad(x, [*pads, (0, 0)][: x.ndim], constant_values=255 * (i == 1)) for i, x in enumerate(arrays)]
        top, left = (int(rng.integers(n - self.side + 1)) for n in arrays[1].shape)
        arrays = [x[top : top + self.side, left : left + self.side] for x in arrays]
        if rng.integers(2):
            arrays = [x[:, ::-1] for x in arrays]
        normal = (arrays[0].astype(np.float32) / 255 - MEAN) / STD
        return (
            torch.from_numpy(normal.transpose(2, 0, 1).copy()),
            torch.from_numpy(arrays[1].astype(np.int64)),
            torch.from_numpy(arrays[2] > 0),
        )


def load(folder: Path, names: list[str], side: int, batch: int, workers: int) -> Iterator[list[Tensor]]:
    """Batches on the CPU."""
    data = Crops(folder, names, side)
    return iter(DataLoader(data, batch, num_workers=workers, pin_memory=True, drop_last=True, persistent_workers=True))


class PlainTrainer:
    """One iteration after the other of a method whose step has begun."""

    def __init__(self, method: IPSeg) -> None:
        self.method, self.network = method, method.network
        self.base, self.old = method.step.index == 0, len(method.step.old)
        groups = [{"params": g.parameters, "lr": 0.01 * g.factor} for g in method.parameter_groups()]
        self.optimizer = torch.optim.SGD(groups, 0.01, 0.9, nesterov=True, weight_decay=1e-4)
        self.scaler = torch.amp.GradScaler("cuda")

    def heads(self, heads: list[Head], images: Tensor) -> tuple[list[Tensor], Tensor]:
        """A pass of its own through the backbone, then every head."""
        features = self.network.encoder(images)
        return every_head(heads, features, images.shape[-2:]), features.pooled

    def __call__(self, images: Tensor, y: Tensor, salient: Tensor, memory: Tensor) -> float:
        """memory: the pictures that the posterior learns from."""
        images, y, salient, memory = (x.cuda() for x in (images, y, salient, memory))
        network, previous = self.network, self.method._previous
        self.method.train_mode()
        with torch.autocast("cuda", torch.float16):
            y = y.where((y > self.old) & (y <= len(self.method.step.seen)) | (y == 255), 0)
            old = torch.zeros_like(y)
            if previous is not None:
                with torch.no_grad():
                    logits, pooled = self.heads([previous.permanent, *previous.heads], images)
                    seen = previous.posterior(pooled).float().sigmoid()
                    pixel = pixel_scores([x.float() for x in logits])
                    old = (pixel * F.pad(seen, (1, 0), value=0.9)[..., None, None]).argmax(1)
            logits, _ = self.heads([network.permanent, *network.temporary], images)
            permanent = torch.where(salient, 0, 1).masked_fill((y != 0) | (old > 0), 255)
            current = torch.where(y > 0, y - self.old + 1, torch.where(salient, 0, 1)).masked_fill(y == 255, 255)
            loss = 0.5 * bce(logits[-1], current) + 0.5 * bce(logits[0], permanent)
            targets = torch.zeros(len(images), len(self.method.step.seen), device="cuda")
            for i in range(len(images)):
                for label in y[i].unique().tolist():
                    if 0 < label < 255:
                        targets[i, label - 1] = 1
                if previous is not None:
                    for label in range(1, self.old + 1):
                        if (pixel[i].argmax(0) == label).sum() > 1000:
                            targets[i, label - 1] = 1
            _, pooled = self.heads([], memory)
            loss = loss + F.binary_cross_entropy_with_logits(network.posterior(pooled), targets)
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()


def every_head(heads: list[Head], features: Features, size: torch.Size) -> list[Tensor]:
    """Logits of one head after the other, with torch's own enlarging in whatever number format autocast chooses."""
    stages, logits = [stage.contiguous() for stage in features.stages[::-1]], []
    for head in heads:
        x = features.decoded
        for block, stage in zip(head.trunk.blocks, stages, strict=True):
            joined = torch.cat([F.interpolate(x, stage.shape[-2:], mode="bilinear"), stage], dim=1)
            x = block[1:](F.conv2d(joined, block[0].weight, padding=1))
        logits.append(F.interpolate(head.classifier(x), size, mode="bilinear"))
    return logits


def bce(logits: Tensor, labels: Tensor) -> Tensor:
    """Binary cross-entropy against one-hot maps."""
    counted = labels != 255
    onehot = F.one_hot(labels.where(counted & (labels < logits.shape[1]), 0), logits.shape[1]).permute(0, 3, 1, 2)
    loss = F.binary_cross_entropy_with_logits(logits, onehot.to(logits.dtype), reduction="none").sum(1)
    return (loss * counted).sum() / counted.sum()


def pixel_scores(logits: list[Tensor]) -> Tensor:
    """Background of the permanent branch, and every head's classes, noise filtered."""
    heads = [torch.where(x[:, :1] >= x[:, 2:], 0.4, 1.0) * x[:, 2:].sigmoid() for x in logits[1:]]
    return torch.cat([logits[0].sigmoid()[:, 1:2], *heads], 1)


@torch.no_grad()
def predict(method: IPSeg, images: Tensor) -> Tensor:
    """Labels: every head in a loop, and a pass of its own for the posterior."""
    network = method.network.eval()
    with torch.autocast("cuda", torch.float16):
        features = network.encoder(images)
        logits = every_head([network.permanent, *network.temporary], features, images.shape[-2:])
        seen = network.posterior(network.encoder(images).pooled).float().sigmoid()
    return (pixel_scores([x.float() for x in logits]) * F.pad(seen, (1, 0), value=0.9)[..., None, None]).argmax(1)
