"""Runs beside each other that share pictures which are already read or drawn: children of this very process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from ipseg.apps.sweep_schedule import Process
from ipseg.data.parallel import FORKS, when_parent_ends
from ipseg.data.source import Source
from ipseg.engine.experiment import run
from ipseg.engine.recipe import Recipe
from ipseg.errors import STOPPED, WRONG, Interrupted, UserError
from ipseg.files import appending, require_no_link
from ipseg.visible import visible


class BesideLauncher:
    """Starts each run at once, with its share of the cores."""

    def __init__(self, out: Path, recipes: Mapping[str, Recipe], source: Source) -> None:
        self.out, self.recipes, self.source = out, recipes, source
        self.threads = max(1, (os.cpu_count() or 1) // len(recipes))
        # A fork takes modules and pictures along. A process that knows of a GPU must not be forked.
        forked = FORKS and not torch.cuda.is_available()
        self.context = multiprocessing.get_context("fork" if forked else "spawn")

    def room(self) -> bool:
        """Always."""
        return True

    def log(self, name: str) -> Path:
        """What a run said."""
        return self.out / "logs" / f"{name}.log"

    def start(self, name: str, _init: str | None) -> Process:
        """Begin or go on."""
        log = self.log(name)
        require_no_link(log.parent)
        log.parent.mkdir(parents=True, exist_ok=True)
        arguments = (self.recipes[name], self.out / name, self.source, log, self.threads)
        child = self.context.Process(target=_learn, args=arguments, daemon=True)  # type: ignore[attr-defined]
        child.start()
        return _Child(child)


class _Child:
    def __init__(self, process: BaseProcess) -> None:
        self.process = process

    def poll(self) -> int | None:
        """Its exit code."""
        return self.process.exitcode

    def stop(self, *, now: bool) -> None:
        """SIGTERM: the iteration ends and a checkpoint is written."""
        (self.process.kill if now else self.process.terminate)()


def _learn(recipe: Recipe, folder: Path, source: Source, log: Path, threads: int) -> None:
    """The child: everything that it says goes to its log."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    with appending(log) as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    when_parent_ends(lambda: os.kill(os.getpid(), signal.SIGTERM))  # it saves its state: nobody writes twice
    torch.set_num_threads(threads)
    try:
        run(recipe, folder, resume=True, source=source, quiet=True)
    except Interrupted:
        code = STOPPED
    except UserError as error:
        sys.stderr.write(visible(f"ipseg: {error}\n"))
        code = WRONG
    except BaseException:  # whatever it is, the parent is told by the exit code and the log
        traceback.print_exc()
        code = 1
    else:
        code = 0
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # what the parent would do at its end, a child must not
