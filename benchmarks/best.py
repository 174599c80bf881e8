"""Which rate was best for each method: `python benchmarks/best.py runs/rates`, after `ipseg sweep` of rates.yaml.

The rule is the same for all: the highest mIoU over all classes after the last step.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path


def best(sweep: Path) -> list[str]:
    """A line a method: the chosen setting, and what each of the others reached, or how far a run is that failed."""
    rows = json.loads((sweep / "comparison.json").read_text(encoding="utf-8"))["rows"]
    tried: dict[str, dict[str, float]] = defaultdict(dict)
    unfinished: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        method, _, setting = row["run"].rpartition(", ")  # one setting is varied; a name may have commas of its own
        if row["state"] == "finished":
            tried[method][setting] = row["mean"]["all"]
        else:
            unfinished[method].append(f"{setting}: {row['state']}")
    lines = []
    for method, reached in tried.items():
        told = [f"{setting}: {value:.1f}" for setting, value in reached.items()] + unfinished[method]
        lines.append(f"{method}: {max(reached, key=reached.__getitem__)}   ({', '.join(told)})")
    return lines


if __name__ == "__main__":
    print("\n".join(best(Path(sys.argv[1]))))
