"""Data-parallel training: one process, or as many as torchrun started, on one machine or on many."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MethodType
from typing import Any, TypeVar

import torch
import torch.distributed
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ipseg.data.batch import StepBatch
from ipseg.data.sampler import Shard
from ipseg.errors import UserError
from ipseg.methods.base import Method
from ipseg.models.reduce import all_reduce_sum
from ipseg.training.system import choose_device

T = TypeVar("T")


@dataclass(frozen=True)
class DistributedContext:
    """One process of a dist, and how it talks to the others. Alone it has nobody to ask."""

    device: torch.device
    rank: int = 0
    size: int = 1

    @property
    def is_main(self) -> bool:
        """Rank 0 writes files and prints."""
        return self.rank == 0

    @property
    def shard(self) -> Shard:
        """The share of every batch that this process computes."""
        return Shard(self.rank, self.size)

    @property
    def rank_seed(self) -> tuple[int, ...]:
        """Added to the seeds of dropout, so that ranks differ; rank 0 draws what a single process would."""
        return (self.rank,) if self.rank else ()

    def barrier(self) -> None:
        """Wait for all processes."""
        if self.size > 1:
            torch.distributed.barrier()

    def any_rank(self, *flags: bool) -> list[bool]:
        """For each flag, whether it is set on any rank."""
        if self.size == 1:
            return list(flags)
        any_set = torch.tensor(flags, dtype=torch.int32, device=self.device)
        torch.distributed.all_reduce(any_set, torch.distributed.ReduceOp.MAX)
        return [bool(flag) for flag in any_set.tolist()]

    def mean(self, values: Mapping[str, float]) -> dict[str, float]:
        """The mean of each value over the processes."""
        if self.size == 1:
            return dict(values)
        sums = torch.tensor(list(values.values()), device=self.device)
        torch.distributed.all_reduce(sums)
        return dict(zip(values, (sums / self.size).tolist(), strict=True))

    def gather(self, mine: T) -> list[T]:
        """The objects of all processes, by rank."""
        if self.size == 1:
            return [mine]
        gathered: list[Any] = [None] * self.size
        torch.distributed.all_gather_object(gathered, mine)
        return gathered


@contextmanager
def distributed(device: str, batch_size: int) -> Iterator[DistributedContext]:
    """The dist that torchrun's variables describe; alone without them.

    A script of several runs does this around them all: processes that part cannot meet again, so each run keeps the
    group it finds.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield DistributedContext(choose_device(device))
        return
    if batch_size < size:
        raise UserError(f"training.batch_size is {batch_size}, but there are {size} processes; each needs an image.")
    mine = choose_device(device)
    if mine.type == "cuda":
        mine = choose_device(f"cuda:{os.environ['LOCAL_RANK']}")
        torch.cuda.set_device(mine)
    found = torch.distributed.is_initialized()
    if not found:
        torch.distributed.init_process_group("nccl" if mine.type == "cuda" else "gloo")
    try:
        yield DistributedContext(mine, torch.distributed.get_rank(), size)
    finally:
        if not found:
            torch.distributed.destroy_process_group()


class Loss(nn.Module):
    """A method's loss as DistributedDataParallel wants it: it averages the gradients of what runs inside."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.network, self.method = method.network, method

    def forward(self, batch: StepBatch) -> Mapping[str, Tensor]:
        """On one process's share of the batch."""
        return self.method.loss(batch)


def distributed_loss(method: Method, dist: DistributedContext) -> nn.Module:
    """The loss of the whole batch, every process with its share: gradients and batch statistics are the batch's."""
    sync_batch_norm(method.network, dist.device)
    with warnings.catch_warnings():  # newer releases of torch have another name for it, which older ones do not know
        warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
        return DistributedDataParallel(Loss(method), broadcast_buffers=False)


def sync_batch_norm(network: nn.Module, device: torch.device) -> None:
    """Batch normalization over all processes: torch's SyncBatchNorm on GPUs; for CPUs, where there is none, ours."""
    if device.type == "cuda":
        from timm.layers import convert_sync_batchnorm

        for parent in list(network.modules()):
            for name, child in parent.named_children():
                if isinstance(child, nn.BatchNorm2d):  # of a former step's a second conversion would drop activations
                    parent.add_module(name, convert_sync_batchnorm(child))
        return
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.forward = MethodType(_normalize, module)  # type: ignore[method-assign]


def _normalize(self: nn.BatchNorm2d, x: Tensor) -> Tensor:
    """A batch norm's forward with the mean and the spread of all processes' images."""
    if not self.training:
        return type(self).forward(self, x)
    count = torch.tensor([float(x.numel() // x.shape[1])])
    torch.distributed.all_reduce(count)
    wide = x.float()  # a difference of squares has nothing left in bf16
    sums = all_reduce_sum(torch.stack([wide.sum((0, 2, 3)), wide.square().sum((0, 2, 3))]))
    mean = sums[0] / count
    variance = (sums[1] / count - mean.square()).clamp(min=0)
    if self.running_mean is not None and self.running_var is not None and self.momentum is not None and count > 1:
        unbiased = variance.detach() * count / (count - 1)
        self.running_mean.lerp_(mean.detach(), self.momentum)
        self.running_var.lerp_(unbiased, self.momentum)
    assert self.num_batches_tracked is not None
    self.num_batches_tracked.add_(1)
    scale = self.weight * (variance + self.eps).rsqrt()
    x = (wide * scale[:, None, None] + (self.bias - mean * scale)[:, None, None]).to(x.dtype)
    for name in ("drop", "act"):  # timm's batch norms end with an activation
        x = getattr(self, name)(x) if hasattr(self, name) else x
    return x
