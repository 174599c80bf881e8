"""Names that nobody would choose reach people as they are: no escape, markup, formula or page of a stranger's acts."""

from __future__ import annotations

import csv
import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image
from rich.table import Table

import ipseg
from commands import call
from ipseg.apps.model import Model, Result
from ipseg.progress import Meter, Terminal
from ipseg.report.compare import ResultTable
from ipseg.report.figures import short
from ipseg.report.formats import _csv_cell, latex, markdown
from ipseg.report.overlay import with_legend
from ipseg.scenario import Step
from ipseg.visible import one_line, visible

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m"
HOSTILE = ["=HYPERLINK(1)", f"bus [/old]{ESCAPES}", "<img src=x onerror=alert(1)>", "_$\\frac$|*[a](b)"]
ROOT = Path(ipseg.__file__).parent


def acts(text: str) -> list[str]:
    """Control characters that a terminal would obey."""
    return [letter for letter in text if letter not in "\r\n\t" and visible(letter) != letter]


@pytest.fixture
def hostile(make_folder_data, tiny_settings, tmp_path):
    """A recipe, and its run trained, whose classes and name are such."""
    data = make_folder_data(classes=HOSTILE)
    tiny_settings |= {"name": HOSTILE[0] + ESCAPES, "data": {"name": "folder", "path": str(data)}}
    tiny_settings["scenario"] = {"name": "2-1"}
    tiny_settings["model"]["backbone"]["name"] = "test_resnet"
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_settings))
    return tmp_path / "tiny.yaml"


def in_a_terminal(*words: object) -> tuple[int, str]:
    """Exit code and all output of the command in a pseudo terminal."""
    own, other = pty.openpty()
    environment = os.environ | {"PYTHONPATH": str(ROOT.parent), "TERM": "xterm", "COLUMNS": "200"}
    command = [sys.executable, "-P", "-m", "ipseg", *map(str, words)]
    with subprocess.Popen(command, stdin=other, stdout=other, stderr=other, env=environment) as process:
        os.close(other)
        output = b""
        while True:
            try:
                piece = os.read(own, 1 << 16)
            except OSError:  # the last one has closed it
                break
            if not piece:
                break
            output += piece
    os.close(own)
    return process.returncode, output.decode(errors="replace")


@pytest.mark.slow
def test_hostile_names_act_in_no_output(hostile, tmp_path, monkeypatch):
    run = tmp_path / "run"
    code, output = in_a_terminal("train", hostile, "--out", run)
    assert code == 0, output
    assert "[/old]␛" in output
    assert "owned\x07" not in output
    assert "\x1b[2J" not in output
    assert "\x1b]0;" not in output

    check = ["data", "check", tmp_path / "data", "--format", "folder"]
    for words in (["evaluate", run], ["compare", run], ["memory", run], check):
        result = call(*words)
        assert result.exit_code == 0, result.output
        assert not acts(result.output)

    rows = list(csv.DictReader(io.StringIO(call("compare", run, "--format", "csv").stdout)))
    assert rows[0]["run"] == f"'{one_line(HOSTILE[0] + ESCAPES)}"
    assert float(rows[0]["all"]) >= 0
    assert not acts(call("compare", run, "--format", "markdown").stdout)
    assert not acts(call("compare", run, "--format", "latex").stdout)

    assert call("report", run, "--out", tmp_path / "page.html").exit_code == 0
    page = (tmp_path / "page.html").read_text()
    assert "<img src=x" not in page
    assert not acts(page)


def test_a_meter_shows_brackets_and_control_characters(monkeypatch):
    monkeypatch.setattr("ipseg.progress.PLAIN_SECONDS", 0)
    console = Terminal()
    console.file = io.StringIO()
    with Meter(f"bus [/old]{ESCAPES}", 3, console=console) as meter:
        meter.advance(1, f"[red]loss[/x]{ESCAPES}")
    text = console.file.getvalue()
    assert "bus [/old]␛" in text
    assert "[red]loss[/x]␛" in text
    assert ESCAPES not in text


def test_a_table_shows_brackets_and_control_characters():
    console = Terminal()
    console.file = io.StringIO()
    table = Table(f"[bold]head{ESCAPES}", title="[/x]")
    table.add_row(f":smile: [lite0]{ESCAPES}")
    console.print(table, f"pip install ipseg[lite0]{ESCAPES}")
    text = console.file.getvalue()
    assert not acts(text)
    for part in ("[bold]head␛", "[/x]", ":smile: [lite0]␛", "ipseg[lite0]␛"):
        assert part in text


def test_names_of_files_and_wrong_options_reach_the_terminal_without_escapes(tmp_path):
    for words in (["compare", tmp_path / ESCAPES.replace("/", "")], ["train", ESCAPES], ["cost", ESCAPES]):
        result = call(*words)
        assert result.exit_code == 2
        assert "␛" in result.stderr
        assert not acts(result.output)
    for option in (
        (f"x{ESCAPES}",),
        ("train", f"--no{ESCAPES}"),
        (f"--no{ESCAPES}",),
        ("report", "x", "--gallery", f"1{ESCAPES}"),
    ):
        result = call(*option)
        assert result.exit_code == 2
        assert not acts(result.output)


def test_a_name_breaks_out_of_no_line_of_latex_and_no_heading_of_markdown():
    table = ResultTable(f"a\n\\input{{x}}{ESCAPES}\n# b", "overlap", [])
    assert next(line for line in latex([table]).splitlines() if "input" in line).startswith("% a␊")
    assert markdown([table]).splitlines()[0].startswith("### a␊")


def test_a_cell_of_csv_is_no_formula():
    for text in ("=1", "+1", "-1", "@a", " =1", "\t=1", "\n=1"):
        assert _csv_cell(text).startswith("'")
    assert _csv_cell("ipseg - b") == "ipseg - b"


def test_a_plot_takes_names_for_neither_formulas_nor_hidden_ones():
    assert short("$\\frac$") == r"\$\frac\$"
    assert not short("_bus").startswith("_")
    assert not acts(short(ESCAPES))


def test_results_and_models_are_shown_in_python_without_escapes():
    name, image = f"bus\n{ESCAPES}", np.zeros((2, 2, 3), np.uint8)
    step = Step(index=0, new=(name,), old=(), future=())
    result = Result(image, ("background", name), np.ones((2, 2), np.uint8), None, None, {name: 0.9}, None)
    for shown in (repr(result), repr(Model(None, None, step, None))):  # type: ignore[arg-type]
        assert not acts(shown)
        assert "bus␊␛" in shown


def test_an_image_has_a_name_in_one_line():
    legend = with_legend(Image.new("RGB", (64, 64)), [((1, 2, 3), f"a\nb{ESCAPES}")])
    assert legend.height > 64


def test_nothing_but_the_command_and_its_console_prints():
    """One place shows text as it is; a print elsewhere would go around it."""
    printing = re.compile(r"\btyper\.echo\(|(?<![\w.>])print\(|(?<!\w)Console\(|std(out|err)\.write\(f")
    found = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if any(printing.search(line) for line in path.read_text().splitlines() if ">>>" not in line)
    }
    assert found == {"cli/common.py"}
