"""Progress of a sweep: a live table in a terminal, elsewhere a line per change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from ipseg.errors import UserError
from ipseg.parsing import parse_json
from ipseg.report.compare import percent
from ipseg.report.formats import plain_table
from ipseg.training.folder import RunFolder

if TYPE_CHECKING:
    from ipseg.sweep.schedule import Job, State

STATES: dict[State, tuple[str, str]] = {
    "finished": ("✓", "green"),
    "running": ("▶", "cyan"),
    "waiting": ("·", "dim"),
    "failed": ("✗", "bold red"),
    "stopped": ("‖", "yellow"),
}
"""A sign and a style for each."""
RELEVANCE = ("running", "failed", "stopped", "waiting", "finished")
"""If not all jobs fit into the table, the last of these are left out."""
TAIL = 6
"""Lines of a failed run's log."""
MARGIN = 9
"""Lines of the terminal that the table leaves free."""


@dataclass(frozen=True)
class Progress:
    begun: bool = False
    finished: int = 0
    """Steps."""
    share: float = 0.0
    """Of the current step."""
    miou: float | None = None
    """After the last finished step, over all classes."""


def read_progress(run: Path) -> Progress:
    folder = RunFolder(run)
    finished, share, miou = folder.finished(), 0.0, None
    with suppress(OSError):
        with (run / "log.jsonl").open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - 4096))
            lines = file.read().splitlines()
        for line in reversed(lines):  # the newest complete one: the run may be writing another
            with suppress(ValueError):
                last = parse_json(line)
                if isinstance(last, dict) and "iteration" in last:
                    share = last["iteration"] / last["of"] if last.get("step") == finished else 0.0
                    break
    if finished:
        with suppress(UserError, OSError):  # an unreadable file must not end the other runs
            miou = folder.result(finished - 1).miou.get("all")
    return Progress(folder.begun, finished, share, miou)


def log_tail(log: Path) -> list[str]:
    """The end of a failed run's log: its last error message, or its last lines. torchrun adds a summary to both."""
    if not log.is_file():
        return []
    text = log.read_text(encoding="utf-8", errors="replace")
    lines = [line for line in text.splitlines() if line.strip()][-60:]
    errors = [index for index, line in enumerate(lines) if line.startswith("ipseg: ")]
    return lines[errors[-1] :][:TAIL] if errors else lines[-TAIL:]


@contextmanager
def progress_view(console: Console, *, quiet: bool = False) -> Iterator[Callable[[Sequence[Job]], None]]:
    """A live table or lines, by a function of the jobs that is called again and again."""
    if console.is_terminal and not quiet:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield lambda jobs: live.update(jobs_table(jobs, console.height - MARGIN), refresh=True)
        return
    printed: dict[str, tuple[str, int]] = {}

    def print_changes(jobs: Sequence[Job]) -> None:
        for job in jobs:
            now = (job.state, job.progress.finished)
            if printed.setdefault(job.name, ("waiting", job.progress.finished)) != now and not quiet:
                reason = f" ({job.reason})" if job.reason else ""
                measured = f", mIoU {percent(job.progress.miou)}" if job.progress.finished else ""
                time = f", {timedelta(seconds=round(job.seconds))}" if job.seconds else ""
                steps = f"step {job.progress.finished} of {job.steps}"
                console.print(f"{job.name}: {job.state}{reason}, {steps}{measured}{time}", soft_wrap=True)
            printed[job.name] = now

    yield print_changes


def jobs_table(jobs: Sequence[Job], rows: int) -> RenderableType:
    """The table, with the most relevant jobs if not all fit, and a line that counts them."""
    table = plain_table("", ["run", "", ""], ["steps", "mIoU", "time"])
    for column in table.columns:
        column.no_wrap = True
    order = sorted(range(len(jobs)), key=lambda index: RELEVANCE.index(jobs[index].state))
    for index in sorted(order[: max(rows, 3)]):
        job, done = jobs[index], jobs[index].progress
        sign, style = STATES[job.state]
        table.add_row(
            Text(job.name, "dim" if job.state == "waiting" else ""),
            Text(f"{sign} {job.state} {job.reason}".rstrip(), style),
            ProgressBar(
                job.steps, min(job.steps, done.finished + done.share), 12, complete_style=style, finished_style=style
            ),
            f"{done.finished}/{job.steps}",
            percent(done.miou) if done.finished else "",
            str(timedelta(seconds=round(job.seconds))) if job.seconds else "",
        )
    counted = Counter(job.state for job in jobs)
    counts = [Text(f"{counted[state]} {state}", style) for state, (_, style) in STATES.items() if counted[state]]
    hint = Text("   Ctrl-C stops them all; nothing is lost", "dim")
    return Group(table, Text("  ") + Text(" · ", "dim").join(counts) + hint)
