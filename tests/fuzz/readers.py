"""As fuzz.py, but what reads the files is called by itself: hundreds of cases in the time of one command.

    python tests/fuzz/readers.py --cases 5000 --seed 0
    python tests/fuzz/readers.py --seed 0 --only 137    # one case again, with its traceback

A reader may succeed, or raise what the command line ends with exit code 2 for; within ten seconds and a memory.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
import forked
from good import make

from fuzz import MEMORY, SECONDS, copy_changed
from ipseg.apps.compare import compare
from ipseg.apps.memory_report import memory_report
from ipseg.apps.pack import apply_pack
from ipseg.apps.sweep import Sweep
from ipseg.config import to_yaml
from ipseg.data.coco import CocoConfig
from ipseg.data.dataset import DataConfig, EmptyDataset
from ipseg.data.folder import FolderConfig
from ipseg.data.memory import load_memory
from ipseg.errors import UserError, format_path_error
from ipseg.report.formats import as_json, markdown
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import load_recipe, make_recipe
from ipseg.training.tensors import load_tensors

BATCH = 250
"""Cases in a process."""


def read_recipe(it: Path, _: Path) -> None:
    recipe = load_recipe(it)
    recipe.unused_settings()
    assert make_recipe(load_again(to_yaml(recipe), it)) == recipe


def load_again(text: str, beside: Path) -> dict[str, object]:
    """What a run's folder would say."""
    from ipseg.config import read_yaml

    again = beside.with_name("again.yaml")
    again.write_text(text, encoding="utf-8")
    return read_yaml(again, "the recipe")


def read_grid(it: Path, _: Path) -> None:
    Sweep(it / "grid.yaml", it.with_name("out"))


def read_run(it: Path, _: Path) -> None:
    markdown(sections := compare([it]))
    as_json(sections)
    folder = RunFolder.open(it)
    recipe = make_recipe(folder.settings())
    folder.scenario(recipe)
    for step in range(folder.finished()):
        folder.result(step)
        memory_report(it, step)


def read_memory(it: Path, _: Path) -> None:
    memory_report(it)
    memory = load_memory(it / "step_01" / "memory", EmptyDataset())
    memory.without_copy()
    for index in range(len(memory)):
        memory.sample(index)


def read_weights(it: Path, _: Path) -> None:
    RunFolder.open(it).weights(1)


def read_checkpoint(it: Path, _: Path) -> None:
    load_tensors(it / "step_01" / "checkpoint.safetensors", "the checkpoint")


def read_pack(it: Path, good: Path) -> None:
    apply_pack(it, good / "base", it.with_name("out"))


def read_data(config: DataConfig) -> None:
    splits = config.build()
    for split in (splits.train, splits.val):
        split.class_presence()
        for index in range(len(split.names)):
            split.image(index), split.mask(index), split.saliency(index)


READERS: dict[str, tuple[Callable[[Path, Path], None], int]] = {
    "recipe": (read_recipe, 5),
    "grid": (read_grid, 3),
    "run": (read_run, 5),
    "memory": (read_memory, 3),
    "weights": (read_weights, 3),
    "checkpoint": (read_checkpoint, 2),
    "pack": (read_pack, 1),
    "masks": (lambda it, _: read_data(FolderConfig(path=str(it))), 3),
    "coco": (lambda it, _: read_data(CocoConfig(path=str(it))), 4),
}
"""By the kinds of fuzz.py, and how often each."""


class TooLongError(BaseException):
    """Nobody catches it."""


def too_long(_number: int, _frame: FrameType | None) -> None:
    raise TooLongError


def run(number: int, seed: int, good: Path, place: Path, *, loud: bool = False) -> tuple[str, str]:
    """The kind of a case, and how it ended."""
    rng = random.Random(f"{seed} {number}")
    name = rng.choices(list(READERS), [often for _, often in READERS.values()])[0]
    place.mkdir()
    it, changed = copy_changed(name, good, place, rng)
    signal.signal(signal.SIGPROF, too_long)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        READERS[name][0](it, good)
        end = "read"
    except (Exception, SystemExit, TooLongError) as error:
        refused = isinstance(error, UserError) or (isinstance(error, OSError) and format_path_error(error))
        end = "refused" if refused else f"WRONG [{changed}] {type(error).__name__}: {str(error)[:200]!a}"
        if loud:
            traceback.print_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        shutil.rmtree(place)
    return name, end


def main() -> int:
    """Batch after batch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="this case, with its traceback")
    options = parser.parse_args()
    os.environ["IPSEG_CACHE"] = tempfile.mkdtemp(prefix="ipseg-fuzz-cache-")
    forked.import_all()
    ends: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="ipseg-fuzz-") as folder:
        good, place, log = Path(folder, "good"), Path(folder, "case"), Path(folder, "log")
        good.mkdir()
        make(good)
        if options.only is not None:
            work = forked.fork(lambda: print(run(options.only, options.seed, good, place, loud=True)), log)
            print(forked.finish(work, log, time.monotonic(), 600).text)
            return 0
        last = options.first + options.cases
        for first in range(options.first, last, BATCH):
            numbers = range(first, min(last, first + BATCH))

            def batch(numbers: range = numbers) -> None:
                for number in numbers:
                    print("CASE", json.dumps([number, *run(number, options.seed, good, place)]), flush=True)

            log.unlink(missing_ok=True)
            work = forked.fork(batch, log, memory=3 * MEMORY)
            outcome = forked.finish(work, log, time.monotonic(), 3600)
            found = [json.loads(line[5:]) for line in outcome.text.splitlines() if line.startswith("CASE ")]
            for number, name, end in found:
                ends[f"{name} {end.partition(' ')[0]}"] += 1
                if end.startswith("WRONG"):
                    print(number, name, end, flush=True)
            if outcome.code or outcome.peak > 2 * MEMORY:  # of many cases: what some of them keep adds up
                ends["WRONG batch"] += 1
                print(f"after case {found[-1:]}: exit code {outcome.code}, {outcome.peak >> 20} MB", flush=True)
                shutil.rmtree(place, ignore_errors=True)
            print(json.dumps({"cases": sum(ends.values()), "peak MB": outcome.peak >> 20}), flush=True)
    shutil.rmtree(os.environ["IPSEG_CACHE"], ignore_errors=True)
    wrong = sum(count for end, count in ends.items() if "WRONG" in end)
    print(json.dumps({"cases": sum(ends.values()), "wrong": wrong, **dict(sorted(ends.items()))}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
