"""Every part of IPSeg on and off, over seeds, from one recipe: results as JSON lines while it goes, a table at the end.

    python benchmarks/ablations.py --recipe scenes_3-1_ipseg --out runs/ablations --seeds 0 1 2 --jobs 6

A run that is cut off goes on where it was; finished runs are not repeated.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ipseg.data.source import DataConfig, Source

OFF = {
    "ip": ["method.image_posterior=false"],
    "sd": ["method.decoupling=false", "method.noise_filtering=false"],
    "nf": ["method.noise_filtering=false"],
}
VARIANTS: dict[str, list[str]] = {
    "IPSeg (IP, SD, NF)": [],
    "IP, SD": OFF["nf"],
    "SD": OFF["ip"] + OFF["nf"],
    "IP": OFF["sd"],
    "none": OFF["ip"] + OFF["sd"],
    "fine-tuning": ["method={name: finetune, head: ipseg, backbone_lr: 0.3}"],
    "joint (softmax)": ["scenario.name=joint", "method={name: finetune, head: ipseg, backbone_lr: 0.3}"],
    "image labels: part": ["method.image_labels=part"],
    "image labels: full (oracle)": ["method.image_labels=full"],
    "without memory": ["memory.size=0"],
    "pseudo-labels everywhere": ["method.pseudo_labels_on=everywhere"],
    "half of each batch rehearses": ["method.rehearsal=0.5"],
    "none, half of each batch rehearses (SSUL-M)": OFF["ip"] + OFF["sd"] + ["method.rehearsal=0.5"],
    "known classes ignored, unknown dropped (the paper's)": ["method.known_classes=ignore", "method.unknown=drop"],
    "known classes ignored (Eq. 5)": ["method.known_classes=ignore"],
    "unknown dropped (section 3.4)": ["method.unknown=drop"],
    "posterior mix of the authors' code": ["method.posterior_current=null"],
    "confidence 0.7 (authors' code)": ["method.confidence=0.7"],
}


def train_one(recipe: str, name: str, seed: int, changes: list[str], out: Path, threads: int) -> dict[str, Any]:
    """One run in a process of its own."""
    import torch

    from ipseg.engine.experiment import run
    from ipseg.engine.recipe import load_recipe

    torch.set_num_threads(threads)
    began = time.time()
    made = load_recipe(recipe, [*VARIANTS[name], *changes, f"seed={seed}", f"data.seed={seed}", f'name="{name}"'])
    folder = out / f"{''.join(c if c.isalnum() else '-' for c in name)}_{seed}"
    result = run(made, folder, resume=True, quiet=True, source=pictures(made.data))
    return {"variant": name, "seed": seed, "seconds": round(time.time() - began, 1), "final": result.final(),
            "steps": [step.miou["all"] for step in result.steps],
            "images": result.steps[-1].image_accuracy, "iou": result.steps[-1].iou}  # fmt: skip


@cache
def pictures(data: DataConfig) -> Source:
    """Drawn once in a process."""
    return data.build()


def table(rows: list[dict[str, Any]]) -> str:
    """Mean and spread over seeds, as Markdown."""
    lines = ["| variant | base | new | all | average | seeds |", "|---|---|---|---|---|---|"]
    for name in VARIANTS:
        runs = [row["final"] for row in rows if row["variant"] == name]
        if not runs:
            continue
        columns = [[run["miou"][key] for run in runs] for key in ("base", "new", "all")] + [
            [run["average"] for run in runs]
        ]
        lines.append(f"| {name} | " + " | ".join(_say(column) for column in columns) + f" | {len(runs)} |")
    return "\n".join(lines)


def _say(values: list[float | None]) -> str:
    known = [100 * value for value in values if value is not None]
    if not known:
        return "–"
    spread = f" ± {statistics.stdev(known):.1f}" if len(known) > 1 else ""
    return f"{statistics.mean(known):.1f}{spread}"


def main() -> None:
    """Train what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="scenes_3-1_ipseg")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), help="part of a variant's name is enough")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--set", dest="changes", action="append", default=[], help="KEY=VALUE for every run")
    options = parser.parse_args()
    chosen = [name for name in VARIANTS if any(part in name for part in options.variants)]
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    threads = max(1, (os.cpu_count() or 1) // options.jobs)
    with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        jobs = {
            pool.submit(train_one, options.recipe, name, seed, options.changes, options.out, threads): (name, seed)
            for name in chosen
            for seed in options.seeds
        }
        for job in as_completed(jobs):
            try:
                rows.append(job.result())
            except Exception as error:  # one failed run must not stop the others
                print("FAILED", *jobs[job], repr(error), flush=True)
                continue
            with (options.out / "results.jsonl").open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            print(rows[-1]["variant"], rows[-1]["seed"], rows[-1]["seconds"], rows[-1]["final"]["miou"], flush=True)
    print(table(rows))
    (options.out / "table.md").write_text(table(rows) + "\n")


if __name__ == "__main__":
    main()
