"""Trackers beside the JSON lines: TensorBoard, on request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ipseg.errors import UserError

Tracker = Callable[[int, int, Mapping[str, float]], None]


def require_tracker() -> None:
    """Raise if TensorBoard is not installed."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        raise UserError("training.tensorboard needs the extra `track`: pip install ipseg[track]") from error


@contextmanager
def open_tracker(folder: Path, *, wanted: bool) -> Iterator[Tracker]:
    """A function (step, iteration, losses) that writes TensorBoard events inside the block, or does nothing."""
    if not wanted:
        yield lambda _step, _iteration, _losses: None
        return
    require_tracker()
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder / "tensorboard")) as writer:

        def write(step: int, iteration: int, losses: Mapping[str, float]) -> None:
            for name, value in losses.items():
                writer.add_scalar(f"step_{step}/{name}", value, iteration)
            writer.flush()

        yield write
