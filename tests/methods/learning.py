"""A few iterations of learning, as the engine does them."""

from __future__ import annotations

from typing import Any

import torch

from ipseg.data.batch import StepBatch
from ipseg.training.iteration import make_optimizer
from ipseg.training.recipe import TrainingConfig


def learn(method: Any, batch: StepBatch, iterations: int = 3) -> None:
    optimizer = make_optimizer(method, TrainingConfig(lr=0.05))
    for group in optimizer.param_groups:
        group["lr"] = 0.05 * group["factor"]
    for _ in range(iterations):
        method.train_mode()
        loss = torch.stack(list(method.loss(batch).values())).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
