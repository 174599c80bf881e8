"""What every test may use: a recipe that learns in seconds, a finished run of it, and a small folder of data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from PIL import Image

from ipseg.engine.experiment import run
from ipseg.engine.recipe import make_recipe

settings.register_profile("ipseg", deadline=None)  # the first example of a property often pays for imports
settings.load_profile("ipseg")


def tiny() -> dict[str, Any]:
    """Three steps (two classes, one, one) of drawn scenes on a small network."""
    return {
        "data": {"name": "scenes", "size": [64, 64], "classes": 4, "train": 24, "val": 8},
        "scenario": {"name": "2-1"},
        "model": {
            "backbone": {"name": "resnet10t", "weights": "none"},
            "width": 16,
            "posterior_width": 32,
            "rates": [1, 2],
        },
        "method": {"name": "ipseg"},
        "memory": {"size": 6},
        "training": {"epochs": 1, "batch_size": 4, "crop": [64, 64]},
        "device": "cpu",
    }


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)  # tests run beside each other, and sums of one thread are the same everywhere


@pytest.fixture
def tiny_settings() -> dict[str, Any]:
    """A fresh copy for each test, to change at will."""
    return tiny()


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run. Tests read it; one that wants to change it copies it first."""
    path = tmp_path_factory.mktemp("runs") / "tiny"
    run(make_recipe(tiny()), path, quiet=True)
    return path


def write_folder_data(
    root: Path,
    classes: Sequence[str] = ("red", "green", "blue"),
    count: int = 12,
    size: tuple[int, int] = (48, 64),
    *,
    saliency: bool = True,
) -> Path:
    """Pictures with one coloured square each on grey; class i stands in pictures i, i + |classes|, ...

    Also in the next class's pictures, smaller, so that old and future classes meet.
    """
    rng = np.random.default_rng(0)
    folders = ["images", "masks", *(["saliency"] if saliency else [])]
    for folder in folders:
        (root / folder).mkdir(parents=True)
    (root / "classes.txt").write_text("\n".join(classes) + "\n", encoding="utf-8")
    colours = np.random.default_rng(1).integers(0, 256, (len(classes), 3))
    colours[:3] = np.array([[220, 30, 30], [30, 200, 30], [30, 60, 220]])[: len(classes)]
    for index in range(count):
        image = rng.integers(90, 130, (*size, 3)).astype(np.uint8)
        mask = np.zeros(size, dtype=np.uint8)
        own, next_one = index % len(classes), (index + 1) % len(classes)
        for value, side in ((next_one, size[0] // 4), (own, size[0] // 3)):
            top, left = rng.integers(0, size[0] - side), rng.integers(0, size[1] - side)
            image[top : top + side, left : left + side] = colours[value]
            mask[top : top + side, left : left + side] = value + 1
        Image.fromarray(image).save(root / "images" / f"picture_{index:02d}.png")
        Image.fromarray(mask).save(root / "masks" / f"picture_{index:02d}.png")
        if saliency:
            Image.fromarray((mask > 0).astype(np.uint8) * 255).save(root / "saliency" / f"picture_{index:02d}.png")
    return root


@pytest.fixture
def make_folder_data(tmp_path: Path) -> Callable[..., Path]:
    """Writes a small data set for `data: {name: folder, path: ...}` and returns its path."""

    def make(name: str = "data", **options: Any) -> Path:
        return write_folder_data(tmp_path / name, **options)

    return make
