"""benchmarks/speed.py and speed_table.py: what the one writes, the other reads, as it reads the files of results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import speed
import speed_table

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@pytest.fixture(autouse=True)
def _nothing_is_computed(monkeypatch):
    speeds = {"plain": 100.0, "bf16": 250.0}

    def trained(_case, way, *_rest):
        yield {"compute": speeds[way], "end_to_end": speeds[way] / 2, "memory_gib": 1.0}

    def failing(*_):
        raise ValueError("no room")

    monkeypatch.setattr(speed, "train", trained)
    monkeypatch.setattr(speed, "infer", failing)
    monkeypatch.setattr(speed, "write_pictures", lambda *_: None)
    monkeypatch.setattr(speed, "matrix_rate", lambda: 500.0)
    monkeypatch.setattr(speed.torch.cuda, "get_device_name", lambda: "a device")
    monkeypatch.setattr(speed_table, "teraflop", lambda *_, **__: 10.0)


def test_what_was_measured_is_tabled_gates_need_not_be_named_and_failures_are_told(tmp_path, capsys):
    out = tmp_path / "speed.jsonl"
    words = ["--cases", "r50 320 step 0", "--ways", "plain", "bf16", "--inference", "swin-b", "--steps", "6"]
    for _ in range(2):  # the second call's rows alone are left
        speed.main(["--out", str(out), *words])
    assert len(out.read_text().splitlines()) == 4
    capsys.readouterr()
    speed_table.main([str(out)])
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| r50 320 step 0 | plain | 100.0 | 1.00 x | 50.0 | 1.00 x | 1.0 GiB |  |",
        "| r50 320 step 0 | bf16 | 250.0 | 2.50 x | 125.0 | 2.50 x | 1.0 GiB | 31% |",  # 10 * 250 / 16 of 500
        "",
        "{'network': 'swin-b', 'error': \"ValueError('no room')\"}",
    ]


def test_every_file_of_speeds_in_the_repository_is_read(capsys):
    for file in RESULTS.glob("*_speed*.jsonl"):
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        measured = [row for row in rows if "compute" in row or "rate" in row]
        speed_table.main([str(file)])
        told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
        heads = [line for line in told if line.startswith(("| case", "| network", "|---"))]
        assert len(told) - len(heads) == len(measured) > 0


def test_a_speed_is_compared_with_the_plain_one_of_its_own_run(capsys):
    speed_table.main([str(RESULTS / "2026-11-16_speed.jsonl")])
    said = capsys.readouterr().out
    seventh, ninth = (said.partition(f"**{name}**")[2].partition("**")[0] for name in ("seventh", "ninth"))
    assert "| swin-b 15-1 step -1 | compile, graphs | 292.9 |  | 278.9 |  |" in seventh  # it measured no plain one
    assert "| resnet101 | 6 | 16 | every head, compile | 706.2 | 3.97 x |" in ninth
    assert "| resnet101 | 6 | 16 | every head, compile | 707.8 | 3.48 x |" in ninth  # again, with the plain one of then
