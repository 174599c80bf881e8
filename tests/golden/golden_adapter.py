"""The one part of the golden curves that knows ipseg's names: how a method, its batches and a run are made.

After a refactoring that keeps the numbers, only this file changes. Everything else (golden_curves.py, the stored inputs
and curves) knows arrays and numbers alone, so that a curve stored before can be compared with one computed after. Parts
of the loss keep the names that they have in the stored curves: where a method renames one, `Subject.losses` gives it
its old name back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ipseg.data.batch import Batch, StepBatch
from ipseg.methods.registry import METHODS, method_config
from ipseg.models._torchvision import ensure_torchvision
from ipseg.models.backbone import BackboneConfig
from ipseg.models.boxes import full_boxes
from ipseg.models.network import ModelConfig
from ipseg.scenario import Step
from ipseg.training.experiment import run
from ipseg.training.recipe import make_recipe
from ipseg.training.tensors import load_tensors

BATCH_SIZE = 4
CLASSES = 5
BASE_CLASSES = 3

VARIANTS: dict[str, dict[str, Any]] = {
    "ipseg_no_posterior": {"name": "ipseg", "image_posterior": False},
    "ipseg_no_decoupling": {"name": "ipseg", "decoupling": False},
    "ipseg_swin": {"name": "ipseg"},
    "ipseg_official": {"name": "ipseg", "variant": "official"},
    "ipseg_official_no_posterior": {"name": "ipseg", "variant": "official", "image_posterior": False},
    "ipseg_official_no_decoupling": {"name": "ipseg", "variant": "official", "decoupling": False},
    "ipseg_small_heads": {"name": "ipseg", "head": "small"},
    "mib_ewf": {"name": "mib", "fuse": "endpoints", "freeze_old_classifiers": True},
    "plop_ewf": {"name": "plop", "fuse": "endpoints", "freeze_old_classifiers": True},
    "plop_ucb": {"name": "plop", "pixel_weights": "ucb"},
    "ssul_ucb": {"name": "ssul", "pixel_weights": "ucb"},
    "plop_official": {"name": "plop", "variant": "official"},
}
CASES: dict[str, dict[str, Any]] = {name: {"name": name} for name in METHODS} | VARIANTS
"""Every registered method with its defaults, and variants of some."""
DRAWS = {"star", "adapter", "rcil"}
"""Cases whose loss draws random numbers: each iteration begins with a seed of its own."""

ENGINE = "engine"
"""A run from drawn scenes to results: loader, sampler, augmentation, memory, checkpoints, evaluation."""


class Inputs:
    """inputs.npz: 16 images of up to 64 x 64 pixels, with some padding, and which of them are seen when.

    Rectangles and discs in the colors of five classes, one object of no class in each image, gradients behind. Masks
    hold the classes 1 to 5, 0 and 255. Step 0 learns 1 to 3, step 1 learns 4 and 5; images may hold classes of both.
    """

    def __init__(self, path: Path) -> None:
        with np.load(path) as arrays:
            self.images, self.masks, self.salient = (arrays[name] for name in ("images", "labels", "salient"))
            self.sizes, self.image_labels = arrays["sizes"], arrays["image_labels"].astype(bool)
            self.steps = [arrays["base"].tolist(), arrays["later"].tolist()]
            self.memory, self.shown = arrays["memory"].tolist(), arrays["shown"].tolist()


class Subject:
    """A method that learns from the stored images, batch after batch."""

    def __init__(self, case: str, inputs: Inputs) -> None:
        settings, self.inputs = CASES[case], inputs
        self.config = method_config(settings)
        backbone = _backbone("swin" if case.endswith("_swin") else "resnet")
        no_dropout = {"decoder_dropout": 0.0, "posterior_dropout": 0.0}
        model = ModelConfig(backbone=backbone, width=8, posterior_width=16, rates=(1, 2), **no_dropout)
        self.method = self.config.build(model)
        every = tuple(f"class {value}" for value in range(1, 1 + CLASSES))
        sizes = [CLASSES] if settings["name"] == "joint" else [BASE_CLASSES, CLASSES - BASE_CLASSES]
        ends = np.cumsum(sizes).tolist()
        self.steps = [
            Step(index, every[end - size : end], every[: end - size], every[end:])
            for index, (size, end) in enumerate(zip(sizes, ends, strict=True))
        ]

    @property
    def network(self) -> nn.Module:
        """All that the method has learned."""
        return self.method.network

    def begin_step(self, index: int) -> None:
        self.step = self.steps[index]
        self.method.begin_step(self.step)

    def prepare(self) -> None:
        """What a method does before the first iteration."""
        count = self.plan().num_new
        passes = -(-len(self.inputs.steps[self.step.index]) // count)
        self.method.prepare([self.batch(iteration) for iteration in range(passes)])

    def end_step(self) -> None:
        """What a method does after the last one."""
        rows = self.inputs.steps[self.step.index]
        some = [rows[start : start + BATCH_SIZE] for start in range(0, len(rows), BATCH_SIZE)]
        self.method.end_step(StepBatch(self.rows(each, replayed=0), len(each)) for each in some)

    def groups(self) -> list[tuple[list[nn.Parameter], float]]:
        """What learns, and the multiple of the rate at which it does."""
        return [(group.parameters, group.factor) for group in self.method.parameter_groups()]

    def losses(self, iteration: int) -> Mapping[str, Tensor]:
        """The weighted parts of the loss, in training mode."""
        self.method.train_mode()
        return self.method.loss(self.batch(iteration))

    def scores(self) -> Tensor:
        """Of images that fill the canvas, after the last step."""
        batch = self.rows(self.inputs.shown, replayed=0)
        batch = replace(batch, boxes=full_boxes(batch.images))
        if self.config.uses_regions:
            batch = replace(batch, regions=_grid(np.full((len(batch), 2), 64)))
        return self.method.predict_batch(batch).scores

    # ---- batches, by index -------------------------------------------------------------------------------------

    def plan(self) -> Any:
        return self.method.plan(BATCH_SIZE, len(self.inputs.memory) if self.step.index else 0)

    def batch(self, iteration: int) -> StepBatch:
        """The method's plan filled with one row after the other of the step, and of the memory."""
        plan, inputs = self.plan(), self.inputs

        def some(rows: list[int], count: int, offset: int = 0) -> list[int]:
            return [rows[(offset + iteration * count + i) % len(rows)] for i in range(count)]

        current = some(inputs.steps[self.step.index], plan.num_new)
        crops = self.rows(current + some(inputs.memory, plan.num_replayed), plan.num_replayed)
        more = plan.num_replay_images
        replay_images = self.rows(some(inputs.memory, more, offset=1), more) if more else None
        return StepBatch(crops, plan.num_new, replay_images, plan.num_posterior)

    def rows(self, rows: list[int], replayed: int) -> Batch:
        """Images with what the step may see of them; the last ones come from memory."""
        inputs, seen = self.inputs, len(self.step.seen)
        masks, sizes = inputs.masks[rows], inputs.sizes[rows].astype(int)
        labels, stored = self.visible(masks, self.step.index), np.zeros((len(rows), seen), dtype=bool)
        for place in range(len(rows) - replayed, len(rows)):
            labels[place] = self.replayed(rows[place])
            stored[place, :BASE_CLASSES] = inputs.image_labels[rows[place], :BASE_CLASSES]
        boxes = torch.tensor([[0.0, 0.0, height, width] for height, width in sizes.tolist()])
        salient, images = torch.from_numpy(inputs.salient[rows] > 0), _images(inputs.images[rows])
        batch = Batch(images, boxes, torch.from_numpy(labels).long(), salient, torch.from_numpy(stored))
        return replace(batch, regions=_grid(sizes)) if self.config.uses_regions else batch

    def visible(self, masks: NDArray[np.uint8], step: int) -> NDArray[np.uint8]:
        """Masks without the classes of other steps. A class's learned index is its mask value."""
        own = [self.steps[step].seen.index(name) + 1 for name in self.steps[step].new]
        return np.where(np.isin(masks, [*own, 255]), masks, 0).astype(np.uint8)

    def replayed(self, row: int) -> NDArray[np.uint8]:
        """Labels of a stored image: of the step that stored it, of the running one if it has the image too, or both."""
        mask, wanted = self.inputs.masks[row], self.config.replayed_labels
        then = self.visible(mask, 0) if wanted in ("annotated", "sampled") else np.where(mask == 255, mask, 0)
        again = wanted in ("annotated", "current") and row in self.inputs.steps[1]
        return np.where(then == 0, self.visible(mask, 1), then) if again else then


def _images(images: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy(images).permute(0, 3, 1, 2).to(torch.get_default_dtype()) / 255


def _grid(sizes: NDArray[np.int64]) -> Tensor:
    """Squares of 9 pixels as regions; of those in the first line only the first, the others are of no region."""
    rows, columns = np.indices((64, 64)) // 9
    grid = np.where((rows == 0) & (columns > 0), 255, 8 * rows + columns)
    maps = [
        np.pad(grid[:height, :width], ((0, 64 - height), (0, 64 - width)), constant_values=255)
        for height, width in sizes
    ]
    return torch.from_numpy(np.stack(maps)).long()


def _backbone(kind: str) -> BackboneConfig:
    """A timm network so narrow that 40 iterations in double precision take half a second."""
    ensure_torchvision()
    import timm

    def golden_resnet(**options: Any) -> nn.Module:
        return timm.models.resnet.test_resnet(**options, channels=(8, 16, 16, 16), stem_width=8)

    def golden_swin(**options: Any) -> nn.Module:
        shape = {"embed_dim": 8, "depths": (1, 1, 1, 1), "num_heads": (1, 1, 2, 2), "window_size": 2}
        return timm.models.swin_transformer.swin_tiny_patch4_window7_224(**options | shape | {"drop_path_rate": 0.0})

    make = {"resnet": golden_resnet, "swin": golden_swin}[kind]
    if not timm.is_model(make.__name__):
        timm.models.register_model(make)
    return BackboneConfig(name=make.__name__)


def engine_run(folder: Path) -> tuple[list[tuple[dict[str, list[float]], list[Tensor]]], float]:
    """Of each step the losses of all iterations and the weights that it left; and the last step's mIoU."""
    settings = {
        "data": {"name": "scenes", "size": [64, 64], "classes": 4, "train": 80, "val": 24},
        "scenario": {"name": "1-1", "classes": ["cow", "bus"]},
        "model": {"backbone": {"name": "test_resnet"}, "width": 16, "posterior_width": 64, "rates": [1, 2]},
        "method": {"name": "ipseg"},
        "memory": {"size": 8},
        "training": {
            "epochs": 12,
            "later_epochs": 16,
            "batch_size": 4,
            "crop": [64, 64],
            "lr": 0.01,
            "later_lr": 0.3,
            "scale": [0.75, 1.5],
            "optimizer": "adamw",
            "later_optimizer": "sgd",
            "checkpoint_seconds": 0,
            "log_every": 1,
        },
        "device": "cpu",
    }
    results = run(make_recipe(settings), folder / "run", quiet=True)
    losses: list[dict[str, list[float]]] = [{} for _ in results.steps]
    for line in map(json.loads, (folder / "run" / "log.jsonl").read_text(encoding="utf-8").splitlines()):
        if line["event"] == "train":
            for name, value in line["loss"].items():
                losses[line["step"]].setdefault(name, []).append(value)
    files = (folder / "run" / f"step_{index:02d}" / "weights.safetensors" for index in range(len(losses)))
    weights = [list(load_tensors(file, "weights")[0].values()) for file in files]
    return list(zip(losses, weights, strict=True)), results.steps[-1].miou["all"]
