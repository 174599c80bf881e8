"""How far runs are, and how that is shown."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from ipseg.sweep.progress import TAIL, Progress, jobs_table, log_tail, progress_view, read_progress
from ipseg.sweep.schedule import Job


def test_how_far_a_run_is_stands_in_its_folder(tmp_path, tiny_run):
    assert read_progress(tmp_path) == Progress()
    assert (read_progress(tiny_run).begun, read_progress(tiny_run).finished) == (True, 3)
    assert read_progress(tiny_run).miou == json.loads((tiny_run / "results.json").read_text())["final"]["miou"]["all"]
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "log.jsonl").write_text('{"step": 0, "iteration": 30, "of": 40}\n{"step": 0, "itera')
    assert read_progress(tmp_path) == Progress(begun=True, share=0.75)


@pytest.mark.parametrize("text", ["", '{"version": 2, "mi', "[]", '{"version": 2, "miou": 3}', "\udcff"], ids=repr)
def test_a_step_whose_measurements_cannot_be_read_is_finished_and_nothing_is_known_of_it(tmp_path, text):
    (tmp_path / "step_00").mkdir()
    (tmp_path / "step_00" / "step.json").write_text(text, encoding="utf-8", errors="surrogateescape")
    assert read_progress(tmp_path) == Progress(finished=1)


def test_the_tail_of_a_log_is_its_last_lines_or_its_last_error(tmp_path):
    log = tmp_path / "one.log"
    assert log_tail(log) == []
    log.write_bytes(b"early\n" * TAIL + b"\xff late\n\n  \n")
    assert log_tail(log) == ["early"] * (TAIL - 1) + ["\ufffd late"]
    log.write_text("early\nipseg: what is wrong\n  and what to do\n" + "torchrun's summary\n" * TAIL)
    assert log_tail(log)[:2] == ["ipseg: what is wrong", "  and what to do"]


def jobs(*states: str) -> list[Job]:
    nowhere = Path("nowhere")
    return [Job(f"run{i}", "x", 4, nowhere, nowhere, state) for i, state in enumerate(states)]  # type: ignore[arg-type]


def test_where_there_is_no_terminal_each_change_is_a_line():
    console = Console(file=io.StringIO(), force_terminal=False)
    printed = jobs("waiting", "running")
    with progress_view(console) as show:
        show(printed)
        show(printed)
        printed[1].progress, printed[1].seconds = Progress(begun=True, finished=2, miou=0.5), 62
        show(printed)
        printed[1].state, printed[1].reason = "failed", "exit code 2"
        show(printed)
    assert console.file.getvalue().splitlines() == [  # type: ignore[attr-defined]
        "run1: running, step 0 of 4",
        "run1: running, step 2 of 4, mIoU 50.0, 0:01:02",
        "run1: failed (exit code 2), step 2 of 4, mIoU 50.0, 0:01:02",
    ]


def test_of_more_runs_than_fit_those_that_matter_are_shown():
    console = Console(file=io.StringIO(), width=100)
    console.print(jobs_table(jobs(*["finished"] * 30, "running", "failed", *["waiting"] * 30), rows=4))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert [word for word in ("run30", "run31", "run32", "run33") if word not in text] == []
    assert "run0 " not in text
    assert "30 finished · 1 running · 30 waiting · 1 failed" in text
