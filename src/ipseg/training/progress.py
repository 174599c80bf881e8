"""How a step speaks while it goes on, and where its time goes."""

from __future__ import annotations

import time
from collections.abc import Mapping


def say_losses(losses: Mapping[str, float], images_a_second: float) -> str:
    """Loss parts and speed in one short line."""
    parts = " ".join(f"{name} {value:.3f}" for name, value in losses.items())
    return f"{parts} · {images_a_second:.0f} img/s"


class Clock:
    """Where the time of a step goes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.monotonic()

    def passed(self, part: str) -> None:
        """What has passed since the last call went into this part."""
        now = time.monotonic()
        self.seconds[part] = round(now - self._last, 2)
        self._last = now
