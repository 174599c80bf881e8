"""Checkpoints within a step, to resume from after a kill."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from ipseg.errors import UserError
from ipseg.training.tensors import load_tensors, mismatch, save_tensors

_MOMENT = re.compile(r"optimizer\.(\d{1,6})\.(momentum_buffer|exp_avg|exp_avg_sq|step)")


class Checkpoint:
    """Weights and optimizer state within a step. A thread writes a copy while training continues."""

    def __init__(self, path: Path, network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.path, self._network, self._optimizer = path, network, optimizer
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._written: Future[None] | None = None

    def save(self, iteration: int) -> None:
        """Write the current state in the background, after the previous one."""
        self.wait()
        copies = {name: tensor.detach().to("cpu", copy=True) for name, tensor in self._state().items()}
        self._written = self._writer.submit(save_tensors, self.path, copies, {"iteration": iteration})

    def wait(self) -> None:
        """Wait until the state is on disk. Raises what went wrong there."""
        written, self._written = self._written, None
        if written is not None:
            written.result()

    def _state(self) -> Mapping[str, Tensor]:
        frozen = {name for name, parameter in self._network.named_parameters() if not parameter.requires_grad}
        tensors = {f"network.{name}": t for name, t in self._network.state_dict().items() if name not in frozen}
        for index, state in self._optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{key}": value for key, value in state.items() if isinstance(value, Tensor)}
        return tensors

    def restore(self, iterations: int) -> int:
        """Load the saved state and return its iteration. `iterations`: of the whole step."""
        if not self.path.is_file():
            return 0
        tensors, facts = load_tensors(self.path, "the checkpoint")
        done = facts.get("iteration")
        if type(done) is not int or not 0 < done <= iterations:
            raise self._unfit(f"it is of iteration {done!r}, and this step has {iterations}")
        learning = [parameter for group in self._optimizer.param_groups for parameter in group["params"]]
        expected = {name: tensor for name, tensor in self._state().items() if name.startswith("network.")}
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if moment := _MOMENT.fullmatch(name):
                index = int(moment[1])
                if index >= len(learning):
                    raise self._unfit(f"it holds {name}, and {len(learning)} weights learn")
                like = torch.zeros(()) if moment[2] == "step" else learning[index]
                state.setdefault(index, {})[moment[2]] = _match_layout(learning[index], tensor)
            elif name in expected:
                like = expected[name]
            else:
                raise self._unfit(f"it is of another network or optimizer: it holds {name}")
            if problem := mismatch(tensor, like):
                raise self._unfit(f"{name} {problem}")
        if missing := sorted(expected.keys() - tensors.keys()):
            raise self._unfit(f"it is of another network: {missing[0]} is missing")
        for name, own in expected.items():
            own.copy_(tensors[name])
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": state, "param_groups": groups})
        return done

    def _unfit(self, why: str) -> UserError:
        return UserError(
            f"the checkpoint does not fit: {self.path}: {why}. Move it out of the run's folder: --resume then begins "
            "this step anew."
        )

    @contextmanager
    def writing(self) -> Iterator[None]:
        """However the block ends, nothing is written after it: a step's end removes the file."""
        try:
            yield
            self.wait()
        finally:
            self._writer.shutdown()


def _match_layout(parameter: Tensor, tensor: Tensor) -> Tensor:
    """A fused optimizer walks through memory: what belongs to a weight must lie there as the weight does."""
    return torch.empty_like(parameter).copy_(tensor) if tensor.shape == parameter.shape else tensor
