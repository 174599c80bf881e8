"""Golden curves: what every method computes from stored inputs and fixed weights, as numbers to compare.

A curve holds the parts of the loss in the first 20 iterations of steps 0 and 1, the sum of every tensor of the network
after each step, and 50 scores of predictions at the end. It is computed on the CPU, by one thread, in double precision,
so that other machines agree within far less than TOLERANCE. Neither loader nor sampler, augmentation, drawn scenes or
initialization takes part: inputs.npz holds the images, golden_adapter.py composes batches of them by index, and weights
are a fixed function of their shape. One more curve, `engine`, is a small run with all of these.

After a refactoring that keeps the numbers only golden_adapter.py changes: nothing here knows a name of ipseg, nor do
names and order of parameters matter.

- Weights that initialization draws are found by doing it twice with two seeds: what differs was drawn, and is given
  values that follow from the tensor's shape alone. Tensors of one shape begin equal and part at the first iteration.
  (Values by name would change with every name; values by place in the network, with every module that moves.)
- Sums are sorted among those of tensors of one shape.
"""

from __future__ import annotations

import copy
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import torch
from golden_adapter import CASES, DRAWS, ENGINE, Inputs, Subject, engine_run
from torch import Tensor, nn

HERE = Path(__file__).parent
CURVES = HERE / "curves"
ITERATIONS, SCORES = 20, 50
RATES = 0.13, 0.02
"""Of steps 0 and 1. The first is high: the teacher must be sure enough of old classes to give pseudo-labels. With a
second as high, ILT and LwF-MC make rounding errors a hundred million times larger in 20 iterations."""
TOLERANCE = 1e-6
"""Relative."""
MIOU_TOLERANCE = 0.02
SMALL = 1e-3
"""Changes of numbers below this are measured relative to it: sums may cancel."""

Record = dict[str, Any]
"""{"steps": [{"losses": {part: a value each iteration}, "sums": {shape: values}}, ...], "scores": values}."""


def compute(case: str, *, double: bool = True) -> Record:
    """The curve of a case, 20 iterations of each step; or, for `engine`, what a run through the whole engine logged."""
    with double_precision() if double else nullcontext():
        return _engine_curve() if case == ENGINE else _method_curve(case)


def _method_curve(case: str) -> Record:
    subject, steps = _build(case), []
    for index in range(len(subject.steps)):
        _begin_step(subject, index)
        subject.prepare()
        groups = [{"params": parameters, "lr": RATES[index] * factor} for parameters, factor in subject.groups()]
        optimizer, random_state = torch.optim.SGD(groups, momentum=0.9, nesterov=True), torch.get_rng_state()
        losses = defaultdict(list)
        for iteration in range(ITERATIONS):
            if case in DRAWS:
                torch.manual_seed(iteration)
            parts = subject.losses(iteration)
            optimizer.zero_grad()
            torch.stack(list(parts.values())).sum().backward()
            optimizer.step()
            for name, part in parts.items():
                losses[name].append(part.item())
        drew = not torch.equal(random_state, torch.get_rng_state())
        assert not drew or case in DRAWS, f"{case} draws random numbers while it learns"
        subject.end_step()
        steps.append({"losses": dict(losses), "sums": _sums_by_shape(subject.network.state_dict().values())})
    scores = subject.scores().flatten()
    chosen = torch.linspace(0, len(scores) - 1, SCORES).long()
    return {"steps": steps, "scores": scores[chosen].tolist()}


def _engine_curve() -> Record:
    with TemporaryDirectory() as folder:
        steps, miou = engine_run(Path(folder))
    return {"steps": [{"losses": losses, "sums": _sums_by_shape(state)} for losses, state in steps], "mIoU": miou}


def _sums_by_shape(tensors: Iterable[Tensor]) -> dict[str, list[float]]:
    """The sums of all tensors, sorted among those of one shape: neither names nor places matter."""
    sums = defaultdict(list)
    for tensor in tensors:
        sums["x".join(map(str, tensor.shape)) or "scalar"].append(tensor.double().sum().item())
    return {shape: sorted(sums[shape]) for shape in sorted(sums)}


# ---- double precision and fixed weights -----------------------------------------------------------------------------


@contextmanager
def double_precision() -> Iterator[None]:
    """New tensors are float64, and `.float()`, which keeps losses out of mixed precision, does not narrow them."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
            yield
    finally:
        torch.set_default_dtype(before)


def fixed_values(shape: tuple[int, ...]) -> Tensor:
    """He's spread, drawn evenly: of NumPy's generators only the legacy one never changes."""
    inputs = math.prod(shape[1:]) if len(shape) > 1 else 0
    spread = math.sqrt(6 / inputs) if inputs else 0.1
    return torch.from_numpy(np.random.RandomState([len(shape), *shape]).uniform(-spread, spread, shape))


def _build(case: str) -> Subject:
    inputs = Inputs(HERE / "inputs.npz")
    subjects = []
    for seed in range(2):
        torch.manual_seed(seed)
        subjects.append(Subject(case, inputs))
    fix_drawn(subjects[0].network, subjects[1].network)
    return subjects[0]


def _begin_step(subject: Subject, index: int) -> None:
    other = copy.deepcopy(subject)
    for seed, each in enumerate((subject, other)):
        torch.manual_seed(seed)
        each.begin_step(index)
    fix_drawn(subject.network, other.network)


@torch.no_grad()
def fix_drawn(network: nn.Module, other: nn.Module) -> None:
    """Give fixed values to what two seeds have drawn differently. Copies of other weights stay copies."""
    for mine, theirs in zip(network.state_dict().values(), other.state_dict().values(), strict=True):
        if mine.is_floating_point():
            mine.copy_(torch.where(mine != theirs, fixed_values(tuple(mine.shape)), mine))


# ---- files and differences ------------------------------------------------------------------------------------------


def path_of(case: str) -> Path:
    """Where its curve is stored."""
    return CURVES / f"{case}.json"


def stored(case: str) -> Record:
    """The curve as it was last regenerated."""
    if not path_of(case).is_file():
        raise FileNotFoundError(f"{case} has no golden curve. Make it: python tests/golden/regenerate.py --only {case}")
    record: Record = json.loads(path_of(case).read_text(encoding="utf-8"))
    return record


def store(case: str, record: Record) -> None:
    """Write 10 digits of every number, a list a line."""
    rounded = json.loads(json.dumps(record), parse_float=lambda text: float(f"{float(text):.10g}"))
    path_of(case).parent.mkdir(exist_ok=True)
    path_of(case).write_text(json.dumps(rounded).replace("],", "],\n") + "\n", encoding="utf-8")


def flat(record: Record) -> dict[str, float]:
    """Every number with a label, in the order of computing."""
    numbers: dict[str, float] = {}
    for index, step in enumerate(record["steps"]):
        for iteration in range(max(map(len, step["losses"].values()))):
            for name, values in step["losses"].items():
                numbers[f"step {index}, iteration {iteration + 1}, {name}"] = values[iteration]
        for shape, values in step["sums"].items():
            numbers |= {f"step {index}, sum {n} of shape {shape}": value for n, value in enumerate(values, start=1)}
    numbers |= {f"score {number}": value for number, value in enumerate(record.get("scores", []), start=1)}
    return numbers | ({"mIoU": record["mIoU"]} if "mIoU" in record else {})


def changes(old: Record, new: Record) -> dict[str, float]:
    """How much every number moved, relatively; infinitely if only one of the two has it."""
    before, after = flat(old), flat(new)
    labels = dict.fromkeys([*before, *after])
    return {label: _change(before.get(label, math.inf), after.get(label, math.inf)) for label in labels}


def _change(old: float, new: float) -> float:
    if old == new:
        return 0.0
    change = abs(new - old) / max(abs(old), abs(new), SMALL)
    return change if math.isfinite(change) else math.inf


def moved(old: Record, new: Record) -> dict[str, float]:
    """The changes that are too large."""
    large = {label: change for label, change in changes(old, new).items() if change > TOLERANCE}
    if "mIoU" in large and abs(old["mIoU"] - new["mIoU"]) <= MIOU_TOLERANCE:
        del large["mIoU"]
    return large


def without_case() -> list[Path]:
    """Stored curves of cases that no longer exist."""
    return [path for path in sorted(CURVES.glob("*.json")) if path.stem not in {*CASES, ENGINE}]
