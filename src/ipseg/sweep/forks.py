"""Runs that share images which are already loaded or drawn: children of this process, all at the same time."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from ipseg.data.dataset import DatasetSplits
from ipseg.data.parallel import FORKS, when_parent_ends
from ipseg.errors import STOPPED, WRONG, Interrupted, UserError
from ipseg.files import appending
from ipseg.sweep.launchers import log_file
from ipseg.training.experiment import run
from ipseg.training.recipe import Recipe
from ipseg.visible import visible


class ForkLauncher:
    """Starts each run at once, with its share of the cores; base steps are not shared."""

    def __init__(self, out: Path, recipes: Mapping[str, Recipe], splits: DatasetSplits) -> None:
        self.out, self.recipes, self.splits = out, recipes, splits
        self.threads = max(1, (os.cpu_count() or 1) // len(recipes))
        # A fork inherits modules and images. A process that has initialized CUDA must not be forked.
        forked = FORKS and not torch.cuda.is_available()
        self.context = multiprocessing.get_context("fork" if forked else "spawn")

    def start(self, name: str, source: str | None, *, ready: bool, shared: bool) -> ForkedJob:
        arguments = (self.recipes[name], self.out / name, self.splits, log_file(self.out, name), self.threads)
        child = self.context.Process(target=_train, args=arguments, daemon=True)  # type: ignore[attr-defined]
        child.start()
        return ForkedJob(child)


@dataclass
class ForkedJob:
    process: BaseProcess

    def poll(self) -> int | None:
        return self.process.exitcode

    def cancel(self, *, kill: bool) -> None:
        """SIGTERM: the iteration ends and a checkpoint is written."""
        (self.process.kill if kill else self.process.terminate)()


def _train(recipe: Recipe, folder: Path, splits: DatasetSplits, log: Path, threads: int) -> None:
    """The child's main function; its output goes to the log."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    with appending(log) as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    when_parent_ends(lambda: os.kill(os.getpid(), signal.SIGTERM))  # no second writer when the demo is resumed
    torch.set_num_threads(threads)
    try:
        run(recipe, folder, resume=True, splits=splits, quiet=True)
    except Interrupted:
        sys.exit(STOPPED)
    except UserError as error:  # others leave a traceback in the log, and the exit code 1
        sys.stderr.write(visible(f"ipseg: {error}\n"))
        sys.exit(WRONG)
