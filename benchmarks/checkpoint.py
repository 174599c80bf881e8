"""How long learning waits for a checkpoint: written at once, and from a copy while learning goes on.

    python benchmarks/checkpoint.py animals.yaml --out checkpoint.json --folder runs

The base step of a recipe, in which the whole network learns; by turns, so that both see the same disk.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from ipseg.scenario.split import Step
from ipseg.training.checkpoint import Checkpoint
from ipseg.training.recipe import load_recipe


def learner(recipe: str, device: str, path: Path) -> Checkpoint:
    """The network of a recipe with two classes, and an optimizer that has taken a step."""
    method = load_recipe(recipe).method.build(load_recipe(recipe).model, pretrained=False)
    method.begin_step(Step(0, ("one", "other"), (), ()))
    network = method.network.to(device, memory_format=torch.channels_last)
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    optimizer = torch.optim.SGD(weights, lr=0.0, momentum=0.9)
    for weight in weights:
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    return Checkpoint(path, network, optimizer)


def seconds(what: Callable[[], None]) -> float:
    """That it takes, with what the device still had to do."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


def main() -> None:
    """Seconds of both, again and again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", help="a recipe's name or file")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--folder", type=Path, default=Path(), help="on the disk that counts")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        checkpoint = learner(options.recipe, device, Path(folder) / "checkpoint.safetensors")
        with checkpoint.writing():
            for repeat in range(options.repeats):
                copied = seconds(lambda: checkpoint.save(repeat))  # noqa: B023 - called at once
                written = copied + seconds(checkpoint.wait)
                rows.append({"at once": written, "beside": copied})
                print(json.dumps(rows[-1]), flush=True)
        size = checkpoint.path.stat().st_size
    ratio = statistics.median(row["beside"] / row["at once"] for row in rows)
    options.out.write_text(json.dumps({"device": device, "bytes": size, "ratio": ratio, "rows": rows}) + "\n")
    print(f"{size / 1e6:.0f} MB; learning waits {ratio:.2f} of the time that writing takes")


if __name__ == "__main__":
    main()
