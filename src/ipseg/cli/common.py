"""Options, output and exit codes of all commands."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from ipseg.errors import STOPPED, WRONG, Interrupted, UserError, format_path_error, memory_shortage
from ipseg.own_code import allow_code, code_allowed
from ipseg.parsing import require_text
from ipseg.visible import visible

if TYPE_CHECKING:
    from rich.console import RenderableType

FAILED = 1
"""The exit code where the command itself went well, and a run, a class or the machine did not."""


def _allow_code(wanted: bool) -> None:
    if wanted:
        allow_code()


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
Format = Literal["folder", "voc", "ade", "coco"]
Setting = Annotated[Literal["overlap", "disjoint"], typer.Option("--setting", help="Which images a step has.")]
AllowCode = Annotated[
    bool,
    typer.Option(
        "--allow-code", callback=_allow_code, help="Run code that a run's folder or a pack names (module:Class)."
    ),
]
"""Its callback does the work: whatever reads a run's recipe asks `own_code`."""
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]


class CommandGroup(TyperGroup):
    """Ends every command the same way: errors that the user can fix have no traceback."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        with _visible_usage_errors():
            return super().make_context(*args, **options)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse arguments that are not UTF-8 before anything starts: no file could be written with them."""
        try:
            for word in args:
                require_text(word)
        except UserError as error:
            warn(f"{error}. Rename the file, or choose another name.")
            raise typer.Exit(WRONG) from error
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            with code_allowed(wanted=False), _visible_usage_errors():
                return super().invoke(ctx)
        except UserError as error:
            warn(error)
            raise typer.Exit(WRONG) from error
        except OSError as error:
            problem = format_path_error(error)
            if problem is None:
                raise  # a mistake of ours: the traceback finds it
            warn(problem)
            raise typer.Exit(WRONG) from error
        except (MemoryError, RuntimeError) as error:
            shortage = memory_shortage(error)
            if shortage is None:
                raise
            warn(
                f"there is not enough memory ({shortage}). Smaller batches (training.batch_size), crops or images, or "
                "a smaller network, need less. What was written before is whole."
            )
            raise typer.Exit(WRONG) from error
        except (Interrupted, KeyboardInterrupt) as error:
            warn(error if isinstance(error, Interrupted) else "stopped.")
            raise typer.Exit(STOPPED) from error


@contextmanager
def _visible_usage_errors() -> Iterator[None]:
    """A wrong option or argument may be the name of a file, which a shell's * has put there."""
    try:
        yield
    except Exception as error:
        if hasattr(error, "format_message"):  # click's, whichever click typer brings along
            error.message = visible(str(getattr(error, "message", "")))  # type: ignore[attr-defined]
        raise


def echo(text: object, *, err: bool = False, end: str = "\n") -> None:
    """Print text with its control characters made visible. All that commands print goes this way, or by `render`."""
    typer.echo(visible(f"{text}{end}"), err=err, nl=False)


def warn(problem: object) -> None:
    """Print a note or an error on stderr."""
    echo(f"ipseg: {problem}", err=True)


def render(thing: RenderableType) -> None:
    """Print a table."""
    from ipseg.progress import Terminal

    console = Terminal()
    if not console.is_terminal:
        console.width = 120  # a pipe has no width, and 80 characters would fold what a log can well hold
    console.print(thing)


def render_or_json(values: object, *parts: RenderableType, as_json: bool) -> None:
    """Print JSON, or tables and text. Long lines of text are not folded."""
    if as_json:
        echo(json.dumps(values, indent=2))
        return
    for part in parts:
        (echo if isinstance(part, str) else render)(part)


def with_device(changes: Sequence[str] | None, device: str | None) -> list[str]:
    """`--device` is the setting `device` of the recipe."""
    return [*(changes or ()), *([] if device is None else [f"device={device}"])]


def example(*lines: str) -> str:
    """The end of a command's help."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)
