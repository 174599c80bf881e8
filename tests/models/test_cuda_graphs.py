"""Parts that a GPU may replay. Here a replay is the same work done again, which reads and writes the same memory."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from ipseg.models import cuda_graphs
from ipseg.models.cuda_graphs import Recorder, run


@dataclass(frozen=True)
class Pair:
    first: Tensor
    others: tuple[Tensor, ...]


@pytest.fixture
def recorder() -> Recorder:
    return Recorder(lambda work: work)


def test_a_replay_gives_what_the_part_would(recorder):
    def part(module, pair, factor):
        return module(pair.first) * factor, pair.others[0] + 1

    module = nn.Linear(3, 2)
    with torch.no_grad():
        for _ in range(4):
            pair = Pair(torch.rand(5, 3), (torch.rand(2),))
            scaled, more = run(recorder, part, module, pair, 3.0)
            assert torch.equal(scaled, module(pair.first) * 3)
            assert torch.equal(more, pair.others[0] + 1)
    assert len(recorder.parts) == 1


def test_a_part_is_recorded_when_it_comes_again_and_once_for_each_shape_module_and_value(recorder):
    seen: list[int] = []
    recorder.capture = lambda work: seen.append(1) or work

    def part(module, x, factor):
        return module(x) * factor

    one, other = nn.Linear(3, 3), nn.Linear(3, 3)
    calls = [
        (one, torch.rand(1, 3), 2),
        (other, torch.rand(1, 3), 2),
        (one, torch.rand(2, 3), 2),
        (one, torch.rand(1, 3), 4),
    ]
    with torch.no_grad():
        for recorded in (0, 4, 4):
            for module, x, factor in calls:
                assert torch.equal(run(recorder, part, module, x, factor), module(x) * factor)
            assert len(seen) == recorded


def test_what_a_recording_wrote_is_read_where_it_lies(recorder):
    first, second = (lambda x: x + 1), (lambda x: x * 2)
    for value in range(5):
        output = run(recorder, second, run(recorder, first, torch.full((2,), float(value))))
        assert output.tolist() == [2.0 * (value + 1)] * 2
    (_, one), (_, two) = recorder.parts.items()
    assert one.output.data_ptr() == two.inputs[0].data_ptr()


def test_the_callers_tensors_are_left_alone(recorder):
    part = lambda x: x + 1  # noqa: E731
    given = [torch.full((2,), float(value)) for value in range(4)]
    for x in given:
        run(recorder, part, x)
    assert [x[0].item() for x in given] == [0, 1, 2, 3]


def test_without_a_recorder_and_beyond_its_limit_a_part_runs_as_it_is(recorder, monkeypatch):
    monkeypatch.setattr(cuda_graphs, "LIMIT", 1)
    part = lambda x: x + 1  # noqa: E731
    assert run(None, part, torch.zeros(1)).item() == 1
    for size in (1, 2, 1, 2, 2):
        assert run(recorder, part, torch.zeros(size)).tolist() == [1] * size
    assert len(recorder.parts) == 1
