"""Train one step: iterations, log lines and checkpoints."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import torch
from torch import Tensor

from ipseg.data.loader import BatchLoader
from ipseg.errors import Interrupted, UserError
from ipseg.methods.base import Method
from ipseg.progress import Meter
from ipseg.training.checkpoint import Checkpoint
from ipseg.training.distributed import DistributedContext
from ipseg.training.folder import RunFolder
from ipseg.training.iteration import CudaGraphIteration, Iteration, Outcome
from ipseg.training.recipe import TrainingConfig
from ipseg.training.system import seed_all
from ipseg.training.track import open_tracker


def train_step(
    method: Method,
    loader: BatchLoader,
    config: TrainingConfig,
    folder: RunFolder,
    seed: int,
    dist: DistributedContext,
    stopped: Callable[[], bool],
    *,
    title: str,
) -> None:
    """Train the method on a step's batches, from the step's checkpoint if there is one.

    stopped: whether the user asked to stop; that raises `Interrupted` once the state is saved.
    """
    step = loader.sampler.step
    config = config.at(step)
    iterations = config.iterations(step, loader.sampler.num_images)
    update = Iteration(method, config, dist)
    train = CudaGraphIteration(update) if config.graphs and loader.samples.device.type == "cuda" else update
    folder.step(step).mkdir(exist_ok=True)
    checkpoint = Checkpoint(folder.step(step) / "checkpoint.safetensors", method.network, update.optimizer)
    start = checkpoint.restore(iterations)
    guard = LossGuard(start, dist, batches_per_epoch=-(-loader.sampler.num_images // loader.sampler.plan.num_new))
    with (
        Meter(title, iterations, start) as meter,
        open_tracker(folder.path, wanted=config.tensorboard and dist.is_main) as tracker,
        checkpoint.writing(),
        loader.batches(range(start, iterations)) as batches,
    ):
        saved = time.monotonic()
        for iteration in range(start, iterations):
            seed_all(seed, step, iteration, *dist.rank_seed)
            update.set_rate(config.rate(iteration, iterations))
            guard.update(train(next(batches)))
            done, line = iteration + 1, ""
            logs = done % config.log_every == 0 or done == iterations
            if logs:
                losses = dist.mean(guard.check(done, step))
                speed = meter.rate() * config.batch_size
                place = {"step": step, "iteration": done, "of": iterations}
                folder.log(event="train", **place, loss=losses, images_a_second=round(speed, 1))
                tracker(step, done, losses)
                line = " ".join(f"{name} {value:.3f}" for name, value in losses.items()) + f" · {speed:.0f} img/s"
            meter.advance(1, line)
            if dist.size > 1 and not logs:
                continue  # an all-reduce each iteration would cost time; a single process can stop at any
            stop, due = dist.any_rank(stopped(), time.monotonic() - saved >= config.checkpoint_seconds)
            if stop or due:
                guard.check(done, step)
                if dist.is_main:
                    checkpoint.save(done)
                saved = time.monotonic()
            if stop:
                checkpoint.wait()
                raise Interrupted(f"interrupted in step {step} at iteration {done}/{iterations}; resume with --resume.")


class LossGuard:
    """Ends the run where the loss is not finite or no pixel has a label, without waiting for the device in between.

    A crop may show nothing but 255, so a batch without a labeled pixel is no mistake; a whole epoch of them is.
    """

    def __init__(self, start: int, dist: DistributedContext, batches_per_epoch: int) -> None:
        self._checked, self._dist = start, dist
        self._batches_per_epoch, self._unlabeled_in_a_row = batches_per_epoch, 0
        self._losses: dict[str, Tensor] = {}
        self._finite: Tensor | None = None
        self._labeled: list[Tensor] = []
        """Of every batch since the last check, on this rank."""

    def update(self, outcome: Outcome) -> None:
        """Record an iteration."""
        self._losses = outcome.losses
        self._finite = outcome.finite.clone() if self._finite is None else self._finite & outcome.finite
        self._labeled.append(outcome.labeled.clone())

    def check(self, iteration: int, step: int) -> dict[str, float]:
        """The latest losses. Raises on all ranks if anything was wrong since the last check."""
        losses = {name: float(value) for name, value in self._losses.items()}
        where = f"step {step}, between iterations {self._checked} and {iteration}"
        if not self._labeled:
            return losses
        labeled = self._dist.any_rank(*torch.stack(self._labeled).tolist())
        self._labeled.clear()
        for any_pixel in labeled:
            self._unlabeled_in_a_row = 0 if any_pixel else self._unlabeled_in_a_row + 1
            if self._unlabeled_in_a_row >= self._batches_per_epoch:
                raise UserError(
                    f"{where}: {self._unlabeled_in_a_row} batches in a row, a whole epoch, have no labeled pixel: all "
                    "are 255 (ignore). The run stops here; the last checkpoint is kept. Check the masks, or take a "
                    "larger training.crop."
                )
        if self._dist.any_rank(self._finite is not None and not bool(self._finite))[0]:
            rate = "training.later_lr" if step else "training.lr"
            raise UserError(
                f"{where}: the loss is not finite ({losses}). The run stops here; the last checkpoint is kept. "
                f"A lower {rate} usually helps."
            )
        self._checked = iteration
        return losses


@contextmanager
def stop_request() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM only ask, so that the state is saved first. A second Ctrl-C stops at once."""
    asked = False
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    for number in before:
        signal.signal(number, ask)
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
