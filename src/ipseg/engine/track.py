"""Trackers beside the JSON lines: TensorBoard, on request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ipseg.errors import UserError

Tracker = Callable[[int, int, Mapping[str, float]], None]


def require_tracker() -> None:
    """Raise if TensorBoard is not installed."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        raise UserError("training.tensorboard needs the extra `track`: pip install ipseg[track]") from error


def open_tracker(folder: Path, *, wanted: bool) -> Tracker:
    """A function (step, iteration, losses) that writes TensorBoard events, or does nothing."""
    if not wanted:
        return lambda _step, _iteration, _losses: None
    require_tracker()
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder / "tensorboard"))

    def write(step: int, iteration: int, losses: Mapping[str, float]) -> None:
        for name, value in losses.items():
            writer.add_scalar(f"step_{step}/{name}", value, iteration)
        writer.flush()

    return write
