"""Collect the finished runs of a sweep: one JSON line a run, small enough for the repository.

    python benchmarks/collect.py runs/animals --out benchmarks/animals/results.jsonl --machine "1 x NVIDIA H200"

A line has the run's name, method, scenario, setting and seed; of every step the IoU of each class, the image-level
accuracy and the number of images, of the last one the confusion matrix; all settings as `section.key`, of paths the
last part; speed of training; and the provenance: commit, torch, date, machine, command. Runs that are in the file
already are replaced, the others stay.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

Line = dict[str, Any]
RESULT = ("name", "method", "scenario", "setting", "seed", "oracle")
STEP = ("step", "new", "iou", "image_accuracy", "images")


def line_of(run: Path, machine: str, command: str) -> Line:
    """A finished run."""
    result = json.loads((run / "results.json").read_text(encoding="utf-8"))
    made = json.loads((run / "run.json").read_text(encoding="utf-8"))
    steps = [{key: step[key] for key in STEP if step.get(key) is not None} for step in result["steps"]]
    steps[-1]["confusion"] = result["steps"][-1].get("confusion")
    return {
        "run": run.name,
        **{key: result[key] for key in RESULT},
        "steps": rounded(steps),
        "settings": dict(flat(yaml.safe_load((run / "recipe.yaml").read_text(encoding="utf-8")))),
        "training": [speeds(run).get(step["step"]) for step in steps],
        "commit": ((made.get("git") or {}).get("commit") or "")[:7] or None,
        "torch": made.get("versions", {}).get("torch"),
        "date": str(made.get("started") or "")[:10] or None,
        "machine": machine,
        "command": f"{command} --only {run.name}",
    }


def flat(section: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings as `section.key`; where files lie on a machine is left out."""
    for key, value in section.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            place = isinstance(value, str) and value.startswith(("/", ".", "~"))
            yield f"{prefix}{key}", Path(value).name if place else value


def speeds(run: Path) -> dict[int, Line]:
    """Iterations and images a second of every step, from the last line that the log has of it."""
    found: dict[int, Line] = {}
    for text in (run / "log.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(text)
        if entry["event"] == "train":
            found[entry["step"]] = {"iterations": entry["of"], "images_a_second": entry["images_a_second"]}
    return found


def rounded(value: Any) -> Any:
    """Fractions to six digits."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return round(value, 6) if isinstance(value, float) else value


def main(words: Sequence[str] | None = None) -> int:
    """Collect a sweep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", type=Path, help="the folder of a sweep, finished or not")
    parser.add_argument("--out", type=Path, required=True, help="benchmarks/STUDY/results.jsonl")
    parser.add_argument("--machine", required=True, help="what it ran on: 1 x NVIDIA H200")
    options = parser.parse_args(words)
    command = f"ipseg sweep benchmarks/{options.out.parent.name}/grid.yaml"
    lines: dict[str, Line] = {}
    if options.out.is_file():
        lines = {line["run"]: line for line in map(json.loads, options.out.read_text(encoding="utf-8").splitlines())}
    for run in sorted((options.sweep / "runs").iterdir()):
        results = run / "results.json"
        if results.is_file() and json.loads(results.read_text(encoding="utf-8"))["complete"]:
            lines[run.name] = line_of(run, options.machine, command)
        else:
            print(f"left out, not finished: {run.name}", file=sys.stderr)
    text = "".join(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n" for line in lines.values())
    options.out.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
