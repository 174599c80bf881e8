"""Trackers beside the JSON lines: TensorBoard, on request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ipseg.errors import UserError

Tracker = Callable[[int, int, Mapping[str, float]], None]


def open_tracker(folder: Path, *, wanted: bool) -> Tracker:
    """A function (step, iteration, losses) that writes TensorBoard events, or does nothing."""
    if not wanted:
        return lambda _step, _iteration, _losses: None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise UserError("training.tensorboard needs the extra `track`: pip install ipseg[track]") from error
    writer = SummaryWriter(str(folder / "tensorboard"))

    def write(step: int, iteration: int, losses: Mapping[str, float]) -> None:
        for name, value in losses.items():
            writer.add_scalar(f"step_{step}/{name}", value, iteration)
        writer.flush()

    return write
