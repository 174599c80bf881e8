"""One step of learning: batch after batch, with checkpoints that lose at most a minute."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from ipseg.data.loader import BatchLoader
from ipseg.errors import Interrupted
from ipseg.methods.base import Method
from ipseg.progress import Meter
from ipseg.training.checkpoint import Checkpoint
from ipseg.training.distributed import DistributedContext
from ipseg.training.folder import RunFolder
from ipseg.training.iteration import Iteration, Recorded
from ipseg.training.progress import say_losses
from ipseg.training.recipe import TrainingConfig
from ipseg.training.system import seed_all
from ipseg.training.track import open_tracker
from ipseg.training.watch import Watch


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
    """Train the method on a step's batches, going on from the step's checkpoint if there is one.

    stopped: whether the user asked to stop; that raises `Interrupted` once the state is saved.
    """
    step = loader.sampler.step
    config = config.at(step)
    iterations = config.iterations(step, loader.sampler.num_images)
    iterate = Iteration(method, config, dist)
    learn = Recorded(iterate) if config.graphs and loader.samples.device.type == "cuda" else iterate
    folder.step(step).mkdir(exist_ok=True)
    checkpoint = Checkpoint(folder.step(step) / "checkpoint.safetensors", method.network, iterate.optimizer)
    start = checkpoint.restore(iterations)
    watch = Watch(start, dist, one_pass=-(-loader.sampler.num_images // loader.sampler.plan.num_new))
    left = range(start, iterations)
    with (
        Meter(title, iterations, start) as meter,
        open_tracker(folder.path, wanted=config.tensorboard and dist.is_main) as tracker,
        checkpoint.writing(),
        loader.batches(left) as batches,
    ):
        keeper = _Keeper(checkpoint, dist, config.checkpoint_seconds)
        for iteration in left:
            seed_all(seed, step, iteration, *dist.rank_seed)
            iterate.set_rate(config.rate(iteration, iterations))
            watch.look(learn(next(batches)))
            done = iteration + 1
            text, told = "", done % config.log_every == 0 or done == iterations
            if told:
                losses = dist.mean(watch.read(done, step))
                speed = meter.rate() * config.batch_size
                place = {"step": step, "iteration": done, "of": iterations}
                folder.log(event="train", **place, loss=losses, images_a_second=round(speed, 1))
                tracker(step, done, losses)
                text = say_losses(losses, speed)
            meter.advance(1, text)
            stop, due = keeper.asked(stopped(), told=told)
            if stop or due:
                watch.read(done, step)
                keeper.keep(done, wait=stop)
            if stop:
                where = f"step {step} after iteration {done} of {iterations}"
                raise Interrupted(f"stopped in {where}; go on with --resume.")


class _Keeper:
    """Knows when the state of a step is to be kept: now and then, and before it stops."""

    def __init__(self, checkpoint: Checkpoint, dist: DistributedContext, seconds: float) -> None:
        self._checkpoint, self._dist, self._seconds = checkpoint, dist, seconds
        self._kept = time.monotonic()

    def asked(self, stopped: bool, *, told: bool) -> tuple[bool, bool]:
        """Whether to stop, and whether it is time to keep the state. A dist agrees where it tells its losses."""
        if self._dist.size > 1 and not told:  # alone one can stop at any moment
            return False, False
        stop, due = self._dist.any_rank(stopped, time.monotonic() - self._kept >= self._seconds)
        return stop, due

    def keep(self, done: int, *, wait: bool) -> None:
        """Write the state after so many iterations, while learning goes on; or wait until it is whole."""
        if self._dist.is_main:
            self._checkpoint.save(done)
        self._kept = time.monotonic()
        if wait:
            self._checkpoint.wait()


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
