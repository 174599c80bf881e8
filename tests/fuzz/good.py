"""The good files that cases begin with, made by the commands themselves."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import forked
import numpy as np
import yaml
from PIL import Image

from conftest import tiny, write_folder_data

SHORT = "training.later_epochs=1"


def make(good: Path) -> None:
    """Everything that cases change, made by the commands themselves."""
    settings = tiny()
    settings["data"] |= {"train": 8, "val": 2}
    (good / "recipe.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    (good / "grid").mkdir()
    (good / "grid" / "short.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    (good / "grid" / "grid.yaml").write_text(
        "base: short.yaml\nset: {training: {lr: 0.1}}\nscenarios: [2-1, 2-2 disjoint]\nseeds: [0, 1]\n"
        "methods: [ipseg, finetune]\nruns: {one: {}, two: {memory: {size: 2}}}\n"
    )
    old = write_folder_data(good / "old", classes=("red", "green"), count=6)
    base = settings | {"data": {"name": "folder", "path": str(old)}, "scenario": {"name": "1-1"}, "name": "base"}
    base["memory"] = {"size": 3, "store": "copy"}
    base["training"] |= {"log_every": 1}
    (good / "old.yaml").write_text(yaml.safe_dump(base), encoding="utf-8")
    write_folder_data(good / "new", classes=("goat", "sheep", "red"), count=6)
    write_folder_data(good / "bare", count=2, saliency=False)
    shutil.copy(next((good / "new" / "images").iterdir()), good / "photo.png")
    for words, file in (
        (["train", good / "old.yaml", "--out", good / "base", "--quiet"], "base/results.json"),
        (
            [
                "extend",
                good / "base",
                "--data",
                good / "new",
                "--classes",
                "sheep",
                "--out",
                good / "extended",
                "--set",
                SHORT,
            ],
            "extended/extend.json",
        ),
        (["pack", good / "extended", "--out", good / "sheep.zip"], "sheep.zip"),
    ):
        done = forked.call(words, good / "log")
        if not (good / file).is_file():
            sys.exit(f"{words} ended with {done.code}:\n{done.text}")
    log = good / "log"
    for work in (lambda: make_checkpoint(good), lambda: make_models(good), lambda: make_coco(good / "coco")):
        done = forked.finish(forked.fork(work, log), log, time.monotonic(), 600)
        if done.code:
            sys.exit(done.text)


def make_checkpoint(good: Path) -> None:
    """A run that was stopped in its second step."""
    from ipseg.errors import Interrupted
    from ipseg.training import experiment
    from ipseg.training.recipe import make_recipe

    class Halting:
        def __enter__(self) -> Callable[[], bool]:
            return (good / "halted" / "step_01").is_dir

        def __exit__(self, *_: object) -> None: ...

    experiment.stop_request = Halting
    try:
        experiment.run(make_recipe(yaml.safe_load((good / "recipe.yaml").read_text())), good / "halted", quiet=True)
    except Interrupted:
        return
    raise AssertionError("it was not stopped")


def make_models(good: Path) -> None:
    """A small ONNX network, and weights to begin with."""
    import onnx
    import timm
    from onnx import TensorProto, helper
    from safetensors.torch import save_file

    save_file(
        timm.create_model("resnet10t", pretrained=False).state_dict(),
        good / "pretrained.safetensors",
        metadata={"facts": "{}"},
    )
    weight = helper.make_tensor("w", TensorProto.FLOAT, [1, 3, 1, 1], [0.3, 0.3, 0.3])
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Sigmoid", ["c"], ["y"])]
    shapes = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, channels, "h", "w"])
        for name, channels in (("x", 3), ("y", 1))
    ]
    graph = helper.make_graph(nodes, "g", shapes[:1], shapes[1:], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), good / "model.onnx")


def make_coco(root: Path) -> None:
    """Two splits with polygons and run lengths."""
    (root / "annotations").mkdir(parents=True)
    for split in ("train2017", "val2017"):
        (root / split).mkdir()
        annotations, images = [], []
        for i in range(2):
            Image.fromarray(np.full((32, 48, 3), 100 + i, np.uint8)).save(root / split / f"{i}.jpg")
            images.append({"id": i, "file_name": f"{i}.jpg", "height": 32, "width": 48})
            annotations += [
                {
                    "id": 2 * i,
                    "image_id": i,
                    "category_id": 7,
                    "iscrowd": 0,
                    "segmentation": [[1, 1, 20, 1, 20, 20, 1, 20]],
                },
                {
                    "id": 2 * i + 1,
                    "image_id": i,
                    "category_id": 9,
                    "iscrowd": 1,
                    "segmentation": {"counts": [1000, 36, 500], "size": [32, 48]},
                },
            ]
        categories = [{"id": 7, "name": "cat"}, {"id": 9, "name": "dog"}]
        (root / "annotations" / f"instances_{split}.json").write_text(
            json.dumps({"images": images, "annotations": annotations, "categories": categories})
        )
