"""What the commands of `ipseg` share: options, exit codes, output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from ipseg.errors import STOPPED, WRONG, Interrupted, UserError, about_a_place
from ipseg.own_code import allow_code, code_allowed
from ipseg.parsing import require_text
from ipseg.visible import visible

if TYPE_CHECKING:
    from rich.console import RenderableType


Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, made by `ipseg train` or `ipseg extend`.")]
Recipe = Annotated[
    str, typer.Argument(metavar="RECIPE", help="A YAML file, a shipped recipe's name, or a run's folder.")
]
StepOf = Annotated[int | None, typer.Option("--step", help="After this step; by default the last finished one.")]
Changes = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; may be repeated.")
]
Device = Annotated[str | None, typer.Option("--device", help="auto (a GPU if there is one), cpu, cuda, cuda:1, mps.")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume an interrupted run.")]


def _allow_code(value: bool) -> None:
    if value:
        allow_code()


AllowCode = Annotated[
    bool,
    typer.Option(
        "--allow-code", callback=_allow_code, help="Run code that a run's folder or a pack names (module:Class)."
    ),
]
"""Acts by its callback: whatever reads a run's recipe asks `own_code`."""
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]


class Commands(TyperGroup):
    """Ends every command the same way: errors that a person can mend have no traceback."""

    def make_context(self, *args: Any, **more: Any) -> Any:
        """Read the options that stand before a command."""
        with _shown_as_it_is():
            return super().make_context(*args, **more)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse what cannot be written down, before anything starts."""
        try:
            for word in args:
                require_text(word)
        except UserError as error:
            complain(f"{error}. Rename the file, or choose another name.")
            raise typer.Exit(WRONG) from error
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            with code_allowed(wanted=False), _shown_as_it_is():
                return super().invoke(ctx)
        except UserError as error:
            complain(error)
            raise typer.Exit(WRONG) from error
        except OSError as error:
            problem = about_a_place(error)
            if problem is None:
                raise  # a mistake of ours: the traceback finds it
            complain(problem)
            raise typer.Exit(WRONG) from error
        except Interrupted as stop:
            complain(stop)
            raise typer.Exit(STOPPED) from stop
        except KeyboardInterrupt as error:
            complain("stopped.")
            raise typer.Exit(STOPPED) from error


@contextmanager
def _shown_as_it_is() -> Iterator[None]:
    """A wrong option or argument may be the name of a file, which a shell's * has put there."""
    try:
        yield
    except Exception as error:
        if hasattr(error, "format_message"):  # click's, whichever click typer brings along
            error.message = visible(str(getattr(error, "message", "")))  # type: ignore[attr-defined]
        raise


def say(text: object, *, err: bool = False, end: str = "\n") -> None:
    """Print text as it is. All that commands print goes this way, or through `show`."""
    typer.echo(visible(f"{text}{end}"), err=err, nl=False)


def complain(problem: object) -> None:
    """Say what is wrong, on stderr."""
    say(f"ipseg: {problem}", err=True)


def show(thing: RenderableType) -> None:
    """Print a table."""
    from ipseg.progress import Terminal

    console = Terminal()
    if not console.is_terminal:
        console.width = 120  # a pipe has no width, and 80 characters would fold what a log can well hold
    console.print(thing)


def with_device(changes: Sequence[str] | None, device: str | None) -> list[str]:
    """`--set` with `--device`, which is the recipe's setting `device`."""
    return [*(changes or ()), *([] if device is None else [f"device={device}"])]


def example(*lines: str) -> str:
    """The end of a command's help."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)
