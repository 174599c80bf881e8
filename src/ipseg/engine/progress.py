"""How a training step speaks while it goes on."""

from __future__ import annotations

from collections.abc import Mapping


def say_losses(losses: Mapping[str, float], images_a_second: float) -> str:
    """Loss parts and speed in one short line."""
    parts = " ".join(f"{name} {value:.3f}" for name, value in losses.items())
    return f"{parts} · {images_a_second:.0f} img/s"
