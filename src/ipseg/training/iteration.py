"""One training iteration: forward, backward, update; on a GPU optionally as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from ipseg.data.batch import Batch, StepBatch
from ipseg.methods.base import Method
from ipseg.models.compiled import compiling
from ipseg.scenario import IGNORE
from ipseg.training.distributed import DistributedContext, distributed_loss
from ipseg.training.recipe import TrainingConfig

Loss = Callable[[StepBatch], Mapping[str, Tensor]]
WARM_UP = 3
"""Iterations before the recording: by then memory is allocated and algorithms are chosen."""


@dataclass(frozen=True)
class Outcome:
    """Losses of a batch and checks of them, as tensors on the device: nothing waits for it."""

    losses: dict[str, Tensor]
    finite: Tensor
    """Whether the loss is finite."""
    labeled: Tensor
    """Whether any pixel has a label."""


class Iteration:
    """Trains on one batch at a time."""

    def __init__(self, method: Method, config: TrainingConfig, dist: DistributedContext | None = None) -> None:
        self.method, self.config = method, config
        self.loss: Loss = method.loss if dist is None or dist.size == 1 else distributed_loss(method, dist)
        self.optimizer = make_optimizer(method, config)

    def set_rate(self, rate: float) -> None:
        """Set the learning rate to a multiple of the base rate; each group has its own factor."""
        for group in self.optimizer.param_groups:
            lr = self.config.lr * group["factor"] * rate
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(lr)
            else:
                group["lr"] = lr

    def __call__(self, batch: StepBatch) -> Outcome:
        """Forward, backward, update."""
        self.method.train_mode()
        kind, mixed = batch.inputs.images.device.type, self.config.precision == "bf16"
        with torch.autocast(kind, torch.bfloat16, enabled=mixed), compiling(enabled=self.config.compile):
            parts = self.loss(batch)
        total = torch.stack(list(parts.values())).sum()
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(total)
        self.optimizer.step()
        losses = {name: part.detach() for name, part in parts.items()}
        return Outcome(losses, torch.isfinite(total.detach()), (batch.inputs.labels != IGNORE).any())


class CudaGraphIteration:
    """A training iteration as a CUDA graph: one launch instead of hundreds.

    A graph reads and writes the same memory each time, so batches are copied to where the recorded one lay. Dropout
    still draws anew: a graph takes the generator's state of the moment it is replayed.
    """

    def __init__(self, iteration: Iteration) -> None:
        self.iteration, self.done = iteration, 0
        self.graph = torch.cuda.CUDAGraph()
        self.batch: StepBatch | None = None
        self.outcome: Outcome | None = None

    def __call__(self, batch: StepBatch) -> Outcome:
        """Run eagerly at first, then capture, then replay."""
        self.done += 1
        if self.done <= WARM_UP:
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # as required before a capture
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                outcome = self.iteration(batch)
            torch.cuda.current_stream().wait_stream(stream)
            return outcome
        if self.batch is None or self.outcome is None:
            self.batch = batch
            with torch.cuda.graph(self.graph):
                self.outcome = self.iteration(batch)
        else:
            _copy(batch, self.batch)
        self.graph.replay()
        return self.outcome


def _copy(batch: StepBatch, to: StepBatch) -> None:
    for mine, theirs in ((batch.inputs, to.inputs), (batch.replay_images, to.replay_images)):
        if mine is None or theirs is None:
            continue
        for part in fields(Batch):
            value = getattr(mine, part.name)
            if value is not None:
                getattr(theirs, part.name).copy_(value)


def make_optimizer(method: Method, config: TrainingConfig) -> torch.optim.Optimizer:
    """The optimizer over the method's parameter groups, each with its multiple of the rate."""
    device = next(method.network.parameters()).device
    options: dict[str, Any] = {"weight_decay": config.weight_decay, "fused": config.fused and device.type != "mps"}
    recorded = config.graphs and device.type == "cuda"
    groups: list[dict[str, Any]] = [{"params": g.parameters, "factor": g.factor} for g in method.parameter_groups()]
    if recorded:  # a rate that is read from the device's memory: a plain number would be recorded with the graph
        groups = [group | {"lr": torch.tensor(config.lr, device=device)} for group in groups]
    if config.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=config.lr, capturable=recorded, **options)
    return torch.optim.SGD(groups, config.lr, config.momentum, nesterov=config.momentum > 0, **options)
