"""Progress of a sweep: a live table in a terminal, elsewhere a line per change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ipseg.errors import UserError
from ipseg.parsing import parse_json
from ipseg.report.compare import percent
from ipseg.training.folder import RunFolder

if TYPE_CHECKING:
    from ipseg.sweep.schedule import Job, State

STYLES: dict[State, str] = {
    "finished": "green",
    "running": "cyan",
    "waiting": "dim",
    "failed": "bold red",
    "stopped": "yellow",
}
SIGNS = {"finished": "✓", "running": "▶", "waiting": "·", "failed": "✗", "stopped": "‖"}
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
    finished, share, miou = folder.finished(), 0.0, None
    last = _last_line(run / "log.jsonl")
    if last.get("step") == finished:
        share = last["iteration"] / last["of"]
    if finished:
        with suppress(UserError, OSError):  # an unreadable file must not end the other runs
            miou = folder.result(finished - 1).miou.get("all")
    return Progress(folder.begun, finished, share, miou)


def _last_line(log: Path) -> dict[str, Any]:
    """The newest complete line of training; a run may be writing one."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 4096))
            lines = file.read().splitlines()
    except OSError:
        return {}
    for line in reversed(lines):
        try:
            found = parse_json(line)
        except ValueError:
            continue
        if isinstance(found, dict) and "iteration" in found:
            return found
    return {}


class ProgressView:
    """`with ProgressView(console) as view: scheduler.run(view.show)`."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self.console, self.quiet = console, quiet
        self._live: Live | None = None
        self._shown: dict[str, tuple[str, int]] = {}

    def __enter__(self) -> ProgressView:
        if self.console.is_terminal and not self.quiet:
            self._live = Live(console=self.console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def show(self, jobs: Sequence[Job]) -> None:
        """Refresh the table, or print a line for every job that changed."""
        if self._live:
            self._live.update(jobs_table(jobs, self.console.height - MARGIN), refresh=True)
            return
        for job in jobs:
            now = (job.state, job.progress.finished)
            if self._shown.setdefault(job.name, ("waiting", job.progress.finished)) != now:
                self._shown[job.name] = now
                if not self.quiet:
                    self.console.print(job_line(job), soft_wrap=True)


def job_line(job: Job) -> str:
    """One job in a line of a log."""
    steps = f"step {job.progress.finished} of {job.steps}"
    measured = f", mIoU {percent(job.progress.miou)}" if job.progress.finished else ""
    time = f", {duration(job.seconds)}" if job.seconds else ""
    reason = f" ({job.reason})" if job.reason else ""
    return f"{job.name}: {job.state}{reason}, {steps}{measured}{time}"


def jobs_table(jobs: Sequence[Job], rows: int) -> RenderableType:
    """The table, with the most relevant jobs if not all fit, and a line that counts them."""
    table = Table(box=box.SIMPLE_HEAD)
    for title, justify in (("run", "left"), ("", "left"), ("steps", "left"), ("mIoU", "right"), ("time", "right")):
        table.add_column(title, justify=justify, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]
    for job in _most_relevant(jobs, max(rows, 3)):
        style = STYLES[job.state]
        state = Text(f"{SIGNS[job.state]} {job.state} {job.reason}".rstrip(), style=style)
        miou = percent(job.progress.miou) if job.progress.finished else ""
        time = duration(job.seconds) if job.seconds else ""
        table.add_row(Text(job.name, style="dim" if job.state == "waiting" else ""), state, steps_bar(job), miou, time)
    counted = Counter(job.state for job in jobs)
    counts = Text(" · ", style="dim").join(
        Text(f"{counted[state]} {state}", style=STYLES[state]) for state in STYLES if counted[state]
    )
    return Group(table, Text("  ").append_text(counts).append("   Ctrl-C stops them all; nothing is lost", "dim"))


def _most_relevant(jobs: Sequence[Job], rows: int) -> list[Job]:
    """All in their order, or as many as fit: running, failed and stopped ones before those that wait or finished."""
    if len(jobs) <= rows:
        return list(jobs)
    order = ["running", "failed", "stopped", "waiting", "finished"]
    chosen = sorted(jobs, key=lambda job: order.index(job.state))[:rows]
    return [job for job in jobs if any(job is one for one in chosen)]


def steps_bar(job: Job) -> Text:
    """Finished steps, and the part of the current one."""
    share = min(1.0, (job.progress.finished + job.progress.share) / job.steps)
    full = round(BAR * share)
    bar = Text("━" * full, style=STYLES[job.state] if job.state != "waiting" else "dim")
    return bar.append("━" * (BAR - full), "bright_black").append(f" {job.progress.finished}/{job.steps}", "dim")


def duration(seconds: float) -> str:
    """A readable time.

    >>> duration(42), duration(200), duration(3 * 3600 + 240)
    ('42 s', '3 min 20 s', '3 h 4 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
