"""Kill a run with SIGKILL in several steps, resume it each time, and compare it with one that was never stopped.

    python benchmarks/resume.py --out runs/resume --device cuda --set model.backbone.weights=none

Prints JSON: whether each step's weights, and the results, are equal bit for bit. Exit code 1 if not.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path

from ipseg.training.tensors import digest, load_tensors

SMALL = ["deterministic=true", "training.checkpoint_seconds=0.5", "data.train=160", "data.val=10",
         "training.batch_size=8", "training.epochs=4", "training.later_epochs=6"]  # fmt: skip
KILLED_IN = (0, 1, 3)


def train(*arguments: str, log: Path) -> subprocess.Popen[bytes]:
    """`ipseg train`, in a process of its own."""
    with log.open("a") as file:
        command = [sys.executable, "-m", "ipseg", "train", *arguments]
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)


def killed_and_resumed(start: list[str], run: Path, log: Path) -> list[int]:
    """Kill the run soon after the first checkpoint of each chosen step; returns the steps in which that worked."""
    process, killed = train(*start, log=log), []
    for step in KILLED_IN:
        checkpoint = run / f"step_{step:02d}" / "checkpoint.safetensors"
        while not checkpoint.is_file() and process.poll() is None:
            time.sleep(0.01)
        if process.poll() is None:
            time.sleep(0.2)
            process.kill()
            killed.append(step)
        process.wait()
        process = train(str(run), "--resume", log=log)
    process.wait()
    return killed


def content(path: Path) -> str:
    """A digest of the tensors in a file (safetensors writes its header in any order), or of its bytes."""
    if path.suffix == ".safetensors":
        return digest(load_tensors(path, "the weights")[0])
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> int:
    """Run both, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--set", dest="changes", action="append", default=[], help="KEY=VALUE for both runs")
    options = parser.parse_args()
    options.out.mkdir(parents=True)
    changes = [*SMALL, f"device={options.device}", f"training.precision={options.precision}", *options.changes]
    start = ["scenes_3-1_ipseg", *(word for change in changes for word in ("--set", change)), "--out"]
    whole, cut, log = options.out / "whole", options.out / "cut", options.out / "log.txt"
    train(*start, str(whole), log=log).wait()
    killed = killed_and_resumed([*start, str(cut)], cut, log)
    files = [f"step_{step:02d}/weights.safetensors" for step in range(4)] + ["results.json"]
    equal = {file: content(whole / file) == content(cut / file) for file in files}
    print(json.dumps({"device": options.device, "precision": options.precision, "killed in": killed, "equal": equal}))
    return 0 if all(equal.values()) and len(killed) == len(KILLED_IN) else 1


if __name__ == "__main__":
    sys.exit(main())
