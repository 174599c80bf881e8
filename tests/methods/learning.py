"""A few iterations of learning, as the engine does them."""

from __future__ import annotations

from typing import Any

import torch

from ipseg.data.batch import StepBatch
from ipseg.engine.iteration import make_optimiser
from ipseg.engine.recipe import TrainingConfig


def learn(method: Any, batch: StepBatch, iterations: int = 3) -> None:
    optimiser = make_optimiser(method, TrainingConfig(lr=0.05))
    for group in optimiser.param_groups:
        group["lr"] = 0.05 * group["factor"]
    for _ in range(iterations):
        method.train_mode()
        loss = torch.stack(list(method.loss(batch).values())).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
