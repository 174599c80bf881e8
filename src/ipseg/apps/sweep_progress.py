"""What a person sees of a sweep: a live table in a terminal, a line for whatever is new elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ipseg.apps.sweep_schedule import Job, Progress, State
from ipseg.engine.folder import RunFolder
from ipseg.errors import UserError
from ipseg.parsing import parse_json
from ipseg.report.compare import percent

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
AROUND = 9
"""Lines of the terminal that the table does not get."""


def look(run: Path) -> Progress:
    """How far a run is, by what stands in its folder."""
    folder = RunFolder(run)
    finished = folder.finished()
    last = _last_line(run / "log.jsonl")
    share = last["iteration"] / last["of"] if last.get("step") == finished else 0.0
    return Progress((run / "run.json").is_file(), finished, share, _miou(folder, finished - 1) if finished else None)


def _last_line(log: Path) -> dict[str, Any]:
    """The newest whole line; a run may be writing one."""
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


def _miou(folder: RunFolder, step: int) -> float | None:
    """After a step; none where its file cannot be read, which must not end other runs."""
    try:
        return folder.result(step).miou.get("all")
    except (UserError, OSError):
        return None


class View:
    """Shows jobs while they go. `with View(console) as view: schedule.run(view.tell)`."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self.console, self.quiet = console, quiet
        self._live: Live | None = None
        self._told: dict[str, tuple[str, int]] = {}

    def __enter__(self) -> View:
        if self.console.is_terminal and not self.quiet:
            self._live = Live(console=self.console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def tell(self, jobs: Sequence[Job]) -> None:
        """What is new."""
        if self._live:
            self._live.update(picture(jobs, self.console.height - AROUND), refresh=True)
            return
        for job in jobs:
            now = (job.state, job.progress.finished)
            if self._told.setdefault(job.name, ("waiting", job.progress.finished)) != now:
                self._told[job.name] = now
                if not self.quiet:
                    self.console.print(line(job), soft_wrap=True)


def line(job: Job) -> str:
    """One job in a line of a log."""
    steps = f"step {job.progress.finished} of {job.steps}"
    measured = f", mIoU {percent(job.progress.miou)}" if job.progress.finished else ""
    time = f", {duration(job.seconds)}" if job.seconds else ""
    why = f" ({job.why})" if job.why else ""
    return f"{job.name}: {job.state}{why}, {steps}{measured}{time}"


def picture(jobs: Sequence[Job], rows: int) -> RenderableType:
    """The table, those that matter now if not all fit, and a line that counts them."""
    table = Table(box=box.SIMPLE_HEAD)
    for title, justify in (("run", "left"), ("", "left"), ("steps", "left"), ("mIoU", "right"), ("time", "right")):
        table.add_column(title, justify=justify, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]
    for job in shown(jobs, max(rows, 3)):
        style = STYLES[job.state]
        state = Text(f"{SIGNS[job.state]} {job.state} {job.why}".rstrip(), style=style)
        miou = percent(job.progress.miou) if job.progress.finished else ""
        time = duration(job.seconds) if job.seconds else ""
        table.add_row(Text(job.name, style="dim" if job.state == "waiting" else ""), state, steps_bar(job), miou, time)
    counted = Counter(job.state for job in jobs)
    counts = Text(" · ", style="dim").join(
        Text(f"{counted[state]} {state}", style=STYLES[state]) for state in STYLES if counted[state]
    )
    return Group(table, Text("  ").append_text(counts).append("   Ctrl-C stops them all; nothing is lost", "dim"))


def shown(jobs: Sequence[Job], rows: int) -> list[Job]:
    """All in their order, or what matters most: under way, failed, the latest finished, the next to start."""
    if len(jobs) <= rows:
        return list(jobs)
    order = ["running", "failed", "stopped", "waiting", "finished"]
    chosen = sorted(jobs, key=lambda job: order.index(job.state))[:rows]
    return [job for job in jobs if any(job is one for one in chosen)]


def steps_bar(job: Job) -> Text:
    """Whole steps, and the part of the one under way."""
    share = min(1.0, (job.progress.finished + job.progress.share) / job.steps)
    full = round(BAR * share)
    bar = Text("━" * full, style=STYLES[job.state] if job.state != "waiting" else "dim")
    return bar.append("━" * (BAR - full), "bright_black").append(f" {job.progress.finished}/{job.steps}", "dim")


def duration(seconds: float) -> str:
    """Time as people say it.

    >>> duration(42), duration(200), duration(3 * 3600 + 240)
    ('42 s', '3 min 20 s', '3 h 4 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
