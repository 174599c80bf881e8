"""A step under way, to go on from after a kill."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from ipseg.engine.tensors import load_tensors, save_tensors
from ipseg.errors import UserError


class Checkpoint:
    """What a step has changed so far. Learning goes on while it is written: from a copy, by a thread."""

    def __init__(self, path: Path, network: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        self.path, self._network, self._optimiser = path, network, optimiser
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._written: Future[None] | None = None

    def save(self, iteration: int) -> None:
        """Begin to write the state of now; first the one before must be on the disk."""
        self.wait()
        copies = {name: tensor.detach().to("cpu", copy=True) for name, tensor in self._state().items()}
        self._written = self._writer.submit(save_tensors, self.path, copies, {"iteration": iteration})

    def wait(self) -> None:
        """Until all is on the disk; what went wrong there is raised here."""
        written, self._written = self._written, None
        if written is not None:
            written.result()

    def _state(self) -> Mapping[str, Tensor]:
        frozen = {name for name, parameter in self._network.named_parameters() if not parameter.requires_grad}
        tensors = {f"network.{name}": t for name, t in self._network.state_dict().items() if name not in frozen}
        for index, state in self._optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{index}.{key}": value for key, value in state.items() if isinstance(value, Tensor)}
        return tensors

    def restore(self) -> int:
        """Go back to what is on the disk; returns the iteration to go on with."""
        if not self.path.is_file():
            return 0
        tensors, facts = load_tensors(self.path, "the checkpoint")
        own = self._network.state_dict()
        learning = [parameter for group in self._optimiser.param_groups for parameter in group["params"]]
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            kind, _, rest = name.partition(".")
            if kind == "network":
                if rest not in own or own[rest].shape != tensor.shape:
                    raise UserError(f"the checkpoint is of another network: {self.path} holds {rest}.")
                own[rest].copy_(tensor)
            else:
                index, _, key = rest.partition(".")
                state.setdefault(int(index), {})[key] = _laid_as(learning[int(index)], tensor)
        groups = self._optimiser.state_dict()["param_groups"]
        self._optimiser.load_state_dict({"state": state, "param_groups": groups})
        return int(facts["iteration"])

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Whatever ends the block, nothing is written any more after it: a step's end removes the file."""
        try:
            yield
            self.wait()
        finally:
            self._writer.shutdown()


def _laid_as(parameter: Tensor, tensor: Tensor) -> Tensor:
    """A fused optimiser walks through memory: what belongs to a weight must lie there as the weight does."""
    return torch.empty_like(parameter).copy_(tensor) if tensor.shape == parameter.shape else tensor
