"""What a person sees while something long goes on: a live bar in a terminal, plain lines elsewhere."""

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
    """Rich's console for text that is not ours: brackets are no markup, and control characters are shown."""

    def __init__(self, *, stderr: bool = False, soft_wrap: bool = False) -> None:
        super().__init__(stderr=stderr, soft_wrap=soft_wrap, markup=False, emoji=False, highlight=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Every piece of text on its way out; what moves the cursor is rich's own."""
        for piece in super().render(renderable, options):
            yield piece if piece.control else piece._replace(text=visible(piece.text))


@contextmanager
def silence(*, wanted: bool) -> Iterator[None]:
    """No meter speaks inside, also none of work that nobody can tell to be quiet: a data set that counts its masks."""
    before = _silent.set(wanted or _silent.get())
    try:
        yield
    finally:
        _silent.reset(before)


class Meter:
    """Counts one job. `with Meter("step 1", 300) as meter: meter.advance(1, text)`.

    `patience` seconds pass before a bar is shown: none at all for a job that is over before.
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
        self._began, self._at_start, self._spoken = time.monotonic(), done, time.monotonic()
        self._patience, self._quiet = patience, quiet or _silent.get()
        self._live: Progress | None = None

    def __enter__(self) -> Meter:
        self._show_when_due()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def advance(self, count: int, text: str = "") -> None:
        """Some more is done; `text` says what is worth knowing now."""
        self.done += count
        self._show_when_due()
        if self._live:
            self._live.update(self._task, completed=self.done)
            if text:
                self._live.update(self._task, text=text)
        elif not self._quiet and time.monotonic() - self._spoken >= PLAIN_SECONDS:
            self._spoken = time.monotonic()
            rate = self.rate()
            left = f", {(self.total - self.done) / rate:.0f} s left" if rate else ""
            self.console.print(f"{self.title}: {self.done}/{self.total}{left} {text}")

    def rate(self) -> float:
        """Units a second since the start."""
        return (self.done - self._at_start) / max(time.monotonic() - self._began, 1e-9)

    def _show_when_due(self) -> None:
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
