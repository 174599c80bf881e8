"""A grid from beginning to end, in real processes: shared base steps, a failure, a stop, and going on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from commands import call

ROOT = Path(__file__).parent.parent.parent
GRID = """
base: tiny.yaml
runs:
  ipseg: {}
  small memory: {memory: {size: 2}}
  wrong: {training: {lr: 1.0e+30}}
"""


# A suite that runs in the background starts with Ctrl-C ignored.
IPSEG = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("ipseg", run_name="__main__")
"""


@pytest.fixture
def sweep(tmp_path, tiny_settings):
    """Starts the command on a grid of three runs."""
    tiny_settings["training"] |= {"checkpoint_seconds": 0, "log_every": 1}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_settings))
    (tmp_path / "grid.yaml").write_text(GRID)

    def start(*options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", IPSEG, "sweep", "grid.yaml", "--out", "out", *options]
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    return start


def steps_learned(run: Path) -> set[int]:
    found = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return {line["step"] for line in found if line["event"] == "train"}


@pytest.mark.slow
def test_a_sweep_shares_base_steps_survives_a_failure_and_a_stop_and_ends_in_a_table(sweep, tmp_path, monkeypatch):
    out = tmp_path / "out"
    begun = sweep()
    while not (out / "runs" / "ipseg_2-1_s0" / "step_01" / "checkpoint.safetensors").exists():
        assert begun.poll() is None, begun.communicate()
        time.sleep(0.01)
    begun.send_signal(signal.SIGINT)
    _, message = begun.communicate()
    assert begun.returncode == 130, message
    assert "The same command resumes them" in message
    assert not (out / "runs" / "ipseg_2-1_s0" / "step_02").exists()

    again = sweep("--jobs", "2")
    table, message = again.communicate()
    assert again.returncode == 1, message
    assert "wrong_2-1_s0 failed (exit code 2)" in message
    assert "the loss is not finite" in message
    assert "1 of 3 runs failed" in message
    assert "small memory" in table
    assert steps_learned(out / "runs" / "ipseg_2-1_s0") == {0, 1, 2}
    assert steps_learned(out / "runs" / "small-memory_2-1_s0") == {1, 2}
    memory = json.loads((out / "runs" / "small-memory_2-1_s0" / "step_00" / "memory" / "manifest.json").read_text())
    assert len(memory["entries"]) == 2  # its own, not that of the run whose base step it took
    rows = json.loads((out / "comparison.json").read_text())["rows"]
    assert [row["run"] for row in rows] == ["ipseg", "small memory"]
    assert "| small memory |" in (out / "comparison.md").read_text()

    alone = sweep("--only", "small*")
    table, message = alone.communicate()
    assert alone.returncode == 0, message  # the one that fails was not asked for
    assert "ipseg" in table

    monkeypatch.chdir(tmp_path)
    text = call("sweep", "grid.yaml", "--out", "out", "--dry-run").output
    assert text.count("finished") == 2 + 1  # two rows, and the count below them
    assert "of ipseg_2-1_s0" in text
