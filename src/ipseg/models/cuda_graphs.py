"""CUDA graphs for inference: parts of the network that a GPU replays instead of launching every operation again.

A large GPU does the operations of one image, or of one head, faster than they are launched. A replay is one launch.
Parts are recorded one by one, so that a gate can choose among heads: with it, labeling after 51 steps takes 1.37 times
as long as after 2, without graphs 2.9 times (docs/performance.md). What is recorded together is what a method calls
with `run`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

R = TypeVar("R")
Work = Callable[[], None]
Capture = Callable[[Work], Work]
"""Takes work, which reads and writes the same memory each time, and gives what does it again."""

LIMIT = 1024
"""Number of parts recorded, each anew for every size of images; further ones run eagerly."""


@dataclass(frozen=True)
class Recording:
    """A part on the shapes that it was recorded for."""

    replay: Work
    inputs: list[Tensor]
    output: Any


class Recorder:
    """Calls a part as it is the first time, records it the second time on the same shapes, then replays it."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.parts: dict[object, Recording | None] = {}
        self.outputs: set[int] = set()
        """Addresses of the recordings' outputs. An input that lies there lies there every time: it is not copied."""

    def run(self, part: Callable[..., R], args: tuple[Any, ...]) -> R:
        """The part's output. The next one on these shapes is written over it."""
        tensors, shapes = _flat(args)
        key = (part, shapes)
        if key not in self.parts:
            if len(self.parts) < LIMIT:
                self.parts[key] = None
            return part(*args)
        recorded = self.parts[key]
        if recorded is None:
            recorded = self.parts[key] = self._record(part, args)
        for given, kept in zip(tensors, recorded.inputs, strict=True):
            if given.data_ptr() != kept.data_ptr():
                kept.copy_(given)
        recorded.replay()
        output: R = recorded.output
        return output

    def _record(self, part: Callable[..., Any], args: tuple[Any, ...]) -> Recording:
        kept = _mapped(args, lambda x: x if x.data_ptr() in self.outputs else x.clone())
        output = _mapped(part(*kept), torch.clone)  # outside of the memory that recordings share
        places = _flat(output)[0]
        self.outputs.update(x.data_ptr() for x in places)

        def work() -> None:
            for place, new in zip(places, _flat(part(*kept))[0], strict=True):
                place.copy_(new)

        return Recording(self.capture(work), _flat(kept)[0], output)


def run(recorder: Recorder | None, part: Callable[..., R], *args: Any) -> R:
    """Call a part of the network, a function or a module: recorded and replayed with a recorder, as it is without."""
    return part(*args) if recorder is None else recorder.run(part, args)


def cuda_recorder() -> Recorder:
    """Records CUDA graphs. For inference: a replay has no gradient."""
    return Recorder(_cuda_capture())


def _cuda_capture() -> Capture:
    """All recordings share the memory of what they compute in between: they never run at the same time."""
    pool, stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def capture(work: Work) -> Work:
        graph = torch.cuda.CUDAGraph()
        torch.clear_autocast_cache()  # weights that it keeps in bf16 are gone later: a recording makes its own
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(stream)
        torch.clear_autocast_cache()
        return graph.replay

    return capture


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Apply a function to every tensor of a nested value."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple | list):
        return type(value)(_mapped(part, change) for part in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _mapped(getattr(value, f.name), change) for f in fields(value)})
    return value


def _flat(value: Any) -> tuple[list[Tensor], tuple[object, ...]]:
    """All tensors, and what else must be equal for a recording to serve: shapes, plain values, modules themselves."""
    tensors: list[Tensor] = []
    rest: list[object] = []

    def visit(value: Any) -> None:
        if isinstance(value, Tensor):
            tensors.append(value)
            rest.extend((value.shape, value.stride(), value.dtype))
        elif isinstance(value, tuple | list):
            rest.append(len(value))
            for part in value:
                visit(part)
        elif hasattr(value, "__dataclass_fields__"):
            for name in value.__dataclass_fields__:
                visit(getattr(value, name))
        else:
            rest.append(value)

    visit(value)
    return tensors, tuple(rest)
