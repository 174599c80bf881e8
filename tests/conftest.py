"""What every test may use: a recipe that learns in seconds, a finished run of it, and a small folder of data."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from PIL import Image

from ipseg.apps import extend as extending
from ipseg.apps import extend_report
from ipseg.apps.extend import extend
from ipseg.apps.pack import pack
from ipseg.training.experiment import run
from ipseg.training.recipe import make_recipe

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


@pytest.fixture(scope="session", autouse=True)
def _short_lessons() -> Iterator[None]:
    """Tests learn for seconds. Those that are about the least that `ipseg extend` does set it again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extending, "MIN_ITERATIONS", 1)
        patch.setattr(extending, "FEW_IMAGES_ITERATIONS", 1)
        patch.setattr(extend_report, "MIN_IOU", 0.0)
        yield


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPSEG_CACHE", str(tmp_path_factory.mktemp("cache")))  # a test leaves nothing in a user's folder
        yield


@pytest.fixture
def tiny_settings() -> dict[str, Any]:
    """A fresh copy for each test, to change at will."""
    return tiny()


@pytest.fixture(scope="session")
def make_tiny() -> Callable[[], dict[str, Any]]:
    """The same for fixtures that live longer than a test."""
    return tiny


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
    """Images with one colored square each on gray; class i stands in images i, i + |classes|, ...

    Also in the next class's images, smaller, so that old and future classes meet.
    """
    rng = np.random.default_rng(0)
    folders = ["images", "masks", *(["saliency"] if saliency else [])]
    for folder in folders:
        (root / folder).mkdir(parents=True)
    (root / "classes.txt").write_text("\n".join(classes) + "\n", encoding="utf-8")
    colors = np.random.default_rng(1).integers(0, 256, (len(classes), 3))
    colors[:3] = np.array([[220, 30, 30], [30, 200, 30], [30, 60, 220]])[: len(classes)]
    for index in range(count):
        image = rng.integers(90, 130, (*size, 3)).astype(np.uint8)
        mask = np.zeros(size, dtype=np.uint8)
        own, next_one = index % len(classes), (index + 1) % len(classes)
        for value, side in ((next_one, size[0] // 4), (own, size[0] // 3)):
            top, left = rng.integers(0, size[0] - side), rng.integers(0, size[1] - side)
            image[top : top + side, left : left + side] = colors[value]
            mask[top : top + side, left : left + side] = value + 1
        Image.fromarray(image).save(root / "images" / f"image_{index:02d}.png")
        Image.fromarray(mask).save(root / "masks" / f"image_{index:02d}.png")
        if saliency:
            Image.fromarray((mask > 0).astype(np.uint8) * 255).save(root / "saliency" / f"image_{index:02d}.png")
    return root


@pytest.fixture
def make_folder_data(tmp_path: Path) -> Callable[..., Path]:
    """Writes a small data set for `data: {name: folder, path: ...}` and returns its path."""

    def make(name: str = "data", **options: Any) -> Path:
        return write_folder_data(tmp_path / name, **options)

    return make


def old_settings(data: Path, store: str) -> dict[str, Any]:
    """Of a run that learns red, then green."""
    return tiny() | {
        "name": "old",
        "data": {"name": "folder", "path": str(data)},
        "scenario": {"name": "1-1"},
        "memory": {"size": 4, "store": store},
    }


@pytest.fixture(scope="session")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that learned one more class, with all it came from; tests read it only.

    base/: learned red, then green, with copies in memory; its data is gone. new/: data with goat, sheep and red, whose
    images have the names that the old ones had. run/: sheep learned from it.
    """
    root = tmp_path_factory.mktemp("extended")
    old = write_folder_data(root / "old", classes=("red", "green"), count=10)
    run(make_recipe(old_settings(old, "copy")), root / "base", quiet=True)
    shutil.rmtree(old)
    write_folder_data(root / "new", classes=("goat", "sheep", "red"), count=9)
    extend(root / "base", root / "new", ["sheep"], root / "run", quiet=True)
    return root


@pytest.fixture
def names_only(make_folder_data: Callable[..., Path], tmp_path: Path) -> Path:
    """A run whose memory has names alone, beside its data in old/."""
    run(
        make_recipe(old_settings(make_folder_data("old", classes=("red", "green"), count=10), "path")),
        tmp_path / "base",
        quiet=True,
    )
    return tmp_path / "base"


@pytest.fixture(scope="session")
def packed(extended: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last step of the extended run as a pack."""
    return pack(extended / "run", 2, tmp_path_factory.mktemp("packs") / "sheep.zip").path


@pytest.fixture
def repack(packed: Path, tmp_path: Path) -> Callable[..., Path]:
    """Writes a pack anew, its files and manifest changed; the manifest's sizes and hashes are made right again."""

    def write(change: Callable[[dict[str, bytes], dict[str, Any]], None], *, honest: bool = True) -> Path:
        with zipfile.ZipFile(packed) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        manifest = json.loads(files.pop("manifest.json"))
        change(files, manifest)
        if honest:
            manifest["files"] = {
                name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()
            }
        path = tmp_path / "changed.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("manifest.json", json.dumps(manifest))
            for name, data in files.items():
                archive.writestr(name, data)
        return path

    return write
