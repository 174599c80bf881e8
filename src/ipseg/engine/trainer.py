"""One step of learning: batch after batch, with checkpoints that lose at most a minute."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import torch
from torch import Tensor

from ipseg.data.stream import BatchStream
from ipseg.engine.checkpoint import Checkpoint
from ipseg.engine.folder import RunFolder
from ipseg.engine.iteration import Iteration, Outcome, Recorded
from ipseg.engine.progress import say_losses
from ipseg.engine.recipe import TrainingConfig
from ipseg.engine.system import seed_all
from ipseg.engine.team import Team
from ipseg.engine.track import open_tracker
from ipseg.errors import Interrupted, UserError
from ipseg.methods.base import Method
from ipseg.progress import Meter


def train_step(
    method: Method,
    stream: BatchStream,
    config: TrainingConfig,
    folder: RunFolder,
    seed: int,
    team: Team,
    *,
    title: str,
) -> None:
    """Train the method on a step's batches, going on from the step's checkpoint if there is one."""
    step = stream.view.step.index
    config = config.at(step)
    iterations = config.iterations(step, len(stream.view))
    iterate = Iteration(method, config, team)
    learn = Recorded(iterate) if config.graphs and stream.device.type == "cuda" else iterate
    folder.step(step).mkdir(exist_ok=True)
    checkpoint = Checkpoint(folder.step(step) / "checkpoint.safetensors", method.network, iterate.optimiser)
    start = checkpoint.restore()
    watch = _Watch(start, team, one_pass=-(-len(stream.view) // stream.plan.current))
    saved = time.monotonic()
    left = range(start, iterations)
    with (
        Meter(title, iterations, start) as meter,
        open_tracker(folder.path, wanted=config.tensorboard and team.leads) as tracker,
        _stop_request() as stopped,
        checkpoint.writing(),
        stream.batches(left) as batches,
    ):
        for iteration in left:
            seed_all(seed, step, iteration, *team.salt)
            iterate.set_rate(config.rate(iteration, iterations))
            watch.look(learn(next(batches)))
            done = iteration + 1
            text = ""
            told = done % config.log_every == 0 or done == iterations
            if told:
                losses = team.mean(watch.read(done, step))
                speed = meter.rate() * config.batch_size
                place = {"step": step, "iteration": done, "of": iterations}
                folder.log(event="train", **place, loss=losses, images_a_second=round(speed, 1))
                tracker(step, done, losses)
                text = say_losses(losses, speed)
            meter.advance(1, text)
            stop, due = stopped(), time.monotonic() - saved >= config.checkpoint_seconds
            if team.size > 1:  # alone one can stop at any moment
                stop, due = team.agree(stop, due) if told else (False, False)
            if stop or due:
                watch.read(done, step)
                if team.leads:
                    checkpoint.save(done)
                saved = time.monotonic()
                if stop:
                    checkpoint.wait()
                    raise Interrupted(
                        f"stopped in step {step} after iteration {done} of {iterations}; go on with --resume."
                    )


class _Watch:
    """Notices a loss that is not finite, or that nothing counts, without always waiting for the device.

    A crop may show nothing but 255, so a batch without a counted pixel is no mistake; a whole pass of them is.
    """

    def __init__(self, start: int, team: Team, one_pass: int) -> None:
        self._losses: dict[str, Tensor] = {}
        self._good, self._team = start, team
        self._one_pass, self._blank = one_pass, 0
        """Batches that show every picture once; how many in a row had nothing to count."""
        self._finite: Tensor | None = None
        self._counted: list[Tensor] = []
        """Of every batch since the last reading: in our share of it."""

    def look(self, outcome: Outcome) -> None:
        self._losses = outcome.losses
        self._finite = outcome.finite.clone() if self._finite is None else self._finite & outcome.finite
        self._counted.append(outcome.counted.clone())

    def read(self, iteration: int, step: int) -> dict[str, float]:
        """The latest losses; raises, in all processes, if something went wrong since the last reading."""
        losses = {name: float(value) for name, value in self._losses.items()}
        where = f"step {step}, between iterations {self._good} and {iteration}"
        if not self._counted:
            return losses
        counted = self._team.agree(*torch.stack(self._counted).tolist())
        self._counted.clear()
        for any_pixel in counted:
            self._blank = 0 if any_pixel else self._blank + 1
            if self._blank >= self._one_pass:
                raise UserError(
                    f"{where}: {self._blank} batches in a row, a whole pass over the pictures, have no counted pixel: "
                    f"all that they show is 255. {_KEPT} Check the masks, or take a larger training.crop."
                )
        if self._team.agree(self._finite is not None and not bool(self._finite))[0]:
            rate = "training.later_lr" if step else "training.lr"
            raise UserError(f"{where}: the loss is not finite ({losses}). {_KEPT} A lower {rate} usually helps.")
        self._good = iteration
        return losses


_KEPT = "The run stops here; the last good state is kept."


@contextmanager
def _stop_request() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM ask; the loop stops after the iteration, its state whole. A second Ctrl-C stops at once."""
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
