"""Give every command files that were good until some of them changed, and see that it says what is wrong.

    python tests/fuzz/fuzz.py --minutes 5 --seed 0
    python tests/fuzz/fuzz.py --seed 0 --only 137    # one case again, with what it said

Recipes, grids, run folders, checkpoints, packs, weights, masks, COCO's JSON and ONNX files are changed: bytes flipped,
cut, doubled; values of other types, huge numbers, deep nesting, odd text; links. A command may succeed, fail or be
interrupted (exit codes 0, 1 where it says so, 2 and 130), within seconds and a memory, and never with a traceback.
A row a kind: cases, and how they ended. Exit code 1 if one broke a rule.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
import forked
from changes import change_file
from good import SHORT, make

SECONDS, PATIENCE, MEMORY = 10.0, 120.0, 1 << 30
"""What a command may take of the processor, by the clock, and of memory, the program's own included."""
LONG, STOPPED = ("train", "extend"), 130
"""What a recipe may ask to take for days: it gets Ctrl-C after a while, and must end as the docs say."""


# ---- kinds of cases -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """Files that are copied and changed, and the commands that read them."""

    source: str
    """Below the good files: a file or a folder."""
    pattern: tuple[str, ...]
    """Which of them are changed."""
    commands: tuple[tuple[str, ...], ...]
    """IT is the changed copy, GOOD the folder of good files, OUT a place for results."""
    weight: int = 1


RUN = (
    ("compare", "IT"),
    ("report", "IT", "--out", "OUT.html", "--gallery", "0"),
    ("evaluate", "IT"),
    ("memory", "IT"),
    ("predict", "IT", "GOOD/photo.png", "--out", "OUT"),
    ("pack", "IT", "--out", "OUT.zip"),
    ("train", "IT", "--resume", "--quiet"),
    ("train", "IT", "--resume", "--dry-run"),
    ("report", "IT", "--out", "OUT.html"),
    ("extend", "IT", "--data", "GOOD/new", "--classes", "sheep", "--out", "OUT", "--quiet", "--set", SHORT),
    ("apply", "GOOD/sheep.zip", "IT", "--out", "OUT"),
    ("cost", "IT", "--size", "64"),
    ("explain", "IT", "GOOD/photo.png", "--out", "OUT.png"),
)
KINDS = {
    "recipe": Kind(
        "recipe.yaml", ("*",), (("train", "IT", "--dry-run"), ("train", "IT", "--out", "OUT", "--quiet")), 5
    ),
    "grid": Kind(
        "grid", ("grid.yaml",), (("sweep", "IT/grid.yaml", "--dry-run"), ("sweep", "IT/grid.yaml", "--table")), 4
    ),
    "run": Kind(
        "base", ("recipe.yaml", "run.json", "results.json", "log.jsonl", "step_*/step.json", "*/memory/*.json"), RUN, 10
    ),
    "memory": Kind("base", ("*/memory/*.json", "*/memory/**/*.png"), RUN, 3),
    "weights": Kind("base", ("*/weights.safetensors",), RUN, 4),
    "checkpoint": Kind("halted", ("*/checkpoint.safetensors",), (("train", "IT", "--resume", "--quiet"),), 3),
    "pack": Kind("sheep.zip", ("*",), (("apply", "IT", "GOOD/base", "--out", "OUT"),), 5),
    "masks": Kind(
        "new",
        ("masks/*", "images/*", "saliency/*", "classes.txt"),
        (
            ("data", "check", "IT"),
            ("saliency", "IT", "--fallback", "--quiet"),
            ("evaluate", "GOOD/base", "--data", "IT"),
            ("predict", "GOOD/base", "IT/images", "--out", "OUT"),
            ("extend", "GOOD/base", "--data", "IT", "--classes", "sheep", "--out", "OUT", "--quiet", "--set", SHORT),
        ),
        4,
    ),
    "coco": Kind("coco", ("annotations/*.json",), (("data", "check", "IT", "--format", "coco"),), 4),
    "onnx": Kind("model.onnx", ("*",), (("saliency", "GOOD/bare", "--model", "IT", "--out", "OUT", "--quiet"),), 2),
    "pretrained": Kind(
        "pretrained.safetensors",
        ("*",),
        (("train", "GOOD/recipe.yaml", "--dry-run", "--set", "model.backbone.weights=IT"),),
        1,
    ),
}


# ---- running --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One command on one changed copy."""

    number: int
    kind: str
    words: tuple[str, ...]
    changed: str
    outcome: forked.Outcome
    problem: str


def copy_changed(name: str, good: Path, place: Path, rng: random.Random) -> tuple[Path, str]:
    """A copy of the good files of a kind with one or two changed, and which."""
    kind = KINDS[name]
    source = good / kind.source
    it = place / source.name
    copy = shutil.copytree if source.is_dir() else shutil.copy
    copy(source, it)
    files = [it] if it.is_file() else sorted({file for one in kind.pattern for file in it.glob(one) if file.is_file()})
    chosen = rng.sample(files, min(len(files), rng.choice((1, 1, 1, 2))))
    for file in chosen:
        change_file(file, rng)
    return it, ", ".join(str(file.relative_to(place)) for file in chosen)


def run(number: int, seed: int, good: Path, place: Path) -> Case:
    """Everything about a case follows from its number and the seed."""
    rng = random.Random(f"{seed} {number}")
    name = rng.choices(list(KINDS), [kind.weight for kind in KINDS.values()])[0]
    kind = KINDS[name]
    it, changed = copy_changed(name, good, place, rng)
    command = rng.choice(kind.commands)
    names = {"IT": str(it), "OUT": str(place / "out"), "GOOD": str(good)}
    words = []
    for word in command:
        for short, path in names.items():
            if word.startswith(short) or word.endswith(f"={short}"):
                word = word.replace(short, path, 1)  # noqa: PLW2901
                break
        words.append(word)
    os.chdir(place)
    polite = PATIENCE / 4 if command[0] in LONG else None
    outcome = forked.call(words, place / "log", seconds=PATIENCE, memory=3 * MEMORY, polite=polite)
    return Case(number, name, tuple(command), changed, outcome, problem(outcome, asked=name == "recipe"))


def problem(outcome: forked.Outcome, *, asked: bool) -> str:  # noqa: PLR0911
    """Which rule it broke. asked: a recipe may want a large network, and gets it."""
    if "Traceback (most recent call last)" in outcome.text:
        return "traceback: " + outcome.text.strip().splitlines()[-1][:200]
    if outcome.code == -9:
        return f"more than {PATIENCE:.0f} s"
    if outcome.code not in (0, 1, 2, STOPPED):
        return f"exit code {outcome.code}"
    if outcome.code and not outcome.text.strip():
        return f"exit code {outcome.code} without a word"
    if outcome.code == 1 and not any(word in outcome.text for word in SAID_WITH_1):
        return "exit code 1: " + outcome.text.strip()[-200:]
    if outcome.worked > SECONDS and outcome.code != STOPPED:
        return f"{outcome.worked:.0f} s of work"
    if outcome.peak > MEMORY and not (asked and outcome.code in (0, STOPPED)):
        return f"{outcome.peak / 2**20:.0f} MB"
    return ""


SAID_WITH_1 = ("not learned", "problem", "wrong", "of the grid", "error")
"""Commands whose answer is 'no' end with 1, and say so: `data check`, `extend` of what was not learned."""


def summary(ends: dict[str, Counter[str]], wrong: int, slowest: float, largest: int) -> str:
    """A line of JSON."""
    cases = sum(codes.total() for codes in ends.values())
    worst = {"slowest": round(slowest, 1), "peak MB": largest >> 20}
    return json.dumps({"cases": cases, "wrong": wrong, **worst, "exit codes": ends})


def main() -> int:
    """Cases until the time, or their number, is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--cases", type=int, default=1 << 30)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, nargs="*", help="these cases, with what they said")
    options = parser.parse_args()
    os.environ["IPSEG_CACHE"] = tempfile.mkdtemp(prefix="ipseg-fuzz-cache-")
    forked.import_all()
    ends: dict[str, Counter[str]] = defaultdict(Counter)
    wrong: list[Case] = []
    slowest, largest = 0.0, 0
    with tempfile.TemporaryDirectory(prefix="ipseg-fuzz-") as folder:
        good = Path(folder, "good")
        good.mkdir()
        make(good)
        end = time.monotonic() + 60 * options.minutes
        for number in options.only or range(options.first, options.first + options.cases):
            if time.monotonic() > end:
                break
            place = Path(folder, "case")
            place.mkdir()
            case = run(number, options.seed, good, place)
            ends[case.kind][str(case.outcome.code)] += 1
            slowest, largest = max(slowest, case.outcome.worked), max(largest, case.outcome.peak)
            if case.problem:
                wrong.append(case)
                print(f"{number} {case.kind} {' '.join(case.words)} [{case.changed}]: {case.problem}", flush=True)
            if options.only:
                print(case.outcome.text, f"exit code {case.outcome.code}, {case.outcome.worked:.1f} s of work")
            os.chdir("/")
            shutil.rmtree(place, ignore_errors=True)
            if number % 200 == 199:
                print(summary(ends, len(wrong), slowest, largest), flush=True)
    shutil.rmtree(os.environ["IPSEG_CACHE"], ignore_errors=True)
    print(summary(ends, len(wrong), slowest, largest))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
