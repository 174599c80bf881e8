"""What a person sees of a job that takes long, and that a short one says nothing."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

import ipseg
from ipseg import progress
from ipseg.progress import Meter, silence


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def printed(clock, *, seconds: float, terminal: bool, **options) -> str:
    """What ten pieces of work, together so many seconds long, write."""
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100)
    with Meter("reading masks", 10, console=console, **options) as meter:
        for _ in range(10):
            clock[0] += seconds / 10
            meter.advance(1)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_a_terminal_sees_a_bar_at_once(clock):
    assert "reading masks" in printed(clock, seconds=0.1, terminal=True)


def test_with_patience_only_a_job_that_takes_long_has_a_bar(clock):
    assert printed(clock, seconds=1, terminal=True, patience=2) == ""
    assert "reading masks" in printed(clock, seconds=10, terminal=True, patience=2)


def test_elsewhere_a_line_is_written_now_and_then(clock):
    lines = printed(clock, seconds=50, terminal=False, patience=2).splitlines()
    assert lines[0].startswith("reading masks: 2/10, 40 s left")
    assert len(lines) == 5
    assert printed(clock, seconds=9, terminal=False, patience=2) == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_quiet_is_quiet(clock, terminal):
    assert printed(clock, seconds=50, terminal=terminal, quiet=True) == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_in_silence_nothing_speaks(clock, terminal):
    with silence(wanted=True), silence(wanted=False):
        assert printed(clock, seconds=50, terminal=terminal) == ""
    with silence(wanted=False):
        assert printed(clock, seconds=50, terminal=terminal)


def test_a_quiet_run_does_not_say_that_it_looks_at_masks(make_folder_data, tiny_settings, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0)  # every piece of work is worth a line
    tiny_settings["data"] = {"name": "folder", "path": str(make_folder_data())}
    tiny_settings["scenario"] = {"name": "joint"}
    ipseg.train(tiny_settings, tmp_path / "quiet", quiet=True)
    assert capfd.readouterr().err == ""
    monkeypatch.setenv("IPSEG_CACHE", str(tmp_path / "cache"))
    ipseg.train(tiny_settings, tmp_path / "loud")
    assert "reading masks" in capfd.readouterr().err
