"""The command line as a person meets it, in this process."""

from __future__ import annotations

from click.testing import Result
from typer.testing import CliRunner

from ipseg.cli import app
from ipseg.errors import WRONG


def call(*words: object) -> Result:
    """Run `ipseg WORDS`."""
    return CliRunner().invoke(app, [str(word) for word in words], prog_name="ipseg")


def fails(*words: object) -> str:
    """What the command says on stderr, having ended as a user's mistake must."""
    result = call(*words)
    assert result.exit_code == WRONG, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stderr.startswith("ipseg: ")
    assert "Traceback" not in result.output
    return result.stderr


def extension(run: object, data: object, classes: str, out: object, *options: object) -> list[object]:
    """The words of `ipseg extend`."""
    return ["extend", run, "--data", data, "--classes", classes, "--out", out, *options]
