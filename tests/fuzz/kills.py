"""Kill commands with SIGKILL at random moments, go on as the docs say, and compare with what was never killed.

    python tests/fuzz/kills.py --minutes 10 --seed 0

Of every command all files are compared, tensors bit by bit; nothing unfinished may be left behind. A row a command:
kills that met it alive, and how many ends differed. Exit code 1 if one did.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
import forked

from conftest import old_settings, tiny, write_folder_data
from ipseg.files import TEMPORARIES
from ipseg.training.tensors import digest, load_tensors

NOT_LEARNED = 1
"""How `extend` ends on tiny data; the files are what counts."""
OF_TIME = ("log.jsonl", "run.json")
"""Files that say when; and logs, which have every start."""


@dataclass(frozen=True)
class Command:
    """One that is killed."""

    words: Callable[[Path], list[object]]
    """For a folder of the attempt."""
    again: Callable[[Path], list[object]]
    """What to call after a kill."""
    seconds: float = 0.0
    """How long it takes when nothing happens to it."""
    prepare: Callable[[Path], None] = lambda _: None
    """What it finds in its folder."""


def commands(stuff: Path) -> dict[str, Command]:
    """Each on tiny data. Those that write one thing are simply called again; runs go on with --resume."""

    def same(*words: object, out: str = "out", prepare: Callable[[Path], None] = lambda _: None) -> Command:
        def written(folder: Path) -> list[object]:
            return [folder / word if word in (out, "data") else word for word in words]

        return Command(written, written, prepare=prepare)

    def run(*words: object) -> Command:
        def begin(folder: Path) -> list[object]:
            return [*words, "--quiet", "--out", folder / "out"]

        def resume(folder: Path) -> list[object]:
            return [*begin(folder), "--resume"]

        return Command(begin, resume)

    base = stuff / "base"
    return {
        "train": run("train", stuff / "recipe.yaml"),
        "extend": run(
            "extend", base, "--data", stuff / "new", "--classes", "sheep", "--set", "training.later_epochs=3"
        ),
        "apply": Command(
            lambda folder: ["apply", stuff / "sheep.zip", base, "--out", folder / "out"],
            lambda folder: (
                [] if (folder / "out").is_dir() else ["apply", stuff / "sheep.zip", base, "--out", folder / "out"]
            ),
        ),
        "pack": Command(
            lambda folder: ["pack", stuff / "extended", "--out", folder / "out.zip"],
            lambda folder: (
                [] if (folder / "out.zip").is_file() else ["pack", stuff / "extended", "--out", folder / "out.zip"]
            ),
        ),
        "predict": same("predict", base, stuff / "new" / "images", "--out", "out", "--unknown", "--probabilities"),
        "saliency": same(
            "saliency", "data", "--fallback", "--quiet", out="data",
            prepare=lambda folder: shutil.copytree(stuff / "bare", folder / "data") and None,
        ),
        "sweep": same("sweep", stuff / "grid.yaml", "--quiet", "--out", "out"),
    }  # fmt: skip


def make(stuff: Path) -> None:
    """Data, recipes, a run to go on from, one that has gone on, and its pack."""
    settings = tiny()
    settings["training"] |= {"later_epochs": 4, "log_every": 1, "checkpoint_seconds": 0}
    (stuff / "recipe.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    (stuff / "short.yaml").write_text(yaml.safe_dump(tiny() | {"scenario": {"name": "2-2"}}), encoding="utf-8")
    (stuff / "grid.yaml").write_text("base: short.yaml\nruns: {one: {}, two: {method: {alpha_nf: 0.9}}}\n")
    old = write_folder_data(stuff / "old", classes=("red", "green"), count=10)
    (stuff / "old.yaml").write_text(yaml.safe_dump(old_settings(old, "copy")), encoding="utf-8")
    write_folder_data(stuff / "new", classes=("goat", "sheep", "red"), count=9)
    write_folder_data(stuff / "bare", count=12, saliency=False)
    base, extended = stuff / "base", stuff / "extended"
    for words in (
        ["train", stuff / "old.yaml", "--out", base],
        [
            "extend",
            base,
            "--data",
            stuff / "new",
            "--classes",
            "sheep",
            "--out",
            extended,
            "--set",
            "training.later_epochs=3",
        ],
        ["pack", extended, "--out", stuff / "sheep.zip"],
    ):
        done = forked.call(words, stuff / "log")
        if not (done.code == 0 or (words[0] == "extend" and (extended / "extend.json").is_file())):
            sys.exit(f"{words} ended with {done.code}:\n{done.text}")


def content(folder: Path) -> dict[str, str]:
    """A digest of every file; of tensors without their file's header, which has any order."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        if path.name in OF_TIME or name in ("log", "out/sweep.json") or path.suffix == ".log" or "/recipes/" in name:
            continue
        if path.suffix == ".safetensors":
            found[name] = digest(load_tensors(path, "the weights")[0])
        elif path.name in (
            "comparison.json",
            "recipe.yaml",
            "extend.json",
            "comparison.md",
        ):  # they name folders
            found[name] = hashlib.sha256(path.read_text().replace(str(folder), "").encode()).hexdigest()
        else:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def compare(folder: Path, whole: dict[str, str]) -> str:
    """What is not as it would be without a kill."""
    now = content(folder)
    changed = [file for file in now.keys() | whole.keys() if now.get(file) != whole.get(file)]
    left = [*folder.rglob(TEMPORARIES), *folder.rglob("*.partial"), *folder.rglob(".step_*")]
    return f"differs: {changed}" if changed else f"left behind: {left}" if left else ""


def attempt(command: Command, folder: Path, rng: random.Random) -> tuple[int, str]:
    """Up to three kills, then in peace to the end. The kills that met it alive, and what went wrong."""
    folder.mkdir()
    command.prepare(folder)
    log, kills, words = folder / "log", 0, command.words(folder)
    for _ in range(rng.randint(1, 3)):
        began = time.monotonic()
        pid = forked.start(words, log)
        done = forked.finish(pid, log, began, rng.uniform(0, 1.05 * command.seconds))
        kills += done.code == -9
        if done.code not in (0, NOT_LEARNED, -9):
            return kills, f"exit code {done.code}: {done.text[-500:]}"
        words = command.again(folder)
        if not words or done.code != -9:
            break
    if words:
        done = forked.call(words, log)
        if done.code not in (0, NOT_LEARNED):
            return kills, f"going on ended with {done.code}: {done.text[-500:]}"
    return kills, ""


def summary(kills: Counter[str], attempts: int, wrong: list[str]) -> str:
    """A line of JSON."""
    return json.dumps({"kills": dict(kills), "total": kills.total(), "attempts": attempts, "wrong": len(wrong)})


def main() -> int:
    """Until the time is over or Ctrl-C, one command after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", help="these commands")
    options = parser.parse_args()
    forked.import_all()
    rng, kills, wrong = random.Random(options.seed), Counter(), []
    with tempfile.TemporaryDirectory(prefix="ipseg-kills-") as place:
        stuff = Path(place, "stuff")
        stuff.mkdir()
        make(stuff)
        whole: dict[str, dict[str, str]] = {}
        known = {name: one for name, one in commands(stuff).items() if not options.only or name in options.only}
        for name, command in known.items():
            folder = Path(place, name)
            folder.mkdir()
            command.prepare(folder)
            done = forked.call(command.words(folder), folder / "log")
            if done.code not in (0, NOT_LEARNED):
                sys.exit(f"{name} ended with {done.code}, unkilled:\n{done.text}")
            known[name] = Command(command.words, command.again, done.seconds, command.prepare)
            whole[name] = content(folder)
        number, spent, end = 0, Counter(), time.monotonic() + 60 * options.minutes
        with suppress(KeyboardInterrupt):
            while time.monotonic() < end:
                name = min(known, key=lambda one: spent[one] / (3 if one in ("train", "extend") else 1))
                folder, began = Path(place, f"{name}-{number}"), time.monotonic()
                met, problem = attempt(known[name], folder, rng)
                if problem := problem or compare(folder, whole[name]):
                    wrong.append(f"{name} {number}: {problem}")
                    print(wrong[-1], flush=True)
                shutil.rmtree(folder, ignore_errors=True)
                kills[name] += met
                spent[name] += time.monotonic() - began
                number += 1
                if number % 50 == 0:
                    print(summary(kills, number, wrong), flush=True)
    print(summary(kills, number, wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
