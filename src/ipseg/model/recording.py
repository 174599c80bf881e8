"""Parts of the network that a GPU may replay, instead of being told every operation again: CUDA graphs for inference.

A large GPU does the operations of one picture, or of one head, faster than they are launched. A recorded part is one
launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")
Work = Callable[[], None]
Capture = Callable[[Work], Work]
"""Takes work, which reads and writes the same memory each time, and gives what does it again."""

LIMIT = 1024
"""So many parts are recorded, anew for every size of pictures; further ones run as written."""


@dataclass(frozen=True)
class Recording:
    """A part on shapes that it was recorded for."""

    replay: Work
    inputs: list[Tensor]
    answer: Any


class Recorder:
    """Runs a part the first time as written; the second time, on the same shapes, records it; then replays it."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.parts: dict[object, Recording | None] = {}
        self.lasting: set[int] = set()
        """Where recorded parts put their answers. Who reads there reads the same place every time."""

    def run(self, part: Callable[..., R], args: tuple[Any, ...]) -> R:
        """What the part answers. Its next answer on these shapes is written over it."""
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
        answer: R = recorded.answer
        return answer

    def _record(self, part: Callable[..., Any], args: tuple[Any, ...]) -> Recording:
        kept = _mapped(args, lambda x: x if x.data_ptr() in self.lasting else x.clone())
        answer = _mapped(part(*kept), torch.clone)  # outside of the memory that recordings share
        places = _flat(answer)[0]
        self.lasting.update(x.data_ptr() for x in places)

        def work() -> None:
            for place, new in zip(places, _flat(part(*kept))[0], strict=True):
                place.copy_(new)

        return Recording(self.capture(work), _flat(kept)[0], answer)


_recorder: ContextVar[Recorder | None] = ContextVar("_recorder", default=None)


@contextmanager
def recording(*, wanted: bool) -> Iterator[None]:
    """Within the block recordable parts are recorded and replayed. For inference: a replay has no gradient."""
    with using(Recorder(_cuda_capture()) if wanted else None):
        yield


@contextmanager
def using(recorder: Recorder | None) -> Iterator[None]:
    """With this recorder, or none."""
    token = _recorder.set(recorder)
    try:
        yield
    finally:
        _recorder.reset(token)


def recordable(part: Callable[P, R]) -> Callable[P, R]:
    """Mark a function of modules, tensors, dataclasses of them, and plain values. Its parts are recorded with it."""

    def whole(*args: Any) -> R:
        with using(None):
            return part(*args)  # type: ignore[call-arg]

    @wraps(part)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        recorder = _recorder.get()
        if recorder is None or kwargs:  # a call by names is not told apart from others
            return part(*args, **kwargs)
        return recorder.run(whole, args)

    return run


def few_lengths(rows: list[int]) -> list[int]:
    """Row numbers, where parts are recorded padded to a power of two: each length is a recording of its own."""
    more = 0 if _recorder.get() is None else 2 ** (len(rows) - 1).bit_length() - len(rows)
    return rows + rows[:1] * more


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
    """The same with every tensor changed."""
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
