"""How many heads a gate runs after 1, 6, 11, ... steps, and whether the labels stay: on a finished run.

    ipseg train scenes_3-1_ipseg --set data.classes=60 --set scenario.name=scenes/10-1 ... --out runs/many
    python benchmarks/gates.py runs/many --out gates.json

Also writes which heads ran in every validation picture: benchmarks/speed.py times large networks with that.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import torch

from ipseg.apps.model import as_tensor, load_model
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import make_recipe


def measure(run: Path, step: int, device: str) -> dict[str, Any]:
    """One step's model on the validation pictures: which heads ran, and how many labels are those of all heads."""
    pictures = make_recipe(RunFolder.open(run).settings()).data.build().val
    whole = load_model(run, step, device, ["method.gate=none"])
    gated_model = load_model(run, step, device, ["method.gate=exact"])
    equal: list[float] = []
    heads: list[list[int]] = []
    classes = [len(s.new) for s in whole.scenario.steps[: step + 1]]
    for index in range(len(pictures.names)):
        image = as_tensor(pictures.image(index), whole.device)
        labels = whole.method.predict(image).labels
        gated = gated_model.method.predict(image)
        equal.append(float((gated.labels == labels).float().mean()))
        ran = [bool(scores.any()) for scores in gated.scores[0, 1:].split(classes)]
        heads.append([head for head, there in enumerate(ran) if there])
    share = statistics.mean(len(ran) / len(classes) for ran in heads)
    found = {"heads_run": {"exact": share}, "equal_labels": {"exact": statistics.mean(equal)}}
    return {"steps": step + 1, **found, "gates": {"exact": heads}}


def main() -> None:
    """Every step that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 2, 6, 11, 51], help="models after so many steps")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    torch.manual_seed(0)
    rows = [measure(options.run, steps - 1, options.device) for steps in options.steps]
    options.out.write_text(json.dumps({"models": rows}))
    for row in rows:
        print({key: value for key, value in row.items() if key != "gates"})


if __name__ == "__main__":
    main()
