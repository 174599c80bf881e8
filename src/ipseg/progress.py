"""Progress of long jobs: a live bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.segment import Segment

from ipseg.visible import visible

PLAIN_SECONDS = 10  # between lines where there is no terminal
_silent: ContextVar[bool] = ContextVar("silent", default=False)


class Terminal(Console):
    """Rich's console for text from files: brackets are no markup, and control characters are made visible."""

    def __init__(self, *, stderr: bool = False, soft_wrap: bool = False) -> None:
        super().__init__(stderr=stderr, soft_wrap=soft_wrap, markup=False, emoji=False, highlight=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))  # controls are rich's


@contextmanager
def silence(*, wanted: bool) -> Iterator[None]:
    """No meter prints inside, also in code that has no `quiet`: a data set that counts its masks."""
    before = _silent.set(wanted or _silent.get())
    try:
        yield
    finally:
        _silent.reset(before)


class Meter:
    """Counts one job. `with Meter("step 1", 300) as meter: meter.advance(1, text)`.

    patience: seconds before the bar appears, so that a short job has none.
    """

    def __init__(
        self,
        title: str,
        total: int,
        done: int = 0,
        console: Console | None = None,
        *,
        patience: float = 0,
        quiet: bool = False,
    ) -> None:
        self.title, self.total, self.done = title, total, done
        self.console = console or Terminal(stderr=True)
        self._began = self._printed = time.monotonic()
        self._at_start, self._patience, self._quiet = done, patience, quiet or _silent.get()
        self._live: Progress | None = None

    def __enter__(self) -> Meter:
        self._start_bar_when_due()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def advance(self, count: int, text: str = "") -> None:
        """text: losses or the like, beside the bar."""
        self.done += count
        self._start_bar_when_due()
        if self._live:
            self._live.update(self._task, completed=self.done)
            if text:
                self._live.update(self._task, text=text)
        elif not self._quiet and time.monotonic() - self._printed >= PLAIN_SECONDS:
            self._printed = time.monotonic()
            rate = self.rate()
            left = f", {(self.total - self.done) / rate:.0f} s left" if rate else ""
            self.console.print(f"{self.title}: {self.done}/{self.total}{left} {text}")

    def rate(self) -> float:
        """Units a second since the start."""
        return (self.done - self._at_start) / max(time.monotonic() - self._began, 1e-9)

    def _start_bar_when_due(self) -> None:
        due = time.monotonic() - self._began >= self._patience
        if self._live or self._quiet or not self.console.is_terminal or not due:
            return
        self._live = Progress(
            SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
            TextColumn("{task.fields[text]}", style="dim", markup=False), TimeRemainingColumn(),
            console=self.console, transient=True,
        )  # fmt: skip
        self._task = self._live.add_task(self.title, total=self.total, completed=self.done, text="")
        self._live.start()
