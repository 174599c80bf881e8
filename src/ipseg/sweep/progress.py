"""Progress of a sweep: a live table in a terminal, elsewhere a line per change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
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
"""The order in which jobs are dropped from the end if not all fit."""
TAIL = 6
"""Lines of a failed run's log."""
BAR = 12
"""Characters of a full bar."""
MARGIN = 9
"""Lines of the terminal that the table leaves free."""


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    begun: bool = False
    finished: int = 0
    """Steps."""
    share: float = 0.0
    """Of the current step."""
    miou: float | None = None
    """After the last finished step, over all classes."""


def read_progress(run: Path) -> Progress:
    """How far a run is, from its folder."""
    folder = RunFolder(run)
    finished, miou = folder.finished(), None
    last = _last_iteration(run / "log.jsonl")
    share = last["iteration"] / last["of"] if last.get("step") == finished else 0.0
    if finished:
        with suppress(UserError, OSError):  # an unreadable file must not end the other runs
            miou = folder.result(finished - 1).miou.get("all")
    return Progress(folder.begun, finished, share, miou)


def _last_iteration(log: Path) -> dict[str, Any]:
    """The newest complete line of training; a run may be writing one."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 4096))
            lines = file.read().splitlines()
    except OSError:
        return {}
    for line in reversed(lines):
        with suppress(ValueError):
            found = parse_json(line)
            if isinstance(found, dict) and "iteration" in found:
                return found
    return {}


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
                console.print(job_line(job), soft_wrap=True)
            printed[job.name] = now

    yield print_changes


def job_line(job: Job) -> str:
    """One job in a line of a log."""
    steps = f"step {job.progress.finished} of {job.steps}"
    measured = f", mIoU {percent(job.progress.miou)}" if job.progress.finished else ""
    time = f", {duration(job.seconds)}" if job.seconds else ""
    reason = f" ({job.reason})" if job.reason else ""
    return f"{job.name}: {job.state}{reason}, {steps}{measured}{time}"


def jobs_table(jobs: Sequence[Job], rows: int) -> RenderableType:
    """The table, with the most relevant jobs if not all fit, and a line that counts them."""
    table = plain_table("", ["run", "", "steps"], ["mIoU", "time"])
    for column in table.columns:
        column.no_wrap = True
    order = sorted(range(len(jobs)), key=lambda index: RELEVANCE.index(jobs[index].state))
    for index in sorted(order[: max(rows, 3)]):
        job = jobs[index]
        sign, style = STATES[job.state]
        state = Text(f"{sign} {job.state} {job.reason}".rstrip(), style)
        miou = percent(job.progress.miou) if job.progress.finished else ""
        time = duration(job.seconds) if job.seconds else ""
        table.add_row(Text(job.name, "dim" if job.state == "waiting" else ""), state, steps_bar(job), miou, time)
    counted = Counter(job.state for job in jobs)
    counts = [Text(f"{counted[state]} {state}", style) for state, (_, style) in STATES.items() if counted[state]]
    hint = Text("   Ctrl-C stops them all; nothing is lost", "dim")
    return Group(table, Text("  ") + Text(" · ", "dim").join(counts) + hint)


def steps_bar(job: Job) -> Text:
    """Finished steps, and the part of the current one."""
    share = min(1.0, (job.progress.finished + job.progress.share) / job.steps)
    full, (_, style) = round(BAR * share), STATES[job.state]
    return Text.assemble(
        ("━" * full, style), ("━" * (BAR - full), "bright_black"), (f" {job.progress.finished}/{job.steps}", "dim")
    )


def duration(seconds: float) -> str:
    """A readable time.

    >>> duration(42), duration(200), duration(3 * 3600 + 240)
    ('42 s', '3 min 20 s', '3 h 4 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
