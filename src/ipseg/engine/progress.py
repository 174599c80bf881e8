"""What a person sees while a run goes on: a live bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

PLAIN_SECONDS = 10  # between lines where there is no terminal


class Meter:
    """Counts one job. `with Meter("step 1", 300) as meter: meter.advance(1, text)`."""

    def __init__(
        self, title: str, total: int, done: int = 0, console: Console | None = None, *, quiet: bool = False
    ) -> None:
        self.title, self.total, self.done = title, total, done
        self.console = console or Console(stderr=True)
        self._began, self._at_start, self._spoken = time.monotonic(), done, time.monotonic()
        self._quiet = quiet
        self._live: Progress | None = None
        if self.console.is_terminal and not quiet:
            self._live = Progress(
                SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
                TextColumn("{task.fields[text]}", style="dim"), TimeRemainingColumn(),
                console=self.console, transient=True,
            )  # fmt: skip
            self._task = self._live.add_task(title, total=total, completed=done, text="")

    def __enter__(self) -> Meter:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def advance(self, count: int, text: str = "") -> None:
        """Some more is done; `text` says what is worth knowing now."""
        self.done += count
        if self._live:
            self._live.update(self._task, completed=self.done)
            if text:
                self._live.update(self._task, text=text)
        elif not self._quiet and time.monotonic() - self._spoken >= PLAIN_SECONDS:
            self._spoken = time.monotonic()
            rate = self.rate()
            left = f", {(self.total - self.done) / rate:.0f} s left" if rate else ""
            self.console.print(f"{self.title}: {self.done}/{self.total}{left} {text}", highlight=False)

    def rate(self) -> float:
        """Units a second since the start."""
        return (self.done - self._at_start) / max(time.monotonic() - self._began, 1e-9)


def say_losses(losses: Mapping[str, float], images_a_second: float) -> str:
    """Loss parts and speed in one short line."""
    parts = " ".join(f"{name} {value:.3f}" for name, value in losses.items())
    return f"{parts} · {images_a_second:.0f} img/s"
