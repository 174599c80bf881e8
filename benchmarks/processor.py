"""What a gated batch costs the processor: 16 pictures after 51 steps, recorded heads that do nothing. No GPU is needed.

    python benchmarks/processor.py --out processor.json

A GPU waits for this. `walking`: every batch sets the mode of every module anew, as it was before `network.switch`.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from unittest import mock

import torch
from speed import Gates, let_through

from ipseg.methods.registry import method_config
from ipseg.models.backbone import BackboneConfig
from ipseg.models.network import ModelConfig
from ipseg.models.recording import Recorder
from ipseg.scenario.split import ScenarioConfig

STEPS, PICTURES, ROUNDS = 51, 16, 60
GATES = Path(__file__).parent / "results" / "2026-11-15_gates.json"


def made() -> tuple[object, torch.Tensor]:
    """A small IPSeg after all steps, with the gates that a model of drawn scenes had, and pictures for it."""
    model = ModelConfig(backbone=BackboneConfig(name="resnet10t"), width=4, posterior_width=8, rates=(1,))
    scenario = ScenarioConfig(name="10-1").build("made up", tuple(f"class {number}" for number in range(60)))
    method = method_config({"name": "ipseg", "gate": "exact"}).build(model)
    for step in scenario.steps:
        method.begin_step(step)
    recorded = next(one for one in json.loads(GATES.read_text())["models"] if one["steps"] == STEPS)
    method.network.posterior = Gates(method.network.posterior, let_through(recorded["gates"])["exact"], STEPS)
    return method, torch.rand(PICTURES, 3, 32, 32)


@torch.no_grad()
def milliseconds() -> float:
    """Of a batch, once all parts are recorded."""
    method, images = made()
    method.recorder = Recorder(lambda _work: lambda: None)  # type: ignore[attr-defined]
    for _ in range(ROUNDS):
        method.predict(images)  # type: ignore[attr-defined]
    began = time.perf_counter()
    for _ in range(ROUNDS):
        method.predict(images)  # type: ignore[attr-defined]
    return (time.perf_counter() - began) / ROUNDS * 1000


def main() -> None:
    """Both ways by turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, list[float]] = {"walking": [], "now": []}
    for _ in range(3):
        found["now"].append(round(milliseconds(), 2))
        with mock.patch("ipseg.methods.ipseg.set_mode", lambda module, *, training: module.train(training)):
            found["walking"].append(round(milliseconds(), 2))
    options.out.write_text(json.dumps({"milliseconds": found}) + "\n")
    print(found)


if __name__ == "__main__":
    main()
