"""Checkpoints are written while learning goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ipseg.engine import checkpoint as module
from ipseg.engine.checkpoint import Checkpoint
from ipseg.engine.tensors import save_tensors
from ipseg.errors import UserError


class Slow:
    """Writes only when it is let."""

    def __init__(self) -> None:
        self.let, self.begun = threading.Event(), threading.Event()

    def __call__(self, path: Path, tensors: dict[str, Tensor], facts: dict[str, int]) -> None:
        self.begun.set()
        assert self.let.wait(timeout=30)
        save_tensors(path, tensors, facts)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    disk = Slow()
    monkeypatch.setattr(module, "save_tensors", disk)
    return disk


@pytest.fixture
def learner(tmp_path: Path) -> Callable[[], tuple[nn.Module, torch.optim.Optimizer, Checkpoint]]:
    def make() -> tuple[nn.Module, torch.optim.Optimizer, Checkpoint]:
        torch.manual_seed(0)
        network = nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)
        optimiser = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
        return network, optimiser, Checkpoint(tmp_path / "checkpoint.safetensors", network, optimiser)

    return make


def learn(network: nn.Module, optimiser: torch.optim.Optimizer) -> None:
    optimiser.zero_grad()
    network(torch.ones(1, 2, 4, 4)).square().sum().backward()
    optimiser.step()


def state(network: nn.Module, optimiser: torch.optim.Optimizer) -> list[Tensor]:
    momenta = [optimiser.state[weight]["momentum_buffer"] for weight in network.parameters()]
    return [tensor.clone() for tensor in (*network.parameters(), *momenta)]


def test_what_is_learned_while_it_is_written_is_not_in_it(learner, slow):
    network, optimiser, checkpoint = learner()
    learn(network, optimiser)
    then = state(network, optimiser)
    with checkpoint.writing():
        checkpoint.save(1)
        assert slow.begun.wait(timeout=30)
        learn(network, optimiser)  # nobody waits for the disk
        assert not checkpoint.path.exists()
        slow.let.set()
    again = learner()
    assert again[2].restore() == 1
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(state(*again[:2]), then, strict=True))


def test_nothing_is_written_any_more_when_the_step_has_ended(learner, slow):
    """Whoever finishes a step removes its checkpoint: one that came later would stay."""
    _, _, checkpoint = learner()

    def stopped() -> None:
        with checkpoint.writing():
            checkpoint.save(1)
            threading.Timer(0.2, slow.let.set).start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert checkpoint.path.exists()


@pytest.mark.parametrize("again", [lambda checkpoint: checkpoint.save(2), lambda checkpoint: checkpoint.wait()])
def test_what_went_wrong_on_the_disk_is_said_at_the_next_chance(learner, monkeypatch, again):
    def full(*_args: object) -> None:
        raise UserError("the disk is full")

    monkeypatch.setattr(module, "save_tensors", full)
    _, _, checkpoint = learner()
    with checkpoint.writing():
        checkpoint.save(1)
        with pytest.raises(UserError, match="the disk is full"):
            again(checkpoint)
