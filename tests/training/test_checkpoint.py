"""Checkpoints are written while learning goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ipseg.errors import UserError
from ipseg.training import checkpoint as module
from ipseg.training.checkpoint import Checkpoint
from ipseg.training.tensors import save_tensors


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
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
        return network, optimizer, Checkpoint(tmp_path / "checkpoint.safetensors", network, optimizer)

    return make


def learn(network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    network(torch.ones(1, 2, 4, 4)).square().sum().backward()
    optimizer.step()


def state(network: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    momenta = [optimizer.state[weight]["momentum_buffer"] for weight in network.parameters()]
    return [tensor.clone() for tensor in (*network.parameters(), *momenta)]


def test_what_is_learned_while_it_is_written_is_not_in_it(learner, slow):
    network, optimizer, checkpoint = learner()
    learn(network, optimizer)
    then = state(network, optimizer)
    with checkpoint.writing():
        checkpoint.save(1)
        assert slow.begun.wait(timeout=30)
        learn(network, optimizer)  # nobody waits for the disk
        assert not checkpoint.path.exists()
        slow.let.set()
    again = learner()
    assert again[2].restore(9) == 1
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


# ---- a whole file whose content does not fit the step ---------------------------------------------------------------


def test_a_checkpoint_comes_back_up_to_the_last_iteration(learner):
    network, optimizer, checkpoint = learner()
    learn(network, optimizer)
    with checkpoint.writing():
        checkpoint.save(9)
    assert learner()[2].restore(9) == 9


@pytest.mark.parametrize("iteration", [10, 10**9, 0, -1, True, "9", 2.0, None])
def test_an_iteration_that_the_step_does_not_have_is_refused(learner, iteration):
    """A step would be taken for learned."""
    _, _, checkpoint = learner()
    save_tensors(checkpoint.path, dict(checkpoint._state()), {"iteration": iteration})
    with pytest.raises(UserError, match=r"does not fit: .*it is of iteration .*and this step has 9\. Move it out"):
        checkpoint.restore(9)


WEIGHT = torch.zeros(3, 2, 3, 3)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"network.weight": None}, "network.weight is missing"),
        ({"network.weight": WEIGHT[:1]}, r"network.weight is \[1, 2, 3, 3\] of torch.float32, and should be \[3, 2"),
        ({"network.weight": WEIGHT.double()}, "of torch.float64, and should be"),
        ({"network.weight": WEIGHT / 0}, "network.weight has numbers that are not finite"),
        ({"network.other": WEIGHT}, "it holds network.other"),
        ({"optimizer.0.momentum_buffer": WEIGHT[:1]}, r"optimizer.0.momentum_buffer is \[1, 2, 3, 3\]"),
        ({"optimizer.7.momentum_buffer": WEIGHT}, "it holds optimizer.7.momentum_buffer, and 2 weights learn"),
        ({"optimizer.x.momentum_buffer": WEIGHT}, "it holds optimizer.x.momentum_buffer"),
        ({"optimizer.0.other": WEIGHT}, "it holds optimizer.0.other"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_tensors_of_another_network_or_optimizer_are_refused_and_nothing_is_taken(learner, change, told):
    network, optimizer, checkpoint = learner()
    learn(network, optimizer)
    tensors = {
        name: tensor.detach().clone()
        for name, tensor in (dict(checkpoint._state()) | change).items()
        if tensor is not None
    }
    save_tensors(checkpoint.path, tensors, {"iteration": 1})
    again, _, other = learner()
    before = again.weight.clone()
    with pytest.raises(UserError, match=f"does not fit.*{told}"):
        other.restore(9)
    assert torch.equal(again.weight, before)
